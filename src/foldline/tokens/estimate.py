"""Tokens of plain text without a vocabulary.

The estimate reads what a byte-pair tokenizer cuts at (blanks, signs, case changes, digits, scripts) with operations
that run at C speed, and errs slightly high.
"""

from __future__ import annotations

from typing import Final, Protocol

from foldline.tokens.letters import tokens_of_words
from foldline.tokens.pairs import pairs, table, total
from foldline.tokens.scripts import CONTROLS, tokens_one_by_one

__all__ = ["ESTIMATE", "Counter"]


class Counter(Protocol):
    """Counts the tokens of plain text; `name` says whose tokens they are."""

    @property
    def name(self) -> str:
        """Whose tokens they are: a vocabulary's name, or "estimate"."""

    def text(self, text: str, /) -> int:
        """Tokens of `text`: 0 for "", never negative. Never raises, whatever characters are in it."""


# Each character adds what its class and the class before it say: a letter after a letter next to nothing, a capital
# after a small letter most of a token. Hundredths of a token; rows are the character, columns the one before it.
# Classes, in the order of both: all outside ASCII, and controls (and the start of the text), small letter, capital,
# digit, blank, line end, quote, bracket, one of ,.;: one of -=*#~ underscore, any other sign. What is outside ASCII has
# figures of its own (`scripts`).
#
# Fitted together with the costs of small letters (`letters`) by tools/derive_letters.py, over 94 recorded agent
# sessions with 4.0 million tokens, catalogs of translated programs in 80 languages, names of the CLDR, English texts,
# lists of words, and random runs (base64, hex, letters, blanks). The target is the larger of the cl100k_base and
# o200k_base counts. Estimate / target as measured:
#     94 sessions: lowest 1.001, median 1.067, highest 1.147
#     500 characters of prose in 80 languages with Latin letters: lowest 0.88, p5 0.99, mean 1.13, p95 1.29
#     lists of English words: mean 1.04, highest 1.20
# Outside ASCII the two vocabularies differ (Chinese 1.6-fold, Greek or Hindi 2.5 to 3-fold, Georgian 6-fold), so that
# the estimate is high for the newer one there. Usage reported by the provider corrects that.
_PAIR_COSTS: Final = """
  0   0   0   0   0   0   0   0   0   0   0   0
  0   0  44 105   0   3  76  32   0  65  10  17
 50   4  43  95  60 171   0 126   0  29   8   2
  8  31 137  34 160  48   0  82  78  34  71 165
 38   0   0  42   1 105 147  11  43   0   0   3
 81 129   0 142   1   7  12   0   0   0   0  43
148  71 154 104  51   6   0  14   0   0   0  42
 55  56  59  35  63  88  36   0   0  28   0  39
248  77  90 112 118   2   0   0   0   0   0  21
101  46 106 140 111  31  31 109 152   2 230  94
  0  10   0 203 201   0   0 230   0 230 161   3
  0   6 120  28  70 130 142 190  61 227   0  38
"""
_LONE_COST: Final = 50  # of a sign outside ASCII between blanks: most blanks before one are a token of their own
_TEXT_COST: Final = 48  # of any text, however short
_ENDLESS_COST: Final = 337  # of each 24 letters without a break: no word, so letters cost more than in words
_ENDLESS: Final = b"a" * 24


# A class is a number below 16, so that two neighbours fit in one byte: 16 * the class before + the class now.
_O, _L, _U, _D, _S, _N, _Q, _B, _C, _R, _UNDERSCORE, _P = range(12)
_CLASS_OF: Final = table(
    (
        ((*range(0x80, 0x100), *CONTROLS), _O),
        (range(97, 123), _L),
        (range(65, 91), _U),
        (range(48, 58), _D),
        (b" \t\f\v", _S),
        (b"\r\n", _N),
        (b"\"'`", _Q),
        (b"()[]{}<>", _B),
        (b",.;:", _C),
        (b"-=*#~", _R),
        (b"_", _UNDERSCORE),
    ),
    rest=_P,
)
_COST_OF_PAIR: Final = table(
    ([16 * before + now], int(cost))
    for now, row in enumerate(_PAIR_COSTS.strip().split("\n"))
    for before, cost in enumerate(row.split())
)
_CONTINUATION: Final = bytes(range(0x80, 0xC0))
_LONE: Final = bytes((16 * _S + _O, 16 * _O + _S))
_INSIDE_WORDS: Final = bytes(
    16 * before + now for before in range(16) for now in range(16) if now in {_S, _N} or before not in {_S, _N}
)
_LETTERS: Final = table((([_L, _U], ord("a")),))


class _Estimate:
    """Tokens guessed from the classes of neighbouring characters."""

    name = "estimate"

    def text(self, text: str, /) -> int:
        """Tokens of `text`, never fewer than it has words: no tokenizer joins what a blank separates.

        O(size), about 13 ns per character, and 30 ns more for one outside ASCII.
        """
        if not text:
            return 0
        data = text.encode("utf-8", "surrogatepass")
        # Of a character outside ASCII only its first byte stays here.
        characters = data if text.isascii() else data.translate(None, _CONTINUATION)
        classes = characters.translate(_CLASS_OF)
        (neighbours,) = pairs(classes, 1)
        cost = _TEXT_COST + total(neighbours.translate(_COST_OF_PAIR)) + tokens_of_words(characters)
        cost += _ENDLESS_COST * classes.translate(_LETTERS).count(_ENDLESS)
        if _O in classes:
            cost += tokens_one_by_one(data) + _LONE_COST * neighbours.count(_LONE)
        words = len(neighbours.translate(None, _INSIDE_WORDS)) + (classes[0] not in {_S, _N})
        return max(1, (cost + 50) // 100, words)


ESTIMATE: Final[Counter] = _Estimate()
