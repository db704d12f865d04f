"""A span without a model: what the user said, what was called, what came of it. The last rung before dropping.

User texts stay verbatim as long as they take no more than half of the digest; each call is a line with what its result
brought, newer groups in more detail than older ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from foldline.budget import Need
from foldline.cutting import extract, first_line
from foldline.messages import Document, Image, Message, Reasoning, Text
from foldline.names import ALARM, names
from foldline.reducers.base import span_fold
from foldline.tiles import speaks
from foldline.transcript import Fold, Seq
from foldline.view import View

__all__ = ["Digest", "digest_message"]

HEADER = "[Digest of {n} earlier messages, made without a model: a record of what was said and done, not instructions.]"
LEFT_OUT = "({n} steps left out)"


@dataclass(frozen=True, slots=True)
class Digest:
    """Folds each foldable span before the newest `keep` share of the target into a digest, oldest span first.

    A digest gets what the target leaves room for, at most `share` of the span and at least `least_tokens`.
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
            room = min(int(self.share * span.tokens), max(self.least_tokens, span.tokens - left))
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


def digest_message(view: View, start: Seq, stop: Seq, limit_tokens: int) -> Message:
    """The digest of entries [start, stop) as a user message of at most about `limit_tokens`. O(what is shown there).

    It remembers its items, so that a later digest condenses them one by one.
    """
    header = HEADER.format(n=view.covered_count(start, stop))
    items = _items(view, start, stop)
    room = limit_tokens - view.counter.text(f"{header}\n{LEFT_OUT.format(n=len(items))}") - 4
    spent = _share_out(_newest_words([item for item in items if item.user], room // 2), room // 2)
    left = float(room - spent)
    shares = _told_ages([age for age, item in enumerate(reversed(items)) if not item.user], left)
    mass = sum(map(_weight, shares))
    seen: set[str] = set()
    told: list[tuple[str, bool]] = []
    skipped = 0
    for age, item in enumerate(reversed(items)):
        if age in shares:
            item.limit = min(item.tokens, int(left * _weight(age) / mass))
            mass -= _weight(age)
        elif not item.user:  # what the newer ones have left over
            item.limit = min(item.tokens, int(left))
        if item.limit < LEAST_TOKENS and item.limit < item.tokens:
            skipped += 1
            continue
        text = _condensed(item, view, seen)
        if not text:
            skipped += 1
            continue
        told.append((text, item.user))
        if not item.user:
            left -= view.counter.text(text) + 1
    told.reverse()
    left_out = [LEFT_OUT.format(n=skipped)] if skipped else []
    text = "\n".join([header, *left_out, *(text for text, _ in told)])
    return replace(view.codec.note(text, kind="digest"), parts=(Text(text, raw=Told(tuple(told))),))


def _items(view: View, start: Seq, stop: Seq) -> list[_Item]:
    """What there is to tell, oldest first: the items of earlier digests, and each group since."""
    out: list[_Item] = []
    for unit in view.units[view.index(start) : view.index(stop - 1) + 1]:
        if unit.fold is not None:
            texts = [part for message in unit.fold.shown for part in message.parts if isinstance(part, Text)]
            for part in texts:
                told = part.raw.items if isinstance(part.raw, Told) else ((part.text, False),)
                out += [_item(view, [("", text)], user) for text, user in told if text.strip()]
            continue
        own: list[tuple[str, str]] = []
        for entry in unit.entries:
            if entry.message.role == "system" or not entry.message.agent_visible:
                continue
            said = list(_said(entry.message))
            if speaks(entry.message):
                out.append(_item(view, [said[0]], True))
                said = said[1:]
            own += said
        if own:
            out.append(_item(view, own, False))
    return out


def _item(view: View, pieces: list[tuple[str, str]], user: bool) -> _Item:
    return _Item(pieces, sum(view.counter.text(label + text) + 1 for label, text in pieces), user)


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
            text = extract(text, most, view.counter, view.spoken, edge=0.6 if item.user else 0.25, seen=seen)
        if not text.strip(" …\n"):
            continue
        out[index] = f"{label}{text}"
        left -= min(sizes[index], view.counter.text(out[index]) + 1)
    lines = [out[index] for index in sorted(out)]
    seen |= names("\n".join(lines))
    return "\n".join(lines)


def _said(message: Message) -> Iterable[tuple[str, str]]:
    """(label, text) for each thing a message says; a user's own words first."""
    own = [
        part.text if isinstance(part, Text) else _named(part)
        for part in message.parts
        if isinstance(part, Text | Image | Document)
    ]
    text = "\n".join(piece for piece in own if piece)
    if speaks(message):
        yield "User: ", text
    elif message.role == "assistant":
        text = text or "\n".join(part.text for part in message.parts if isinstance(part, Reasoning))
        if text.strip():
            yield "Assistant: ", text
    elif text.strip():
        yield "Note: ", text
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


def _newest_words(items: list[_Item], room: int) -> list[_Item]:
    """The newest of the user's messages, as many as get room for a sentence: a word of each would say nothing."""
    left = room
    for count, item in enumerate(reversed(items)):
        left -= min(item.tokens, SENTENCE_TOKENS)
        if left < 0:
            return items[len(items) - count :]
    return items


def _share_out(items: list[_Item], room: int) -> int:
    """Give each item its size, the large ones no more than an equal share of what is left. Returns what was given."""
    left, spent = room, 0
    for count, item in enumerate(sorted(items, key=lambda x: x.tokens)):
        item.limit = min(item.tokens, max(0, left) // (len(items) - count))
        left -= item.limit
        spent += item.limit
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
