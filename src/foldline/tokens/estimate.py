"""Estimates of tokens without a vocabulary: our own, and characters divided by four.

`ESTIMATE` counts the boundaries at which a byte-pair tokenizer cuts (blanks, punctuation, case changes, digits,
scripts). It uses operations that run at C speed, and errs slightly high.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Final, Protocol

from foldline.messages import Document, Image, Json, Message, Part, Reasoning, Text, ToolCall, ToolResult
from foldline.tokens.languages import tokens_beyond_english
from foldline.tokens.scripts import CONTROLS, tokens_one_by_one

__all__ = ["ESTIMATE", "CharsPerFour", "Counter", "MessageCounter"]


class Counter(Protocol):
    """Counts the tokens of plain text. `name` identifies the vocabulary."""

    @property
    def name(self) -> str:
        """The name of the vocabulary, or "estimate"."""

    def text(self, text: str, /) -> int:
        """Count the tokens of `text`: 0 for "", never negative. Never raises, not even for lone surrogates."""


class MessageCounter(Counter, Protocol):
    """A counter with its own rule for whole messages. No overhead is added to its counts."""

    def message(self, message: Message, /) -> int:
        """Count the tokens of one message. Never raises."""


# The cost of a character by its class and the class before it: a letter after a letter costs next to nothing, a capital
# after a small letter most of a token. In hundredths of a token; rows are the character, columns its predecessor.
# Classes, in the order of both: non-ASCII and controls (and the start of the text), small letter, capital, digit,
# blank, line end, quote, bracket, one of ,.;: one of -=*#~ underscore, any other sign. Non-ASCII characters have
# their own costs (`scripts`).
#
# Fitted by tools/calibrate_tokens.py to 94 recorded agent sessions with 4.0 million tokens and, to fill their gaps, to
# short texts in 19 languages and random runs (base64, hex, letters, blanks). The target is the larger of the
# cl100k_base and o200k_base counts. Measured estimate / target:
#     94 sessions: lowest 1.006, median 1.086, highest 1.138
#     messages of 50 tokens or more: p5 0.997, median 1.082, p95 1.172
# Latin-script words of other languages take more, which `languages` adds. Fitted without 20 of the languages, the
# estimate was 0.62 to 1.36 of the target over 27 messages in them (mean 1.08; one below 0.9); without that addition it
# was 0.38 to 1.23 (mean 0.72). Outside ASCII the two vocabularies differ (Chinese 1.6-fold, Greek or Hindi 2.5 to
# 3-fold, Georgian 6-fold), so the estimate is high for the newer one. Reported usage corrects that.
_PAIR_COSTS: Final = """
  0   0   0   0   0   0   0   0   0   0   0   0
 24   5  84 113  91 137 177 165  91 164 115 120
  5  42  24 110  25 156 141 135  74 233  77  41
  8 119 128  36 232 178 137 248 196 144 236 168
 38   2   0  14   1 105  54   0  60  65 248   0
 81  90  80   8  53   6   0   0   1   0   0  68
148   0  33  43  74  72   0  18  51  28   0   1
 55   0 142   3  86 154   0   0   0  60   0  14
248  37  86  37 210  14   1   0   0  63  34   4
101   3   0   0  39  55  44 243   0   1 248  44
  0   1   0  12 248   0   0 185   3 248 164 179
  0   0 147  13  84 113 103 137  77 220 124  65
"""
_LONE_COST: Final = 50  # of a non-ASCII character between blanks: the blank before it is mostly a separate token
_TEXT_COST: Final = 48  # of any text, however short
_ENDLESS_COST: Final = 1157  # of each 24 letters without a break: not a word, so the letters cost more
_ENDLESS: Final = b"a" * 24
_SHOUTED: Final = 24  # characters from which a text mostly in capitals is a sentence and not a name
_CAPITAL_COST: Final = 7  # additional cost of each capital there: few words in capitals are in a vocabulary
_MAX_DISCOUNT: Final = 30  # percent of a text's cost that its language may subtract
_SUMMED_AT_ONCE: Final = 65_520 // 255


def _table(entries: Iterable[tuple[Iterable[int], int]], rest: int = 0) -> bytes:
    table = bytearray([rest]) * 256
    for places, value in entries:
        for place in places:
            table[place] = value
    return bytes(table)


# A class is a number below 16, so that a pair of neighbours fits in one byte: 16 * previous class + this class.
_O, _L, _U, _D, _S, _N, _Q, _B, _C, _R, _UNDERSCORE, _P = range(12)
_CLASS_OF: Final = _table(
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
_COST_OF_PAIR: Final = _table(
    ([16 * before + now], int(cost))
    for now, row in enumerate(_PAIR_COSTS.strip().split("\n"))
    for before, cost in enumerate(row.split())
)
_CONTINUATION: Final = bytes(range(0x80, 0xC0))
_LONE: Final = bytes((16 * _S + _O, 16 * _O + _S))
_TWO_CAPITALS: Final = 17 * _U
_INSIDE_WORDS: Final = bytes(
    16 * before + now for before in range(16) for now in range(16) if now in {_S, _N} or before not in {_S, _N}
)
_LETTERS: Final = _table((([_L, _U], ord("a")),))


class _Estimate:
    """Estimates tokens from the classes of neighbouring characters."""

    name = "estimate"

    def text(self, text: str, /) -> int:
        """Count the tokens of `text`: at least its words, at most its bytes in UTF-8.

        O(size), about 8 ns per character, and 30 ns more for a non-ASCII one or a language other than English.
        """
        # Bounds of every byte-pair vocabulary: none joins words across a blank, and each token has at least one byte.
        if not text:
            return 0
        data = text.encode("utf-8", "surrogatepass")
        # Keep only the first byte of each non-ASCII character, so that each character is one class.
        characters = data if text.isascii() else data.translate(None, _CONTINUATION)
        classes = characters.translate(_CLASS_OF)
        # Each class with the one before it. One shift of the whole text as a number replaces a loop in Python, at a
        # fraction of its time.
        size, number = len(classes), int.from_bytes(classes, "little")
        pairs = (number | number << 12).to_bytes(size + 2, "little")[:size]
        costs = pairs.translate(_COST_OF_PAIR)
        cost = _TEXT_COST + (zlib.adler32(costs, 0) & 0xFFFF if size <= _SUMMED_AT_ONCE else _sum(costs))
        if size >= len(_ENDLESS):
            cost += _ENDLESS_COST * classes.translate(_LETTERS).count(_ENDLESS)
        if _O in classes:
            cost += tokens_one_by_one(data) + _LONE_COST * pairs.count(_LONE)
        if size >= _SHOUTED and 2 * (capitals := pairs.count(_TWO_CAPITALS)) > size:
            cost += _CAPITAL_COST * capitals
        cost += max(tokens_beyond_english(characters), -cost * _MAX_DISCOUNT // 100)
        words = len(pairs.translate(None, _INSIDE_WORDS)) + (classes[0] not in {_S, _N})
        return max(1, min((cost + 50) // 100, len(data)), words)


def _sum(values: bytes) -> int:
    """Return the sum of all bytes. O(size)."""
    # The lower half of Adler-32 is that sum while it stays below 65,521 (RFC 1950), in an eighth of the time of `sum`.
    view = memoryview(values)
    starts = range(0, len(view), _SUMMED_AT_ONCE)
    return sum([zlib.adler32(view[start : start + _SUMMED_AT_ONCE], 0) & 0xFFFF for start in starts])


ESTIMATE: Final[Counter] = _Estimate()


# --- characters divided by four ---------------------------------------------------------------------------------------
# The estimate of many agents, for users who want the same figures (S2.09).


class CharsPerFour:
    """ceil(characters / 4) of a message's text, thinking and tool-call arguments; an image is 1,200 tokens.

    These are the figures of the checkpoint system. Frames, roles and tool names are not counted, so short messages are
    underestimated. Reported usage replaces the counts that it covers, and does not scale the others.
    """

    # Not scaled: users of that system compare figures, and a ratio of ours would make them differ.
    scaled: Final = False
    name: Final = "characters / 4"
    CHARS_PER_TOKEN: Final = 4
    IMAGE_TOKENS: Final = 1_200

    def text(self, text: str, /) -> int:
        """ceil(characters / 4). O(1)."""
        return -(-len(text) // self.CHARS_PER_TOKEN)

    def message(self, message: Message, /) -> int:
        """ceil(characters of all parts / 4), rounded once for the whole message. O(parts)."""
        return -(-sum(map(self._chars, message.parts)) // self.CHARS_PER_TOKEN)

    def _chars(self, part: Part) -> int:
        match part:
            case Text(text=text) | Reasoning(text=text):
                return _length(text)
            case ToolCall(arguments=arguments):
                return _length(arguments)
            case Image():
                return self.IMAGE_TOKENS * self.CHARS_PER_TOKEN
            case ToolResult(parts=parts):
                return sum(map(self._chars, parts))
            case Document(text=text) if text:
                return _length(text)
            case _:
                return _length(part.raw)


def _length(value: Json) -> int:
    return len(value) if isinstance(value, str) else 0 if value is None else len(str(value))
