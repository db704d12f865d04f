"""How the room of a digest is divided: users' words by what they lay down, actions by their age.

Actions are all else: calls, results and words of the agent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from foldline.text.identifiers import names
from foldline.text.instructions import CERTAIN, DURABLE, durability, gist, replaces, sentences
from foldline.text.shorten import largest
from foldline.view.view import View

__all__ = [
    "ASSISTANT",
    "LEAST_TOKENS",
    "MORE",
    "NOTE",
    "USER",
    "DigestItem",
    "divided",
    "grant_words",
    "keep_instructions",
    "without_repeats",
]

# Labels of words: of the user, of the user again, of the agent, of nobody. Never a prefix of each other, since digests
# are read again by them.
USER, MORE, ASSISTANT, NOTE = "User: ", "+ ", "Assistant: ", "Note: "

# The least that a user's message gets, unless all of it is shorter.
SENTENCE_TOKENS = 24

LEAST_TOKENS = 10
"""A group that would get less is left out: a label and a name is the least that says anything."""

# A text of more sentences holds something pasted; what the user says about it comes before or after it.
PASTED = 160

# The loss in score of a sentence that a later one repeats with another value: the newer value holds.
AGAIN = 2.5

# The cost of a sentence kept alone, beside its words: the marks that something is missing around it.
GAP_TOKENS = 3


@dataclass(slots=True)
class DigestItem:
    """The words and actions of one group before they are cut to size: pieces of (label, text)."""

    pieces: list[tuple[str, str]]
    sizes: list[int]
    """Tokens of each piece with its label, and one for the line break behind it."""
    tokens: int
    user: bool
    limit: int = 0
    worth: float = 1.0
    """A factor on its share beside its age: higher for what was referred to since, and for what failed."""
    kept: list[str] = field(default_factory=list)
    """A user's sentences that stay word for word."""

    @property
    def bare(self) -> bool:
        """Whether it holds only words of the agent without a name or number to find again ("I will look.")."""
        if self.user:
            return False
        for label, text in self.pieces:
            if not (label or text).startswith(ASSISTANT) or len(text) > _MUCH or _DIGIT.search(text) or names(text):
                return False
        return True


_DIGIT = re.compile(r"\d")
# Above so many characters a text is not searched for names: it says something.
_MUCH = 20_000


def without_repeats(items: list[DigestItem]) -> list[DigestItem]:
    """The items without those whose words a later item repeats."""
    later: set[str] = set()
    out: list[DigestItem] = []
    for item in reversed(items):
        text = item.pieces[-1][1] if item.user or item.bare else ""
        if text not in later or not text:
            out.append(item)
        later.add(text)
    return out[::-1]


def grant_words(items: list[DigestItem], room: int, view: View) -> int:
    """Set the limits of the user's items: durable instructions first, then the newest. Returns the tokens allotted."""
    spent = keep_instructions(items, room, DURABLE, view)
    return spent + _share_out(_newest_words(items, room - spent), room - spent)


def keep_instructions(items: list[DigestItem], room: int, least: float, view: View) -> int:
    """Choose sentences of at least this score to stay word for word, as many as `room` holds. Returns their size.

    The clearest instructions come first, short before long, new before old; of those that differ only by a value, the
    newest comes before all others.
    """
    found: list[tuple[float, int, str, int]] = []
    gists: set[str] = set()
    for age, item in enumerate(reversed(items)):
        own = sentences(item.pieces[0][1])
        if len(own) > PASTED:
            own = own[: PASTED // 2] + own[-PASTED // 2 :]
        for sentence in reversed(own):
            score = durability(sentence)
            if score < DURABLE or sentence in view.rules.ended:
                continue
            same, score = gist(sentence), min(score, CERTAIN)
            repeated = same in gists
            gists.add(same)
            if sentence in item.kept or score - (AGAIN if repeated and replaces(sentence) else 0.0) < least:
                continue
            tokens = view.counter.text(sentence) + 2
            rank = max(0.0, score - (AGAIN if repeated else 0.0))
            # Score squared over the root of the length: a clear rule wins over several vague ones of the same size.
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
    """The newest of the user's items, as many as get a sentence: a word of each would say nothing."""
    left = room
    for count, item in enumerate(reversed(items)):
        left -= min(item.tokens - item.limit, SENTENCE_TOKENS)
        if left < 0:
            return items[len(items) - count :]
    return items


def _share_out(items: list[DigestItem], room: int) -> int:
    """Divide room equally, smallest items first: what they leave goes to larger ones. Returns the tokens allotted."""
    left, spent = room, 0
    for count, item in enumerate(sorted(items, key=lambda x: x.tokens - x.limit)):
        more = min(item.tokens - item.limit, max(0, left) // (len(items) - count))
        item.limit += more
        left -= more
        spent += more
    return spent


def divided(items: Mapping[int, DigestItem], room: int) -> dict[int, int]:
    """The limits of items by their ages, newest first: all whole where they fit, else shares by age and worth.

    An item is cut only where no other has more for its weight. The oldest get nothing where they would get too little
    to say anything.
    """
    ages = list(items)
    # Those that need least for their weight come first: whoever cannot have all it needs shares with the ones behind.
    weights = {age: _weight(age) * item.worth for age, item in items.items()}
    order = sorted(items, key=lambda age: (items[age].tokens / weights[age], age))

    def shares(count: int) -> dict[int, int]:
        chosen = frozenset(ages[:count])
        mass = sum([weights[age] for age in ages[:count]])
        return _shares(items, [age for age in order if age in chosen], weights, mass, room)

    def tell(count: int) -> bool:
        return not [age for age, limit in shares(count).items() if limit < LEAST_TOKENS and limit < items[age].tokens]

    return shares(largest(1, len(ages), tell)) if ages else {}


def _shares(
    items: Mapping[int, DigestItem], order: Iterable[int], weights: Mapping[int, float], mass: float, room: int
) -> dict[int, int]:
    """The shares of `room` by weight. What an item does not need goes to the others."""
    left = float(max(0, room))
    out: dict[int, int] = {}
    for age in order:
        weight = weights[age]
        share = min(float(items[age].tokens), left * weight / mass)
        # The rest of a sum of floats is a little off: without the addition the last one would lack a token.
        out[age] = int(share + 1e-6)
        left -= share
        mass = max(mass - weight, 1e-9)
    return out


def _weight(age: int) -> float:
    """The weight of an item by its age in items."""
    return 1.0 / (1.0 + age / HALF_LIFE)


# The age in groups at which an item weighs half: agents come back to what they saw within about that span.
HALF_LIFE = 24
