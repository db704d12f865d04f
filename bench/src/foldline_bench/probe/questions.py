"""Questions about a recorded session whose right answers the recording itself has, so that no second model judges.

A question is asked at a point of a session: before one of its recorded replies, about what stands before it.

needle    a line far back, with one name or number left out that a later reply uses: what stood there?
why       a call far back: which error, or which words of a user, stood right before it?
next      which call came next?

All are multiple choice, with wrong options from the same session. The same sessions and seed give the same questions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Final

from foldline.messages import ToolCall
from foldline.replay.recall import FAR_MESSAGES, MeasuredMessage, MeasuredSession, facts
from foldline.text.formatting import plain_line

__all__ = ["KINDS", "OPTIONS", "Derivation", "Question", "choose_questions", "derive_question", "shares"]

KINDS: Final = ("needle", "why", "next")

OPTIONS: Final = 4
"""Options of a question, where the session has enough that are plausible; three at least."""

_LEAST_OPTIONS: Final = 3
_BLANK: Final = "____"
_LINE_CHARS: Final = 300
_OPTION_CHARS: Final = 160
_VALUE_CHARS: Final = 60
_LEAST_LETTERS: Final = 16  # of what is left of a line: less says too little about which line is meant
_NEAREST: Final = 12  # wrong options are drawn from the most similar ones
_MOST_POINTS: Final = 60  # of one session; the cost of deriving is bounded by it
# A line that reports an error, as runtimes, compilers and shells print it; code that handles errors is none.
_ERROR: Final = re.compile(
    r"^\W{0,4}(?:\w+\.)*\w*(?:Error|Exception)\b\s*[:(\]]|^\W{0,4}(?:error|fatal|failed|failure)\b|"
    r"\berror(?: \w+)?: |: (?:cannot|failed|fatal)\b|"
    r"\b(?:no such file|command not found|permission denied|is not recognized|timed out|does not exist)\b",
    re.IGNORECASE,
)
_CODE: Final = re.compile(r"^\d+[:|→\t ]|[{(;,]$|^(?:raise|except|throw|catch|return|print|#|//)\b|\{e\}|=> |= ")
_SYSTEM: Final = frozenset({"system", "developer"})


@dataclass(frozen=True, slots=True)
class Question:
    """One question; `options[right]` is the answer, and `evidence` the recorded line or call that shows it.

    It is asked after the first `point` messages. `about` says what is asked for: a path, number, identifier or error; a
    wish; a call. The answer stands `back_tokens` before the point (0 for a call that is still to come).
    """

    session: str
    kind: str
    about: str
    point: int
    back_tokens: int
    text: str
    options: tuple[str, ...]
    right: int
    evidence: str

    @property
    def id(self) -> str:
        """Its name among all questions of a run."""
        return f"{self.session}/{self.point}/{self.kind}"

    @property
    def chance(self) -> float:
        """The share of right answers among blind guesses."""
        return 1 / len(self.options)


@dataclass(frozen=True, slots=True)
class _Cause:
    """An error, or the words of a user, in the message at `place`."""

    place: int
    about: str
    words: str


class Derivation:
    """What questions about one session are made of: its sizes, calls, errors and wishes. O(size of the session)."""

    def __init__(self, recording: MeasuredSession) -> None:
        self.recording = recording
        self.history = recording.history
        # Tokens before each message.
        self.positions = tuple(accumulate((message.tokens for message in self.history), initial=0))
        self.calls: dict[int, str] = {}
        for place, message in enumerate(self.history):
            calls = recording.codec.read(message.wire).calls if message.role == "assistant" else ()
            if calls:
                self.calls[place] = _call_words(calls[0])
        self.causes = tuple(_causes(self.history))

    def points(self, least_tokens: int) -> list[int]:
        """The replies before which at least `least_tokens` are recorded."""
        starts = [(index, reply.start) for index, reply in enumerate(self.recording.replies)]
        return [index for index, start in starts if self.positions[start] >= least_tokens]

    def back_tokens(self, place: int, point: int) -> int:
        """Tokens between the message at a place and the point; 0 within the last few messages."""
        return self.positions[point] - self.positions[place + 1] if point - place >= FAR_MESSAGES else 0


def derive_question(found: Derivation, reply: int, kind: str, *, far_tokens: int, seed: int) -> Question | None:
    """Return a question of a kind at the point before a reply; None if the session has none there.

    What a needle or a why asks for stands at least `far_tokens` back. O(messages + references).
    """
    session, point = found.recording.session.name, found.recording.replies[reply].start
    # By a text: its hash is the same in every process.
    return _DERIVED[kind](_Attempt(found, reply, kind, far_tokens, Random(f"{seed}/{session}/{point}/{kind}")))


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What one question is made of: a session, the reply before which it is asked, the distance, the random choices."""

    found: Derivation
    reply: int
    kind: str
    far_tokens: int
    chance: Random

    @property
    def point(self) -> int:
        return self.found.recording.replies[self.reply].start

    def is_far(self, place: int) -> bool:
        return place < self.point and self.found.back_tokens(place, self.point) >= self.far_tokens

    def question(
        self, about: str, text: str, right: str, wrong: Iterable[str], *, evidence: str, place: int | None = None
    ) -> Question:
        options = [right, *wrong]
        self.chance.shuffle(options)
        return Question(
            session=self.found.recording.session.name,
            kind=self.kind,
            about=about,
            point=self.point,
            back_tokens=0 if place is None else self.found.back_tokens(place, self.point),
            text=text,
            options=tuple(options),
            right=options.index(right),
            evidence=evidence,
        )


def shares(count: int) -> dict[str, int]:
    """How many of so many questions are of each kind."""
    return {kind: count // len(KINDS) + (number < count % len(KINDS)) for number, kind in enumerate(KINDS)}


def choose_questions(
    sessions: Sequence[Derivation], *, count: int, least_tokens: int, far_tokens: int, seed: int
) -> tuple[Question, ...]:
    """Return at most `count` questions, as many of each kind as far as the sessions have them.

    Sessions take turns, so that a long one does not ask most of the questions. Points with `least_tokens` before them
    are drawn at random. O(points · messages).
    """
    left = shares(count)
    chance = Random(f"{seed}")
    waiting: list[tuple[Derivation, Iterator[int]]] = []
    for found in chance.sample(list(sessions), len(sessions)):
        points = found.points(least_tokens)
        waiting.append((found, iter(chance.sample(points, min(len(points), _MOST_POINTS)))))
    asked: list[Question] = []
    used: set[str] = set()
    while waiting and any(left.values()):
        for each in list(waiting):
            found, replies = each
            reply = next(replies, None)
            if reply is None:
                waiting.remove(each)
                continue
            for kind in [kind for kind in KINDS if left[kind]]:
                question = derive_question(found, reply, kind, far_tokens=far_tokens, seed=seed)
                # The same line or call at two points would count twice.
                if question is None or (again := f"{question.session}/{kind}/{question.evidence}") in used:
                    continue
                used.add(again)
                asked.append(question)
                left[kind] -= 1
    return tuple(sorted(asked, key=lambda question: (question.session, question.point, KINDS.index(question.kind))))


# --- needles ----------------------------------------------------------------------------------------------------------


def _needle(attempt: _Attempt) -> Question | None:
    found = attempt.found
    # Only what the rest of the recording uses: to keep a line that nobody needs again is no merit.
    needed = {
        (ref.source, ref.fact, ref.line)
        for refs in found.recording.references[attempt.reply :]
        for ref in refs
        if attempt.is_far(ref.source)
    }
    candidates = sorted(needed)
    attempt.chance.shuffle(candidates)
    lines = frozenset[str]().union(*(message.lines for message in found.history[: attempt.point]))
    for source, fact, line in candidates:
        cloze = _cloze(line, fact)
        if cloze is None or _is_ambiguous(cloze, fact, lines):
            continue
        near = _alike(found.history[: attempt.point], fact, line, lines)
        if len(near) < _LEAST_OPTIONS - 1:
            continue
        about = "error" if _is_error(line) else _sort_of(fact)
        text = (
            f"Earlier in the session, {_where(found.history[source])} has this line, with one part left out:\n\n"
            f"    {cloze}\n\nWhat stands at {_BLANK}?"
        )
        wrong = attempt.chance.sample(near, min(OPTIONS - 1, len(near)))
        return attempt.question(about, text, fact, wrong, evidence=line, place=source)
    return None


def _cloze(line: str, fact: str) -> str | None:
    """The line with a blank for the fact; None if what is left does not tell which line is meant."""
    if len(line) > _LINE_CHARS:
        return None
    cloze = _whole(fact).sub(_BLANK, line)
    rest = cloze.replace(_BLANK, " ")
    # The rest must not have the answer, and enough letters of its own.
    if cloze == line or fact in rest or sum(map(str.isalnum, rest)) < _LEAST_LETTERS:
        return None
    return cloze


def _whole(fact: str) -> re.Pattern[str]:
    """The fact where it is no part of a longer name."""
    return re.compile(rf"(?<![A-Za-z0-9_]){re.escape(fact)}(?![A-Za-z0-9_])")


def _is_ambiguous(cloze: str, fact: str, lines: frozenset[str]) -> bool:
    """Whether another line of the session has the same words around something else."""
    before, _, after = cloze.partition(_BLANK)
    after = after.replace(_BLANK, fact)
    return any(
        len(line) > len(before) + len(after)
        and line.startswith(before)
        and line.endswith(after)
        and line[len(before) : len(line) - len(after)] != fact
        for line in lines
    )


def _alike(history: Sequence[MeasuredMessage], fact: str, line: str, lines: frozenset[str]) -> list[str]:
    """Other facts of the same sort, the most similar in form, that do not fit the line too."""
    sort, ending = _sort_of(fact), fact.rpartition(".")[2]
    pool = frozenset[str]().union(*(message.facts for message in history)) - facts(line)
    ranked = sorted(
        (other for other in pool if _sort_of(other) == sort and other not in line and fact not in other),
        key=lambda other: (other.rpartition(".")[2] != ending, abs(len(other) - len(fact)), other),
    )
    around = _whole(fact).split(line)
    return [other for other in ranked[: 2 * _NEAREST] if other.join(around) not in lines][:_NEAREST]


def _sort_of(fact: str) -> str:
    return "path" if "/" in fact else "number" if fact.isdigit() else "identifier"


def _where(message: MeasuredMessage) -> str:
    places = {"tool": "the result of a tool", "user": "a message of the user", "assistant": "a message of the agent"}
    return places.get(message.role, "the system text")


# --- causes -----------------------------------------------------------------------------------------------------------


def _is_error(line: str) -> bool:
    return _ERROR.search(line) is not None and _CODE.search(line) is None


def _causes(history: Sequence[MeasuredMessage]) -> Iterator[_Cause]:
    """The errors in results and the wishes of users: the last error line of a message, or its first line of words."""
    for place, message in enumerate(history):
        if message.role in _SYSTEM or message.role == "assistant":
            continue
        lines = [line.strip() for line in message.text.splitlines() if line.strip()]
        error = next((line for line in reversed(lines) if _is_error(line)), None)
        # Some agents send results as messages of the user: an error among many lines is one of those.
        if message.role == "tool" or (error is not None and len(lines) > 1):
            if error is not None:
                yield _Cause(place, "error", plain_line(error, _OPTION_CHARS))
        elif wish := next((line for line in lines if line[0].isalnum()), None):
            yield _Cause(place, "wish", plain_line(wish, _OPTION_CHARS))


def _why(attempt: _Attempt) -> Question | None:
    found, chance = attempt.found, attempt.chance
    known = [cause for cause in found.causes if cause.place < attempt.point]
    # The cause is what stands right before the reply that acts: an older one is no certain cause.
    causes = {cause.place: cause for cause in known}
    made = [words for place, words in found.calls.items() if place < attempt.point]
    candidates = [(place, words) for place, words in found.calls.items() if place - 1 in causes]
    chance.shuffle(candidates)
    for place, words in candidates:
        if made.count(words) != 1 or not attempt.is_far(place):
            continue
        cause = causes[place - 1]
        others = sorted({other.words for other in known} - {cause.words})
        # Of the same sort first: among errors a wish would be recognised by its form.
        same = {other.words for other in known if other.about == cause.about}
        chance.shuffle(others)
        others.sort(key=lambda other: other not in same)
        if len(others) < _LEAST_OPTIONS - 1:
            continue
        text = f"Earlier in the session, the agent made this call:\n\n    {words}\n\nWhat stood right before it?"
        wrong = others[: OPTIONS - 1]
        return attempt.question(cause.about, text, cause.words, wrong, evidence=f"{cause.words}\n{words}", place=place)
    return None


# --- the next call ----------------------------------------------------------------------------------------------------


def _next(attempt: _Attempt) -> Question | None:
    found = attempt.found
    place = next((place for place in found.recording.replies[attempt.reply] if place in found.calls), None)
    if place is None:
        return None
    right = found.calls[place]
    # Calls near the point: what the agent did long before, or does long after, is easily told from what comes next.
    near = sorted(found.calls, key=lambda other: abs(other - place))
    others = [words for words in dict.fromkeys(found.calls[other] for other in near) if words != right][:_NEAREST]
    if len(others) < _LEAST_OPTIONS - 1:
        return None
    wrong = attempt.chance.sample(others, min(OPTIONS - 1, len(others)))
    text = "Which of these calls did the agent make next, right after the end of the session as shown?"
    return attempt.question("call", text, right, wrong, evidence=right)


def _call_words(call: ToolCall) -> str:
    """A call on one line: its name, and the first words of each argument."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = call.arguments
    if not isinstance(arguments, Mapping):
        return plain_line(f"{call.name}({plain_line(str(arguments), _VALUE_CHARS)})", _OPTION_CHARS)
    values = (f"{name}={plain_line(str(value), _VALUE_CHARS)}" for name, value in arguments.items())
    return plain_line(f"{call.name}({', '.join(values)})", _OPTION_CHARS)


_DERIVED: Final[Mapping[str, Callable[[_Attempt], Question | None]]] = {"needle": _needle, "why": _why, "next": _next}
