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
    "c-keBOKTKC6h==~b#-_3R6i$^nWV=gO-u}luSEnUg0FxpH-aDr5g}_g;tz1)#)X25`+L1L(+oXT)%Wq8?-mU+7btKr1zeNSkFF|!?6QQ1R$w-8Og"
    "^y04H+3?vZHA-7~#COMq`Uvwp_II%ydJpN%v~*=<-yU>j7B(WTIWb+<Rzk>giH+wh}F2Pt*FP_htHDr5Atx76g84_Kj%{p+juBtKB>`BcmPn;nn1"
    "5fAB<hgd?evm<QSb;Tlo#{(^-?oVZ_bn}n$T*#Wm!<yu_S5T93y;hj(1*ntMaT?Qyw2`64~CyEj6jf!|L$fvI|i9D5WWG}RfJXQ`(J<#HEqkA$bF"
    "}=b^2^*OE-r=rTqvrT2=}W(hS^W_zY`&*0JsTIge|(l?ny;%jdMvHDSuf8uP|4KKN~$Q9%&I*|fmcV8TGg&N-A_KSeQZH>U8)inzhKqccXZ)9>t;"
    "Ks_*&<#B^2JJ8!#pa6Dm^^8lsM2#ZpT*SL*6q%_xm8hrCO^P=`8lw!w}$!7x+`5O*^ci8$XIm|M(3=`JICdAcWuN<(yEN4vJgR^y>>VWDF>>ep;;"
    "#6I1*^-2=rnC8V4sd97Hy$yL=(zjJAlZS4TztqjV%=EVPDt_hjdRsT!U8{v!@HmFz(Hd>~ES(!{J1UPZcfx;(&p00"
)
_FIRST, _SECOND = (table((kind, number) for number, kind in enumerate(kinds, 1)) for kinds in KINDS)
_UNPACKED: Final = zlib.decompress(base64.b85decode("".join(_COSTS)))
_NEXT, _NEXT_SECOND, _NEXT_BUT_ONE = (_UNPACKED[start : start + 256] for start in range(0, 768, 256))
_PIECE: Final = 16_384  # bytes that stay in the processor's cache; a seam is wrong by a token or two


def tokens_of_words(data: bytes) -> int:
    """Hundredths of a token of all small letters in a text, given with one byte per character.

    O(size), about 8 ns per byte.
    """
    return sum([_tokens_of_piece(data[start : start + _PIECE]) for start in range(0, len(data), _PIECE)])


def _tokens_of_piece(data: bytes) -> int:
    near, far = pairs(data.translate(_FIRST), 1, 2)
    (other,) = pairs(data.translate(_SECOND), 1)
    costs = near.translate(_NEXT), other.translate(_NEXT_SECOND), far.translate(_NEXT_BUT_ONE)
    return sum([total(cost, HIGHEST_COST) for cost in costs])
