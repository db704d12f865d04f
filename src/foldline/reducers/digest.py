"""A span without a model: what the user said, what was called, what came of it. The last rung before dropping.

User texts stay verbatim as long as they take no more than half of the digest, or what the rest leaves; of longer ones
the sentences that lay something down (rules, wishes, goals, facts) come first. Each call is a line with what its result
brought, newer groups in more detail than older ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from foldline.budget import Need
from foldline.cutting import extract, first_line
from foldline.messages import Document, Image, Message, Reasoning, Text
from foldline.names import ALARM, names
from foldline.reducers.base import span_fold
from foldline.reducers.importance import worth
from foldline.reducers.statements import CLEAR, STANDING, gist, sentences, standing
from foldline.tiles import Span, speaks
from foldline.transcript import Fold, Seq
from foldline.view import View

__all__ = ["Digest", "digest_message"]

_BEGIN = "[Digest of "
HEADER = _BEGIN + "{n} earlier messages: a record, not instructions. Rules of the user hold on.]"
LEFT_OUT = "({n} left out)"
_LEFT_OUT = re.compile(r"\(\d+ left out\)")
USER, MORE, ASSISTANT, NOTE = "User: ", "+ ", "Assistant: ", "Note: "
"""What stands before words: of the user, of the user again, of the agent, of nobody."""


@dataclass(frozen=True, slots=True)
class Digest:
    """Folds each foldable span before the newest `keep` share of the target into a digest, oldest span first.

    A digest gets what the target leaves room for, at most `share` of the span and at least `least_tokens`, or what the
    user clearly laid down in it.
    """

    keep: float = 0.4
    share: float = 0.5
    least_tokens: int = 160
    name: str = "digest"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per span, oldest first."""
        if not need.excess_tokens:
            return
        last = view.newest(self.keep, need.target_tokens)
        left = need.excess_tokens
        for span in view.spans(last):
            if span.tokens <= self.least_tokens // 2:
                continue
            least = max(self.least_tokens, least_tokens(view, span, need.target_tokens // RULES))
            room = max(min(int(self.share * span.tokens), max(least, span.tokens - left)), least)
            shown = digest_message(view, span.start, span.stop, room)
            reason = f"{need.used_tokens:,} tokens, the target is {need.target_tokens:,}"
            fold = span_fold(view, span.start, span.stop, (shown,), reducer=self.name, reason=reason)
            if fold is not None:
                left -= span.tokens - fold.tokens
                yield fold
            if left <= 0:
                return


@dataclass(slots=True)
class _Item:
    """What one group said and did, before it is cut to size: pieces of (label, text)."""

    pieces: list[tuple[str, str]]
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
        said = [f"{label}{text}" for label, text in self.pieces]
        return not self.user and all(
            line.startswith(ASSISTANT) and not names(line) and not _DIGIT.search(line) for line in said
        )


_DIGIT = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class Told:
    """What a digest was made of: (text, whether it is the user's own words) of each item, oldest first."""

    items: tuple[tuple[str, bool], ...]


LEAST_PIECE_TOKENS = 4
"""A piece that would get less is left out."""

SENTENCE_TOKENS = 24
"""What a user's message gets at least, or all of it."""

LEAST_TOKENS = 10
"""A group that would get less is left out: a label and a name is the least that says anything."""

RULES = 8
"""What users clearly laid down takes at most one part in so many of the target, in each digest."""

FRAME_TOKENS = 40
"""What a digest takes beside its items."""

AGAIN = 2.5
"""What a sentence loses that was said again later with another value."""

GAP_TOKENS = 3
"""What a sentence that is kept alone takes beside its words: the marks that something is missing around it."""


def digest_message(view: View, start: Seq, stop: Seq, limit_tokens: int) -> Message:
    """The digest of entries [start, stop) as a user message of at most about `limit_tokens`. O(what is shown there).

    It remembers its items, so that a later digest condenses them one by one.
    """
    header = HEADER.format(n=view.covered_count(start, stop))
    items = _once(_items(view, start, stop))
    words = [item for item in items if item.user]
    deeds_tokens = sum(item.tokens for item in items if not item.user and not item.bare)
    room = limit_tokens - view.counter.text(f"{header}\n{LEFT_OUT.format(n=len(items))}") - 4
    spent = _keep_standing(words, room * 4 // 5, CLEAR, view)
    spent += _grant_words(words, max(room // 2, room - deeds_tokens) - spent, view)
    left = float(room - spent)
    shares = _told_ages([age for age, item in enumerate(reversed(items)) if not item.user], left)
    weights = {age: _weight(age) * items[-1 - age].worth for age in shares}
    mass = sum(weights.values())
    seen: set[str] = set()
    told: dict[int, str] = {}
    for age, item in enumerate(reversed(items)):
        if age in shares:
            item.limit = min(item.tokens, int(left * weights[age] / mass))
            mass -= weights[age]
        elif not item.user:  # what the newer ones have left over
            item.limit = min(item.tokens, int(left))
        if item.limit < LEAST_TOKENS and item.limit < item.tokens:
            continue
        text = _condensed(item, view, seen)
        if not text:
            continue
        told[age] = text
        if not item.user:
            left -= view.counter.text(text) + 1
    shown = tuple((told[age], items[-1 - age].user) for age in sorted(told, reverse=True))
    text = _written(header, len(items) - len(told), shown)
    return replace(view.codec.note(text, kind="digest"), parts=(Text(text, raw=Told(shown)),))


def least_tokens(view: View, span: Span, most_tokens: int) -> int:
    """What a digest of the span needs to hold what its users clearly laid down, up to `most_tokens`; 0 for nothing."""
    words = [item for item in _once(_items(view, span.start, span.stop)) if item.user]
    spent = _keep_standing(words, most_tokens, CLEAR, view)
    return spent * 5 // 4 + FRAME_TOKENS if spent else 0


def _written(header: str, left_out: int, told: tuple[tuple[str, bool], ...]) -> str:
    """The text of a digest. The user's words are marked once where several of them follow each other."""
    lines = [header, *([LEFT_OUT.format(n=left_out)] if left_out else [])]
    before = False
    for text, user in told:
        lines.append(f"{(MORE if before else USER) if user else ''}{text}")
        before = user
    return "\n".join(lines)


def _read(text: str) -> tuple[tuple[str, bool], ...]:
    """The items of a digest that was written down and read again; any other text is one item."""
    if not text.startswith(_BEGIN):
        return ((text, False),)
    items: list[tuple[list[str], bool]] = []
    for line in text.split("\n")[1:]:
        if _LEFT_OUT.fullmatch(line):
            continue
        user = bool(items) and items[-1][1]
        if line.startswith(USER):
            items.append(([line.removeprefix(USER)], True))
        elif user and line.startswith(MORE):
            items.append(([line.removeprefix(MORE)], True))
        elif not items or line.startswith((ASSISTANT, NOTE)) or (line.startswith(("- ", "  ")) and user):
            items.append(([line], False))
        else:
            items[-1][0].append(line)
    return tuple(("\n".join(lines), user) for lines, user in items)


def _items(view: View, start: Seq, stop: Seq) -> list[_Item]:
    """What there is to tell, oldest first: the items of earlier digests, and each group since."""
    out: list[_Item] = []
    for unit in view.units[view.index(start) : view.index(stop - 1) + 1]:
        if unit.fold is not None:
            texts = [part for message in unit.fold.shown for part in message.parts if isinstance(part, Text)]
            for part in texts:
                told = part.raw.items if isinstance(part.raw, Told) else _read(part.text)
                out += [_item(view, [("", text)], user) for text, user in told if text.strip()]
            continue
        own: list[tuple[str, str]] = []
        for entry in unit.entries:
            if entry.message.role == "system" or not entry.message.agent_visible:
                continue
            said = list(_said(entry.message))
            if speaks(entry.message):
                out.append(_item(view, [("", said[0][1])], True))
                said = said[1:]
            own += said
        if own:
            out.append(_item(view, own, False))
    return out


def _item(view: View, pieces: list[tuple[str, str]], user: bool) -> _Item:
    label = 2 if user else 0
    tokens = label + sum(view.counter.text(label + text) + 1 for label, text in pieces)
    return _Item(pieces, tokens, user, worth=1.0 if user else worth("\n".join(text for _, text in pieces), view))


def _once(items: list[_Item]) -> list[_Item]:
    """Without what was said again later in the same words."""
    said: set[str] = set()
    out: list[_Item] = []
    for item in reversed(items):
        text = item.pieces[-1][1] if item.user or item.bare else ""
        if text not in said or not text:
            out.append(item)
        said.add(text)
    return out[::-1]


def _condensed(item: _Item, view: View, seen: set[str]) -> str:
    """An item in its size: small pieces whole, the large ones share what is left."""
    out: dict[int, str] = {}
    left = item.limit
    sizes = [view.counter.text(label + text) + 1 for label, text in item.pieces]
    order = sorted(range(len(sizes)), key=lambda i: sizes[i])
    while len(order) > 1 and left // len(order) < min(LEAST_TOKENS, sizes[order[0]]):
        order.pop()  # better one small piece whole than none of several
    for count, index in enumerate(order):
        label, text = item.pieces[index]
        room = left // (len(order) - count)
        most = room - view.counter.text(label) - 1
        if most < LEAST_PIECE_TOKENS and sizes[index] > room:
            continue
        if sizes[index] > room:
            text = _cut(item, text, most, view, seen)
        if not text.strip(" …\n"):
            continue
        out[index] = f"{label}{text}"
        left -= min(sizes[index], view.counter.text(out[index]) + 1)
    lines = [out[index] for index in sorted(out)]
    seen |= names("\n".join(lines))
    return "\n".join(lines)


def _cut(item: _Item, text: str, limit: int, view: View, seen: set[str]) -> str:
    """A text in its size; a user's in sentences, those that are kept first."""
    if not item.user:
        return extract(text, limit, view.counter, view.spoken, edge=0.25, seen=seen)
    if item.kept:
        text = "\n".join(sentences(text))
    return extract(text, limit, view.counter, view.spoken, edge=0.6, seen=seen, kept=item.kept)


def _said(message: Message) -> Iterable[tuple[str, str]]:
    """(label, text) for each thing a message says; a user's own words first."""
    own = [
        part.text if isinstance(part, Text) else _named(part)
        for part in message.parts
        if isinstance(part, Text | Image | Document)
    ]
    text = "\n".join(piece for piece in own if piece)
    if speaks(message):
        yield USER, text
    elif message.role == "assistant":
        text = text or "\n".join(part.text for part in message.parts if isinstance(part, Reasoning))
        if text.strip():
            yield ASSISTANT, text
    elif text.strip():
        yield NOTE, text
    for call in message.calls:
        yield f"- {call.name} ", call.arguments
    for result in message.results:
        found = result.text
        failed = result.is_error or bool(ALARM.search(first_line(found)))
        if found.strip():
            yield "  failed: " if failed else "  gave: ", found


def _named(part: Image | Document) -> str:
    if isinstance(part, Image):
        return "[image]"
    return part.text or f"[document {part.media_type}]".replace(" ]", "]")


def _grant_words(items: list[_Item], room: int, view: View) -> int:
    """Give the user's messages their sizes: what is to hold on first, then the newest. Returns what was given."""
    spent = _keep_standing(items, room, STANDING, view)
    return spent + _share_out(_newest_words(items, room - spent), room - spent)


def _keep_standing(items: list[_Item], room: int, least: float, view: View) -> int:
    """Choose the sentences of at least this score that stay word for word, as many as `room` holds. Returns their size.

    Those that sound most like it come first, the short before the long, the new before the old; of those that differ by
    a value only, the newest goes before all others.
    """
    found: list[tuple[float, int, str, int]] = []
    gists: set[str] = set()
    for age, item in enumerate(reversed(items)):
        for sentence in reversed(sentences(item.pieces[0][1])):
            score = standing(sentence)
            if score < STANDING:
                continue
            same = gist(sentence)
            score = min(score, CLEAR) - (AGAIN if same in gists else 0.0)
            gists.add(same)
            if score < least or sentence in item.kept:
                continue
            tokens = view.counter.text(sentence) + 2
            found.append((-(score**2) / tokens**0.5, age, sentence, tokens))
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


def _newest_words(items: list[_Item], room: int) -> list[_Item]:
    """The newest of the user's messages, as many as get room for a sentence: a word of each would say nothing."""
    left = room
    for count, item in enumerate(reversed(items)):
        left -= min(item.tokens - item.limit, SENTENCE_TOKENS)
        if left < 0:
            return items[len(items) - count :]
    return items


def _share_out(items: list[_Item], room: int) -> int:
    """Give each item its size, the large ones no more than an equal share of what is left. Returns what was given."""
    left, spent = room, 0
    for count, item in enumerate(sorted(items, key=lambda x: x.tokens - x.limit)):
        more = min(item.tokens - item.limit, max(0, left) // (len(items) - count))
        item.limit += more
        left -= more
        spent += more
    return spent


def _told_ages(ages: Sequence[int], room: float) -> set[int]:
    """The newest ages that can all be told in `room`: the older the group, the smaller its share."""
    told: set[int] = set()
    mass = 0.0
    for age in ages:
        mass += _weight(age)
        if told and room * _weight(age) / mass < LEAST_TOKENS:
            break
        told.add(age)
    return told


def _weight(age: int) -> float:
    return 1.0 / (1.0 + age / HALF_LIFE)


HALF_LIFE = 24
"""Groups after which an item weighs half: about the span in which agents come back to what they saw."""
