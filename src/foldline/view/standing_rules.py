"""Rules that stay: found as they arrive in words of the user or of a client's harness, kept word for word in folds.

A rule is a sentence of the user ("never push to main"), a file of instructions that a harness sends (AGENTS.md,
CLAUDE.md), a reminder of it, or a field of its environment. Results of tools and words of the model never hold one.
While its message is shown a rule stands there. A fold that covers the message shows it in a list after its own text
(`carried`). The list is bounded (`room_tokens`): a file that is too large is kept by those of its lines that read as
rules, and the newest sentences of the user come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from foldline.codecs.base import Codec
from foldline.codecs.encoding import clean
from foldline.messages import Message, Text
from foldline.text.standing import (
    lifting_sentences,
    lifts,
    qualifies,
    replaces_rule,
    rule_lines,
    standing_sentences,
)
from foldline.tokens import Counter
from foldline.view.harness_texts import (
    EARLIER,
    RULES_HEADER,
    HarnessText,
    Speaker,
    carried_rules,
    harness_texts,
    is_withdrawal,
)
from foldline.view.transcript import Entry, Fold, Seq
from foldline.view.user_words import is_injected

__all__ = [
    "RULES_HEADER",
    "RULES_SHARE",
    "StandingRule",
    "StandingRules",
    "has_rules",
    "rules_tokens",
    "with_rules",
    "without_rules",
]

RULES_SHARE: Final = 0.1
"""The share of the input limit that rules may take in folds, unless set otherwise."""

# Rules that are remembered, beside the bound in tokens: a session of months must not grow by its old ones.
_MOST_RULES: Final = 400

# Characters of a part that are looked at. Harnesses cut their files at 32 to 40 KB (Codex: `project_doc_max_bytes`).
_MOST_CHARS: Final = 200_000

# The share of the room that files and reminders may take: a user's own sentences always find a place.
_FILES_SHARE: Final = 0.75

# The cost of a rule beside its words: the bullet, its source and the line break.
_LINE_TOKENS: Final = 4


@dataclass(frozen=True, slots=True)
class StandingRule:
    """One rule: its words, who gave it, the entry that holds it, and its size.

    `source` is "user", or the name of the file, reminder or setting. `whole` is False for a file that is too large, of
    which only `text` is kept.
    """

    text: str
    source: str
    seq: Seq
    tokens: int
    whole: bool = True


@dataclass(frozen=True, slots=True)
class _Given:
    """A rule as it was found. `lifted` says that it ends or limits an earlier one, whose text this is."""

    speaker: Speaker
    name: str
    text: str
    seq: Seq
    tokens: int
    lifted: str = ""


class StandingRules:
    """The rules in force, kept current with each entry.

    `room_tokens` bounds what folds carry; 0 switches the list off.
    """

    def __init__(self, counter: Counter, room_tokens: int = 0) -> None:
        self._counter = counter
        self._given: list[_Given] = []
        self._ended: dict[str, None] = {}  # in the order in which they ended
        self._room_tokens = room_tokens
        self._kept: tuple[StandingRule, ...] | None = ()

    @property
    def room_tokens(self) -> int:
        """The most tokens that rules may take in folds."""
        return self._room_tokens

    @room_tokens.setter
    def room_tokens(self, tokens: int) -> None:
        if tokens != self._room_tokens:
            self._room_tokens, self._kept = tokens, None

    @property
    def ended(self) -> Set[str]:
        """Sentences that the user has taken back or replaced, the latest of them."""
        return self._ended.keys()

    def empty(self) -> StandingRules:
        """A list without rules, with the same bound."""
        return StandingRules(self._counter, self._room_tokens)

    # --- finding -----------------------------------------------------------------------------------------------------

    def note(self, entry: Entry) -> None:
        """Find the rules in an entry, and end those that it takes back. O(size of its words)."""
        for text in _texts(entry.message):
            if text.speaker == "user":
                self._note_words(text.text, entry.seq)
            elif is_withdrawal(text):
                self._end(given for given in self._given if given.name == text.name)
            elif text.speaker != "reminder" or rule_lines(text.text):
                self._add(_Given(text.speaker, text.name, text.text, entry.seq, 0))

    def _note_words(self, words: str, seq: Seq) -> None:
        rules = standing_sentences(words)
        found = [(words.find(rule), rule, True) for rule in rules]
        found += [(words.find(s), s, False) for s in lifting_sentences(words) if not any(s in rule for rule in rules)]
        for _, sentence, is_rule in sorted(found):
            own = [given for given in self._given if given.speaker == "user"]
            ended = [given for given in own if lifts(sentence, given.text)]
            if is_rule:
                self._end([*ended, *(given for given in own if replaces_rule(sentence, given.text))])
                self._add(_Given("user", "", sentence, seq, 0))
            elif ended:
                self._end(ended)
                # Kept while a fold still shows what it ends, and no longer.
                self._add(_Given("user", "", sentence, seq, 0, lifted=ended[-1].text))
            elif any(qualifies(sentence, given.text) for given in own):
                self._add(_Given("user", "", sentence, seq, 0))

    def _add(self, given: _Given) -> None:
        text = clean(given.text)
        if given.name and given.name != EARLIER:
            self._end(other for other in self._given if (other.speaker, other.name) == (given.speaker, given.name))
        self._ended.pop(text, None)
        self._given.append(replace(given, text=text, tokens=self._counter.text(text) + _LINE_TOKENS))
        del self._given[:-_MOST_RULES]
        self._kept = None

    def _end(self, ended: Iterable[_Given]) -> None:
        gone = {id(given) for given in ended}
        if gone:
            # A file is never looked for among sentences, and its versions are many and large.
            self._ended |= {given.text: None for given in self._given if id(given) in gone and given.speaker == "user"}
            for text in list(self._ended)[:-_MOST_RULES]:
                del self._ended[text]
            self._given = [given for given in self._given if id(given) not in gone]
            self._kept = None

    # --- keeping -----------------------------------------------------------------------------------------------------

    @property
    def kept(self) -> tuple[StandingRule, ...]:
        """The rules that stay, in the order in which they were given, within the bound. O(rules) after a change."""
        if self._kept is None:
            chosen = dict(self._chosen()) if self._room_tokens > 0 else {}
            self._kept = tuple(chosen[at] for at in sorted(chosen))
        return self._kept

    def _chosen(self) -> Iterator[tuple[int, StandingRule]]:
        """The rules within the bound, each with its place among those given."""
        left = self._room_tokens
        files = [(at, given) for at, given in enumerate(self._given) if given.speaker != "user"]
        own = [(at, given) for at, given in enumerate(self._given) if given.speaker == "user" and not given.lifted]
        # What files leave goes to the user's sentences, and the other way round.
        for_files = max(int(_FILES_SHARE * left), left - sum(given.tokens for _, given in own))
        # Settings and reminders are small, and say what holds now: before files.
        for at, given in sorted(files, key=lambda found: (found[1].speaker == "file", -found[0])):
            rule = _fitting(given, for_files, self._counter)
            if rule is not None:
                for_files -= rule.tokens
                left -= rule.tokens
                yield at, rule
        for at, given in reversed(own):
            if given.tokens <= left:
                left -= given.tokens
                yield at, StandingRule(given.text, "user", given.seq, given.tokens)

    def carried(
        self, codec: Codec, start: Seq, stop: Seq, shown: Sequence[Message], before: Iterable[str]
    ) -> tuple[Message, ...]:
        """What a fold over [start, stop) shows, with the rules given there that are not in it already.

        `before` are the texts of folds before it: what ends a rule is kept as long as they show the rule. O(rules and
        texts).
        """
        missing = [rule for rule in self.kept if start <= rule.seq < stop]
        ending = [given for given in self._given if given.lifted and start <= given.seq < stop]
        earlier = "\n".join(before) if ending else ""
        ends = [StandingRule(e.text, "user", e.seq, e.tokens) for e in ending if e.lifted in earlier]
        texts = "\n".join(message.text for message in shown) if missing or ends else ""
        missing = [rule for rule in (*missing, *ends) if rule.text not in texts]
        if not missing:
            return tuple(shown)
        block = _block(missing)
        for at, message in enumerate(shown):
            if message.kind and message.role != "assistant" and len(message.parts) == 1:
                return (*shown[:at], _with_block(codec, message, block), *shown[at + 1 :])
        return (codec.note(block), *shown)


def _texts(message: Message) -> Iterator[HarnessText]:
    """The texts of a message that may hold rules: a user's, and of ours the list of rules alone."""
    if message.role == "assistant" or not message.agent_visible or (message.role != "user" and not message.kind):
        return
    read = carried_rules if message.kind else harness_texts
    for part in message.parts:
        if isinstance(part, Text):
            yield from read(part.text[:_MOST_CHARS])


def has_rules(text: str) -> bool:
    """Whether a part of a user's message is all files, reminders or settings that are kept as rules. O(size)."""
    # With words of the user beside them it says more, and so does a note of ours that comes back.
    if not is_injected(text):
        return False
    found = list(harness_texts(text))
    return bool(found) and all(each.speaker != "user" and each.name != EARLIER for each in found)


def _fitting(given: _Given, room_tokens: int, counter: Counter) -> StandingRule | None:
    """A file, reminder or setting within the room: whole, else by the lines that read as rules."""
    if given.tokens <= room_tokens:
        return StandingRule(given.text, given.name, given.seq, given.tokens)
    if given.speaker == "setting":
        return None
    left = room_tokens - _LINE_TOKENS - counter.text(given.name)
    lines: list[str] = []
    for line in rule_lines(given.text):
        tokens = counter.text(line) + 1
        if tokens <= left:
            lines.append(line)
            left -= tokens
    if not lines:
        return None
    return StandingRule("\n".join(lines), given.name, given.seq, room_tokens - left, whole=False)


def _block(rules: Iterable[StandingRule]) -> str:
    lines = [RULES_HEADER]
    for rule in rules:
        if rule.source == "user":
            lines.append(f"- user: {rule.text}")
        elif "\n" in rule.text:
            lines.append(f"- {rule.source}{'' if rule.whole else ' (its rules)'}:\n{rule.text}")
        else:
            lines.append(f"- {rule.source}: {rule.text}")
    return "\n".join(lines)


def _with_block(codec: Codec, message: Message, block: str) -> Message:
    """A note of ours with the block after its text; what it carries beside its text stays."""
    part = message.parts[0]
    if not isinstance(part, Text):
        return message
    text = f"{part.text}\n{block}"
    note = codec.note(text, role=message.role, kind=message.kind)
    return replace(note, parts=(replace(part, text=text),), user_visible=message.user_visible)


def rules_tokens(folds: Iterable[Fold], counter: Counter) -> int:
    """The size of the rules that folds carry. O(texts of the folds)."""
    texts = (message.text for fold in folds for message in fold.shown if message.kind)
    return sum(counter.text(text[len(without_rules(text)) :]) for text in texts if RULES_HEADER in text)


def without_rules(text: str) -> str:
    """The text of a fold without the rules that it carries: those are kept by themselves. O(size)."""
    if text.startswith(RULES_HEADER):
        return ""
    return text.partition(f"\n{RULES_HEADER}")[0]


def with_rules(texts: Sequence[str], rules: Iterable[StandingRule]) -> str:
    """Texts of folds as one, with one list of rules at its end: what they carry, and these. O(size)."""
    bodies = [without_rules(text) for text in texts]
    lists = [text[len(body) :].partition(f"{RULES_HEADER}\n")[2] for text, body in zip(texts, bodies, strict=True)]
    carried = [found.strip("\n") for found in lists if found.strip()]
    missing = [rule for rule in rules if not any(rule.text in found for found in carried)]
    if missing:
        carried.append(_block(missing).partition("\n")[2])
    body = "\n\n".join(filter(str.strip, bodies))
    return "\n".join(filter(None, (body, RULES_HEADER, *carried))) if carried else body
