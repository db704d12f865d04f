"""Tokens of words in small Latin letters, by the letters that stand beside each other.

A byte-pair vocabulary has most words of English and of code as one token, and cuts those of other languages into
pieces. Which of the two a word is shows in its letters: pairs that English has often cost nothing here, and each that
it seldom has costs part of a token.
"""

from __future__ import annotations

import base64
import zlib
from typing import Final

from foldline.tokens.pairs import pairs, table, total

__all__ = ["HIGHEST_COST", "KINDS", "tokens_of_words"]

KINDS: Final = (
    (b"e", b"a", b"ft", b"iwz", b"nv", b"o", b"r", b"jp", b"blx", b"dq", b"su", b"ky", b"hm", b"g", b"c"),
    (b"cy", b"l", b"jz", b"u", b"hv", b"eq", b"wx", b"fo", b"a", b"b", b"gn", b"pt", b"dm", b"rs", b"i"),
)
"""The small letters in two ways of 15 kinds, for two neighbours have to fit in a byte; kind 0 is all else.

Letters that one way throws together the other mostly keeps apart. Found by moving letters between the kinds as long as
the error fell.
"""
HIGHEST_COST: Final = 150
"""Hundredths of a token that one entry has at most."""

# Three tables of 256 hundredths of a token: letters next to each other by the first kinds, the same by the second, and
# letters two places apart by the first. Fitted together with the costs of `estimate`, by tools/derive_letters.py.
_COSTS: Final = (
    "c-keBO>fgc5Qd*!@5YY59g-$ZLt7JC6c7+Dw4%L%gy4V#66y&=RdIqV2kuCS0}=<A-^+}%w$`4tXWow)S_)S%#zUWxw4T|@=VKsVl<=e#sA?WCn!"
    "6Qo8c7fr@1D#xL)etg>Az_e=JS*(H5#T)KQ!FY52wOh576TZSA{)T#Hb}v%wVY`ONAhu*!#;64VnYn`1d<d@H2x?)N9BQpINy`!y!x7D|oSX)IYe"
    "Cg)sSB8kwyED9H;%D~EFyP9sS)xH2LdR1<DI9jc~Q1|c)l;6rM#zGGz6nHc2ZA2vbox7Cr_eN=^?1^Mt*-ivJH8*!^Bvek6WQIaAz8Z(jw?CI4=I"
    "f!`}9mz9#b1kfFxBGEbU!x*jI5x}K*sq;%EgBHp<dt%fPLgUSXVB=OvMQu3#N!h+5y=>hN5i?QQ?SV|-m+URqkU@K^yL@la(KtI{!ZVh3|-|LwId"
    "Fmc#Dti;qro#w9{>=jo4RDrq3apDVX+bJj<p-N2|Q6xo_z-DVb-Hs|VFQuwPjh4m)f{X4>oXhGk~W?hT~~<t?q$raO-7thJ%ovKjX}T)LLDk9^vw"
    "{$@E4+mz(FyEl7X#;#yGvHGOrK`{%ZKg&k_&Vhq8R=c`k(uYCXX<Zg)M>Gdq4)aFndWTLGN7a8e6FN8"
)
_FIRST, _SECOND = (table((kind, number) for number, kind in enumerate(kinds, 1)) for kinds in KINDS)
_UNPACKED: Final = zlib.decompress(base64.b85decode("".join(_COSTS)))
_NEXT, _NEXT_SECOND, _NEXT_BUT_ONE = (_UNPACKED[start : start + 256] for start in range(0, 768, 256))
_PIECE: Final = 16_384  # bytes that stay in the processor's cache; a seam is wrong by a token or two


def tokens_of_words(data: bytes) -> int:
    """Hundredths of a token of all small letters in a text, given with one byte per character.

    O(size), about 8 ns per byte.
    """
    if len(data) <= _PIECE:
        return _tokens_of_piece(data)
    return sum([_tokens_of_piece(data[start : start + _PIECE]) for start in range(0, len(data), _PIECE)])


def _tokens_of_piece(data: bytes) -> int:
    near, far = pairs(data.translate(_FIRST), 1, 2)
    (other,) = pairs(data.translate(_SECOND), 1)
    return (
        total(near.translate(_NEXT), HIGHEST_COST)
        + total(other.translate(_NEXT_SECOND), HIGHEST_COST)
        + total(far.translate(_NEXT_BUT_ONE), HIGHEST_COST)
    )
