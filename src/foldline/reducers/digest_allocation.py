"""How the room of a digest is shared among what it tells: users' words by what they lay down, deeds by their age."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from foldline.text.identifiers import names
from foldline.text.instructions import CERTAIN, DURABLE, durability, gist, replaces, sentences
from foldline.view.view import View

__all__ = [
    "ASSISTANT",
    "LEAST_TOKENS",
    "MORE",
    "NOTE",
    "USER",
    "DigestItem",
    "ages_with_room",
    "grant_words",
    "keep_instructions",
    "weight",
    "without_repeats",
]

# What stands before words: of the user, of the user again, of the agent, of nobody.
USER, MORE, ASSISTANT, NOTE = "User: ", "+ ", "Assistant: ", "Note: "

# What a user's message gets at least, or all of it.
SENTENCE_TOKENS = 24

LEAST_TOKENS = 10
"""A group that would get less is left out: a label and a name is the least that says anything."""

# A text of more sentences and lines holds something pasted: what the user says of it stands before or behind it.
PASTED = 160

# What a sentence loses that was said again later with another value.
AGAIN = 2.5

# What a sentence that is kept alone takes beside its words: the marks that something is missing around it.
GAP_TOKENS = 3


@dataclass(slots=True)
class DigestItem:
    """What one group said and did, before it is cut to size: pieces of (label, text)."""

    pieces: list[tuple[str, str]]
    sizes: list[int]
    """Tokens of each piece with its label, and one for the line break behind it."""
    tokens: int
    user: bool
    limit: int = 0
    worth: float = 1.0
    """What share of the room it gets beside its age: more of what was referred to since, and of what failed."""
    kept: list[str] = field(default_factory=list)
    """Sentences of a user that stay word for word."""

    @property
    def bare(self) -> bool:
        """Whether the agent only said something in which there is nothing to find again ("I will look.")."""
        return not self.user and all(
            (label or text).startswith(ASSISTANT) and len(text) <= _MUCH and not names(text) and not _DIGIT.search(text)
            for label, text in self.pieces
        )


_DIGIT = re.compile(r"\d")
# Characters of a text that is more than saying something.
_MUCH = 20_000


def without_repeats(items: list[DigestItem]) -> list[DigestItem]:
    """Without what was said again later in the same words."""
    said: set[str] = set()
    out: list[DigestItem] = []
    for item in reversed(items):
        text = item.pieces[-1][1] if item.user or item.bare else ""
        if text not in said or not text:
            out.append(item)
        said.add(text)
    return out[::-1]


def grant_words(items: list[DigestItem], room: int, view: View) -> int:
    """Give the user's messages their sizes: what is to hold on first, then the newest. Returns what was given."""
    spent = keep_instructions(items, room, DURABLE, view)
    return spent + _share_out(_newest_words(items, room - spent), room - spent)


def keep_instructions(items: list[DigestItem], room: int, least: float, view: View) -> int:
    """Choose the sentences of at least this score that stay word for word, as many as `room` holds. Returns their size.

    Those that sound most like it come first, the short before the long, the new before the old; of those that differ by
    a value only, the newest goes before all others.
    """
    found: list[tuple[float, int, str, int]] = []
    gists: set[str] = set()
    for age, item in enumerate(reversed(items)):
        said = sentences(item.pieces[0][1])
        if len(said) > PASTED:
            said = said[: PASTED // 2] + said[-PASTED // 2 :]
        for sentence in reversed(said):
            score = durability(sentence)
            if score < DURABLE:
                continue
            same, score = gist(sentence), min(score, CERTAIN)
            said_again = same in gists
            gists.add(same)
            if sentence in item.kept or score - (AGAIN if said_again and replaces(sentence) else 0.0) < least:
                continue
            tokens = view.counter.text(sentence) + 2
            rank = max(0.0, score - (AGAIN if said_again else 0.0))
            found.append((-(rank**2) / tokens**0.5, age, sentence, tokens))
    spent = 0
    for _, age, sentence, tokens in sorted(found):
        item = items[-1 - age]
        if item.limit >= item.tokens:
            continue
        cost = min(tokens + (0 if item.kept or item.tokens <= tokens + 1 else GAP_TOKENS), item.tokens - item.limit)
        if spent + cost <= room:
            item.kept.append(sentence)
            item.limit += cost
            spent += cost
    return spent


def _newest_words(items: list[DigestItem], room: int) -> list[DigestItem]:
    """The newest of the user's messages, as many as get room for a sentence: a word of each would say nothing."""
    left = room
    for count, item in enumerate(reversed(items)):
        left -= min(item.tokens - item.limit, SENTENCE_TOKENS)
        if left < 0:
            return items[len(items) - count :]
    return items


def _share_out(items: list[DigestItem], room: int) -> int:
    """Give each item its size, the large ones no more than an equal share of what is left. Returns what was given."""
    left, spent = room, 0
    for count, item in enumerate(sorted(items, key=lambda x: x.tokens - x.limit)):
        more = min(item.tokens - item.limit, max(0, left) // (len(items) - count))
        item.limit += more
        left -= more
        spent += more
    return spent


def ages_with_room(ages: Sequence[int], room: float) -> set[int]:
    """The newest ages that can all be told in `room`: the older the group, the smaller its share."""
    told: set[int] = set()
    mass = 0.0
    for age in ages:
        mass += weight(age)
        if told and room * weight(age) / mass < LEAST_TOKENS:
            break
        told.add(age)
    return told


def weight(age: int) -> float:
    """What an item weighs that is so many items old."""
    return 1.0 / (1.0 + age / HALF_LIFE)


# Groups after which an item weighs half: about the span in which agents come back to what they saw.
HALF_LIFE = 24
