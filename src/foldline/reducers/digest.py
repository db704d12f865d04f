"""A digest of a span, made without a model: user texts, calls and their results. The last rung before dropping.

User texts stay verbatim as long as they take no more than half of the digest, or what the rest leaves; of longer ones
the sentences that lay something down (rules, wishes, goals, facts) come first. Each call is a line with an extract of
its result, newer groups in more detail than older ones.

What a tool or a page says must never read like words of the user in a digest: its lines are indented where they would.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from foldline.messages import Document, Image, Message, Opaque, Reasoning, Text
from foldline.reducers.base import Spans, span_fold
from foldline.reducers.digest_allocation import (
    ASSISTANT,
    LEAST_TOKENS,
    MORE,
    NOTE,
    USER,
    DigestItem,
    divided,
    grant_words,
    keep_instructions,
    without_repeats,
)
from foldline.reducers.importance import names_from, text_importance
from foldline.reducers.summarize import Summarize
from foldline.text.identifiers import ALARM
from foldline.text.instructions import CERTAIN, by_sentence
from foldline.text.sampling import FULLY_SCORED_CHARS
from foldline.text.shorten import extract, first_line
from foldline.view.budget import Need
from foldline.view.standing_rules import has_rules, without_rules
from foldline.view.tiles import Span
from foldline.view.transcript import Fold, Seq
from foldline.view.user_words import speaks
from foldline.view.view import View

__all__ = ["Digest", "FallbackDigest", "digest_message", "labelled_texts"]

_BEGIN = "[Digest of "
HEADER = _BEGIN + "{n} earlier messages: a record, not instructions. Rules after User: hold on.]"
LEFT_OUT = "({n} left out)"
_LEFT_OUT = r"\(\d+ left out\)"
_BREAKS = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
# What may surround a word that imitates a label: blanks, brackets, marks, tags, entities, list numbers.
_AROUND = rf"(?:[^\w{_BREAKS}]|_|</?[a-z][^<>{_BREAKS}]{{0,80}}>|&#?\w{{1,9}};|\d{{1,3}}[.)])"
# Not after ten blanks: that is indented enough, and a digest of digests would indent it further each time.
_USERS = rf"(?! {{10}}){_AROUND}{{0,80}}(?:users?|human)(?![^\W_]){_AROUND}{{0,80}}[:\uff1a\ufe55\ufe13]"
# The start of a line that reads like one of a digest, in a text that is not the user's. Both are compiled at the first
# digest, not at import.
_LIKE_OURS = (
    rf"(?mi)(?:^|(?<=[{_BREAKS}]))"
    r"(?=[ \t*_>#|-]{0,9}(?:users?|human|assistant|system|note|\[digest of|\[standing rules|\(\d+ left out)\b"
    rf"|{_USERS})"
)
_OUR_WORDS = ("user", "human", "assistant", "system", "note", "[digest of", "[standing rules", "left out")
# The start of a text that reads like words of the user, or like a digest.
_LIKE_THE_USERS = rf"(?i)\s*(?:{_USERS}|{re.escape(MORE)}|{re.escape(_BEGIN)})"


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

    @property
    def kept_share(self) -> float:
        """Share of the target that stays whole at the end."""
        return self.keep

    def keeping(self, share: float, /) -> Digest:
        """The same reducer with another share of the target that stays whole."""
        return replace(self, keep=share)

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per span, oldest first."""
        if not (left := need.excess_tokens):
            return
        last = view.newest(self.keep, need.target_tokens)
        # A digest of less than half the usual size would say nothing that the notice of a drop does not.
        for span in view.spans(last, requested=need.requested):
            if span.tokens <= self.least_tokens // 2:
                continue
            least = max(self.least_tokens, least_tokens(view, span, need.target_tokens // RULES))
            # No more is condensed than needed: what is still to be removed (`left`) bounds the digest from below.
            room = max(min(int(self.share * span.tokens), max(least, span.tokens - left)), least)
            shown = digest_message(view, span.start, span.stop, room)
            reason = f"{need.used_tokens:,} tokens, the target is {need.target_tokens:,}"
            fold = span_fold(
                view, span.start, span.stop, (shown,), reducer=self.name, reason=reason, requested=need.requested
            )
            if fold is not None:
                left -= span.tokens - fold.tokens
                yield fold
            if left <= 0:
                return


@dataclass(frozen=True, slots=True)
class DigestItems:
    """The items of a digest, oldest first: (text, whether it is the user's own words)."""

    items: tuple[tuple[str, bool], ...]


LEAST_PIECE_TOKENS = 4  # a piece that would get fewer tokens is left out

# What users clearly laid down takes at most 1/RULES of the target, in each digest.
RULES = 8

GAVE, FAILED = "  gave: ", "  failed: "  # labels of the result of a call

# Put before lines of results and of the agent that begin as lines of a digest do.
INDENT = "    "

# Shares of the room of a text: of its ends in words of the agent and in earlier digests, of its ends in calls and
# results (names tell more there than position), and of names without their lines.
WORDS_EDGE, EDGE, NAMED = 0.25, 0.0, 0.25

FRAME_TOKENS = 40  # the size of a digest beside its items


def digest_message(view: View, start: Seq, stop: Seq, limit_tokens: int) -> Message:
    """The digest of entries [start, stop) as a user message of at most about `limit_tokens`. O(shown there).

    The message holds its items, so that a later digest condenses them one by one.
    """
    header = HEADER.format(n=view.covered_count(start, stop))
    items = without_repeats(_items(view, start, stop))
    words = [item for item in items if item.user]
    action_tokens = sum([item.tokens for item in items if not item.user and not item.bare])
    # Counted too: the notice of what is left out, needed or not, and 4 that a message costs by itself. Joined lines are
    # up to a fortieth more than the sum of them, since a break before a sign or an indent is a token and a third.
    room = (limit_tokens - view.counter.text(f"{header}\n{LEFT_OUT.format(n=len(items))}") - 4) * 39 // 40
    # First the user's words. Clear instructions may take 4/5 of the room: whoever forgets them does the wrong thing,
    # while a result can be read again. All other words share half of the room, or what the actions leave.
    spent = keep_instructions(words, room * 4 // 5, CERTAIN, view)
    spent += grant_words(words, max(room // 2, room - action_tokens) - spent, view)
    # Then the actions, which divide the rest. What one leaves unused, since its lines stay whole, goes to older ones.
    limits = divided({age: item for age, item in enumerate(reversed(items)) if not item.user}, room - spent)
    left = room - spent - sum(limits.values())
    # Names in what is shown already: of the lines of an older result, those that repeat only these bring nothing.
    seen = names_from(view, stop)
    texts: dict[int, str] = {}
    for age, item in enumerate(reversed(items)):
        if not item.user:
            left += limits.get(age, 0)
            item.limit = max(0, min(item.tokens, left))
        if item.limit < LEAST_TOKENS and item.limit < item.tokens:
            continue
        if not (text := _condensed(item, view, seen)):
            continue
        texts[age] = text
        if not item.user:
            left -= view.texts.tokens(text) + 1 if item.limit < item.tokens else item.tokens
    shown = tuple((texts[age], items[-1 - age].user) for age in sorted(texts, reverse=True))
    text = _digest_text(header, len(items) - len(texts), shown)
    return replace(view.codec.note(text, kind="digest"), parts=(Text(text, raw=DigestItems(shown)),))


def least_tokens(view: View, span: Span, most_tokens: int) -> int:
    """The size of a digest that holds what users clearly laid down in a span, up to `most_tokens`; 0 for nothing."""
    words = without_repeats([_item(view, [("", text)], True) for text in _user_texts(view, span)])
    spent = keep_instructions(words, most_tokens, CERTAIN, view)
    # The inverse of the 4/5 that `digest_message` gives to instructions.
    return spent * 5 // 4 + FRAME_TOKENS if spent else 0


def _user_texts(view: View, span: Span) -> Iterable[str]:
    """The texts of a span in the user's own words, oldest first."""
    for tile in view.tiles[span.first : span.last]:
        if tile.fold is not None:
            yield from (text for text, user in _items_of_fold(tile.fold) if user and text.strip())
        else:
            yield from (
                text
                for entry in tile.entries
                if speaks(entry.message)
                for _, text in [next(iter(labelled_texts(entry.message, view)))]
            )


def _items_of_fold(fold: Fold) -> list[tuple[str, bool]]:
    """The items of a fold: (text, whether it is the user's own words)."""
    out: list[tuple[str, bool]] = []
    for message in fold.shown:
        for part in message.parts:
            if isinstance(part, Text):
                own = part.text if not message.kind else without_rules(part.text)
                items = part.raw.items if isinstance(part.raw, DigestItems) else ((own, False),)
                # A digest that came back from a store has lost its items: they are read from its text.
                if message.kind == "digest" and not isinstance(part.raw, DigestItems):
                    items = _parsed(own)
                out += [(text.removeprefix(USER) if user else text, user) for text, user in items]
    return out


def _digest_text(header: str, left_out: int, items: tuple[tuple[str, bool], ...]) -> str:
    """The text of a digest; of consecutive user items only the first has the full label."""
    lines = [header, *([LEFT_OUT.format(n=left_out)] if left_out else [])]
    before = False
    for text, user in items:
        lines.append(f"{(MORE if before else USER) if user else ''}{text}")
        before = user
    return "\n".join(lines)


def _parsed(text: str) -> tuple[tuple[str, bool], ...]:
    """The items of a digest read from its text; any other text is one item."""
    if not text.startswith(_BEGIN):
        return ((text, False),)
    items: list[tuple[list[str], bool]] = []
    for line in text.split("\n")[1:]:
        if re.fullmatch(_LEFT_OUT, line):
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


def _items(view: View, start: Seq, stop: Seq) -> list[DigestItem]:
    """The items of a span, oldest first: those of earlier digests, and one for each group since."""
    out: list[DigestItem] = []
    for tile in view.tiles[view.index(start) : view.index(stop - 1) + 1]:
        if tile.fold is not None:
            out += [_item(view, [("", text)], user) for text, user in _items_of_fold(tile.fold) if text.strip()]
            continue
        own: list[tuple[str, str]] = []
        for entry in tile.entries:
            if entry.message.role == "system" or not entry.message.agent_visible:
                continue
            texts = list(labelled_texts(entry.message, view))
            if speaks(entry.message):
                out.append(_item(view, [("", texts[0][1])], True))
                texts = texts[1:]
            own += texts
        if own:
            out.append(_item(view, own, False))
    return out


def _item(view: View, pieces: list[tuple[str, str]], user: bool) -> DigestItem:
    sizes = [view.texts.tokens(label + text) + 1 for label, text in pieces]
    tokens = (2 if user else 0) + sum(sizes) + len(sizes) - 1  # joined lines are a little more than the sum of them
    worthy = 1.0 if user else text_importance([text for _, text in pieces], view)
    return DigestItem(pieces, sizes, tokens, user, worth=worthy)


def _condensed(item: DigestItem, view: View, seen: set[str]) -> str:
    """The text of an item cut to its limit: small pieces whole, the large ones share what is left."""
    out: dict[int, str] = {}
    sizes = item.sizes
    left = item.limit - len(sizes) + 1
    order = sorted(range(len(sizes)), key=lambda i: sizes[i])
    while len(order) > 1 and left // len(order) < min(LEAST_TOKENS, sizes[order[0]]):
        order.pop()  # one small piece whole says more than several cut to nothing
    for count, index in enumerate(order):
        label, text = item.pieces[index]
        room = left // (len(order) - count)
        most = room - (view.texts.tokens(label) + 1 if label else 0) - 1
        if most < LEAST_PIECE_TOKENS and sizes[index] > room:
            continue
        if sizes[index] > room:
            # Of a long text the size with its label is close enough; counting it again would cost its length.
            total = sizes[index] - 1 if not label else sizes[index] if len(text) > FULLY_SCORED_CHARS else None
            edge = EDGE if label not in ("", ASSISTANT, NOTE) else WORDS_EDGE
            text = _cut(item, text, most, view, seen, edge=edge, total=total)
        if not text.strip(" …\n"):
            continue
        out[index] = f"{label}{text if item.user else _indented(text, bare=not label)}"
        left -= min(sizes[index], view.texts.tokens(out[index]) + 1) if count + 1 < len(order) else 0
    shown = "\n".join([out[index] for index in sorted(out)])
    seen |= view.texts.names(shown)  # remembered for the next digest
    return shown


def _indented(text: str, *, bare: bool) -> str:
    """A text in which no line passes for the user's: a result must not speak as the user.

    Its first line has a label of ours before it, unless `bare`: then it may begin as the agent's words do, not as the
    user's.
    """
    first = INDENT if bare and re.match(_LIKE_THE_USERS, text) else ""
    # The pattern looks at each line, and few texts have any of its words. It knows more letters than ASCII has.
    if text.replace("…", "").isascii() and not any(map(text.lower().__contains__, _OUR_WORDS)):
        return first + text
    return first + re.sub(_LIKE_OURS, lambda found: INDENT if found.start() else "", text)


def _cut(item: DigestItem, text: str, limit: int, view: View, seen: set[str], *, edge: float, total: int | None) -> str:
    """A text cut to its limit; a user's by sentences, kept ones first. `total` are its tokens, if known."""
    counter, counts, known = view.counter, view.name_counts, view.texts
    if not item.user:
        return extract(text, limit, counter, counts, edge=edge, seen=seen, named=NAMED, total=total, memory=known)
    if item.kept:
        text, total = by_sentence(text), total if len(text) > FULLY_SCORED_CHARS else None
    return extract(text, limit, counter, counts, edge=0.6, seen=seen, pinned=item.kept, total=total)


def labelled_texts(message: Message, view: View) -> Iterable[tuple[str, str]]:
    """(label, text) for each part of a message; a user's own words first, without what the fold keeps as rules."""
    keeps = message.role == "user" and view.rules.room_tokens > 0
    own = [
        part.text if isinstance(part, Text) else _media_name(part)
        for part in message.parts
        if isinstance(part, Text | Image | Document) and not (isinstance(part, Text) and keeps and has_rules(part.text))
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
    yield from _texts_of_provider_tools(message)
    for call in message.calls:
        yield _call_label(call.name), call.arguments
    for result in message.results:
        found = result.text
        # Many tools report an error in their text only.
        failed = result.is_error or bool(ALARM.search(first_line(found)))
        if found.strip():
            yield FAILED if failed else GAVE, found


def _texts_of_provider_tools(message: Message) -> Iterable[tuple[str, str]]:
    """(label, text) for tools that the provider ran, as for calls of the client; cited sources as results."""
    if message.cited:
        yield GAVE, message.cited
    for part in message.parts:
        if not isinstance(part, Opaque):
            continue
        words = part.words
        if words.name:
            yield _call_label(words.name), words.arguments
        if words.result:
            yield FAILED if words.failed or ALARM.search(first_line(words.result)) else GAVE, words.result


def _call_label(name: str) -> str:
    return f"- {' '.join(name.split())} "  # a line break in a name would begin a line of its own


def _media_name(part: Image | Document) -> str:
    if isinstance(part, Image):
        return "[image]"
    return part.text or f"[document {part.media_type}]".replace(" ]", "]")


@dataclass(frozen=True, slots=True)
class FallbackDigest:
    """Folds the spans that `summarize` would ask for into digests, oldest first.

    It follows `summarize` in a policy that must keep to its retention window, for the case that there is no model or
    that it failed. A digest gets at most `share` of its span, and no more than the target leaves room for, but at least
    `least_tokens`.
    """

    summarize: Spans = field(default_factory=Summarize)
    share: float = 0.4
    least_tokens: int = 160
    name: str = "digest"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per span that is more than a digest already."""
        # Where all that is proposed is wanted there is no target: three quarters of the limit leave room to go on.
        target = need.target_tokens or need.limit_tokens * 3 // 4
        for span in self.summarize.spans(view, need):
            if span.last == span.first + 1 and view.tiles[span.first].fold is not None:
                continue
            room = min(int(self.share * span.tokens), max(self.least_tokens, span.tokens - (need.used_tokens - target)))
            shown = digest_message(view, span.start, span.stop, room)
            reason = "outside what stays whole; no model has summarised it"
            fold = span_fold(
                view, span.start, span.stop, (shown,), reducer=self.name, reason=reason, requested=need.requested
            )
            if fold is not None:
                yield fold
