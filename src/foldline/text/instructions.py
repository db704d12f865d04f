"""Durable instructions in a text: rules, wishes, goals and facts that stay valid, sentence by sentence.

A digest keeps such sentences verbatim and drops others. They are recognised by the words in which people state them,
not by their position. The words are English and Chinese; a sentence in another language scores as ordinary.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from itertools import pairwise
from typing import Final

from foldline.text.identifiers import names

__all__ = ["CERTAIN", "DURABLE", "by_sentence", "durability", "gist", "replaces", "sentences"]

DURABLE: Final = 2.0
"""The score from which a sentence is kept verbatim: one clear sign or two weak ones."""

CERTAIN: Final = 5.0
"""The score above which more signs mean nothing: a long sentence simply has more of them."""

# Ends of sentences. A small letter after a full stop continues the same thought ("for now. don't …"). Each alternative
# starts only where a run of its marks starts: otherwise a long row of dots would cost the square of its length.
_END: Final = r"(?<![.!?])[.!?]++[\"'”’)\]]*+\s++(?=[\"'“‘(\[]?[A-Z\d])|(?<![。！？])[。！？]++[”’」]?|(?<!\n)\n++"

# Signs of a durable instruction, each with its score. Weak signs are common in other sentences too.
_WORDS: Final = {
    "how long it holds": (
        5.0,
        r"\b(?:from now on|for the rest of|going forward|at all times|no longer)\b|从现在起|今后|以后都",
    ),
    "what must be, and must not": (
        3.0,
        (
            r"\b(?:never|always|must(?:n't| not)?|shall|forbidden|prohibited|mandatory|under no circumstances|do not|"
            r"don't|cannot|can't|may not|should not|shouldn't)\b|必须|不要|不得|禁止|绝不|务必|始终|一律"
        ),
    ),
    "within which bounds": (
        2.0,
        r"\b(?:unless|until|without|at most|at least|no more than|not to|nobody|except|instead of)\b|只能|除非",
    ),
    "only this": (1.0, r"\bonly\b"),
    "none of that": (3.0, r"^\W*no [a-z]"),
    "this and not that": (
        2.0,
        r", no [a-z]+|\bnot [a-z]+\W*$|, not\b|\brather than\b|\bover [a-z-]+ [a-z]+\W*$",
    ),
    "what a rule is called": (
        2.0,
        r"\b(?:limit|cap|capped|ceiling|budget|deadline|constraint|rule|policy|requirement|required|requires)\b",
    ),
    "on which occasion": (2.0, r"(?:^|[.:;] )\W*(?:when(?:ever)?|before|after|if|each time|every time)\b[^,]*, "),
    "on each occasion": (1.0, r"\b(?:every|each) [a-z]"),
    "how to do it": (
        1.0,
        r"\b(?:end|begin|start|write|reply|answer|respond|use|keep|make sure|ensure|avoid|report|stop)\b",
    ),
    "what is wished": (
        2.0,
        r"\b(?:prefers?|preferred|preference|wants?|would rather|would like|wishes)\b|喜欢|希望|想要",
    ),
    "a request": (1.0, r"\bplease\b|请"),
    "what is aimed at, and what stands open": (
        2.0,
        r"\b(?:goal|aim|next step|next up|to-?do|task|open question|awaiting|milestone|phase|plan is)\b|目标|下一步",
    ),
    "what has changed": (
        2.0,
        r"\b(?:update|changed|moved to|switched|renamed|rotated|rebased|supersedes?|now)\b|改为",
    ),
    "what is so": (
        1.0,
        r"\b(?:is|are|was|were|runs?|lives|owns?|belongs|called|named|based|located|scheduled|stands for)\b|是|叫",
    ),
    "a label before it": (3.0, r"^\W*(?-i:[A-Z])[a-z]*(?: [a-z]+){0,2}: \S"),
}
_CHANGED, _ORDERED = "what has changed", "what must be, and must not"
_NUMBER: Final = re.compile(r"[$€£]?\d[\d.,:%]*")
_VALUE: Final = re.compile(r"(?<![\w.-])[$€£]?\d[\d.,:%-]*+(?![\w-])")


@cache
def _signs() -> dict[str, tuple[float, re.Pattern[str]]]:
    # Compiled at the first digest: sixteen alternations with a case to ignore are the dearest patterns of the package.
    return {name: (worth, re.compile(words, re.IGNORECASE)) for name, (worth, words) in _WORDS.items()}


# A longer stretch without a sentence end is data or prose, not an instruction.
_MOST_CHARS: Final = 400


# Characters of a text up to which all its sentences are scored. A longer one contains something pasted.
_LONG: Final = 100_000

# Characters scored at each end of a longer text: a hundred sentences of `_MOST_CHARS`.
_ENDS: Final = 40_000


def sentences(text: str) -> tuple[str, ...]:
    """Split a text into sentences and lines, stripped. Of a long text, only those at its ends. O(ends)."""
    first, _, last = _parted(text)
    return (*first, *last)


def by_sentence(text: str) -> str:
    """Return a text with each of its `sentences` on its own line. The middle of a long text stays unchanged."""
    first, between, last = _parted(text)
    return "\n".join((*first, between, *last) if between else (*first, *last))


def _parted(text: str) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """Return the first sentences of a text, the unscored middle, and the last sentences."""
    if len(text) <= _LONG:
        return _short(text), "", ()
    first, _, stop = _split(text[:_ENDS])
    last, start, _ = _split(text[-_ENDS:])
    between = text[stop : len(text) - _ENDS + start]  # includes the two sentences that were cut
    return tuple(filter(None, first[:-1])), between, tuple(filter(None, last[1:]))


def _split(text: str) -> tuple[tuple[str, ...], int, int]:
    """Return the pieces of a text, the end of the first one and the start of the last one. O(size)."""
    ends = [0, *(end.end() for end in re.finditer(_END, text)), len(text)]
    found = tuple(text[start:stop].strip() for start, stop in pairwise(ends))
    return found, ends[1], ends[-2]


@lru_cache(maxsize=256)  # each fold splits the texts of a digest again
def _short(text: str) -> tuple[str, ...]:
    return tuple(piece for piece in _split(text)[0] if piece)


def durability(sentence: str) -> float:
    """Score how much a sentence reads like a durable instruction; from `DURABLE` on it is one. O(size)."""
    return 0.0 if len(sentence) > _MOST_CHARS else _score(sentence)


@lru_cache(maxsize=8_192)  # as above; short sentences only, so that a proxy does not keep the texts of its clients
def _score(sentence: str) -> float:
    score = sum(worth for worth, sign in _signs().values() if sign.search(sentence))
    named = bool(names(sentence)) or bool(_NUMBER.search(sentence))
    return score + (1.0 if named else 0.0)


def replaces(sentence: str) -> bool:
    """Whether a sentence replaces an earlier one with the same words and another value. O(size)."""
    return len(sentence) <= _MOST_CHARS and _replaces(sentence)


@lru_cache(maxsize=2_048)  # as above
def _replaces(sentence: str) -> bool:
    # An order does so only if it says that something changed: "never touch 1003" leaves "never touch 1002" valid.
    signs = _signs()
    return bool(signs[_CHANGED][1].search(sentence)) or not signs[_ORDERED][1].search(sentence)


def gist(sentence: str) -> str:
    """Return a sentence without its amounts and dates. Of two sentences with the same gist, the later one is valid."""
    return _short_gist(sentence) if len(sentence) <= _MOST_CHARS else _gist(sentence)


def _gist(sentence: str) -> str:
    # Names stay: a rule about one file does not replace the rule about another.
    return " ".join(_VALUE.sub("#", sentence).lower().split())


_short_gist = lru_cache(maxsize=2_048)(_gist)  # as above
