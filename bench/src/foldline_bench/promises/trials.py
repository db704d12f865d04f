"""Promises that no plain run of a history shows: work by count, refusals, an end, streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Final

from foldline.codecs.dialect import caps_of
from foldline.engine.one_shot import check
from foldline.messages import Wire
from foldline_bench.promises.histories import ShapedHistory
from foldline_bench.promises.rounds import opening_of
from foldline_bench.promises.shapes import history_of, steady_history
from foldline_bench.promises.targets.base import DeclinedError, SentRequest, SessionUnderTest, Target
from foldline_bench.promises.targets.proxies import ProxyTarget
from foldline_bench.promises.targets.upstream import MODELS

__all__ = ["TrialCase", "ends_fault", "long_fault", "recovers_fault", "streams_fault"]

SAMPLE: Final = 20
"""Requests whose work is counted at each length."""
SHORT_STEPS, LONG_STEPS = 60, 600
MOST_GROWTH: Final = 2.0
"""Of the median work of a request while the session grows tenfold."""
TRUE_SHARE: Final = 0.6
"""What the provider takes of the window that the tool was told."""
MOST_ATTEMPTS: Final = 6
"""Requests until one is taken, the first one included."""
MOST_ROUNDS: Final = 12


@dataclass(frozen=True, slots=True)
class TrialCase:
    """What a trial runs on."""

    promise: str
    dialect: str
    window_tokens: int
    seed: int

    @property
    def name(self) -> str:
        """The name by which `--case` finds it."""
        return f"{self.promise}/{self.dialect}/{self.window_tokens}"

    def history(self, shape: str) -> ShapedHistory:
        """A generated history of this dialect and window."""
        return history_of(shape, self.dialect, self.window_tokens, self.seed)


@contextmanager
def _opened(target: Target, history: ShapedHistory) -> Iterator[SessionUnderTest]:
    session = target.open(opening_of(history))
    try:
        yield session
    finally:
        session.close()


def long_fault(target: Target, case: TrialCase) -> str | None:
    """The work for a request depends on what is new, not on how long the session is."""
    history = steady_history(case.dialect, case.window_tokens, LONG_STEPS)
    works: dict[int, list[int]] = {SHORT_STEPS: [], LONG_STEPS: []}
    with _opened(target, history) as session:
        for number, new in enumerate(history.steps, start=1):
            length = next((end for end in works if end - SAMPLE < number <= end), None)
            if length is None:
                session.send(new)
            else:
                works[length].append(session.work(new))
    short, long = median(works[SHORT_STEPS]), median(works[LONG_STEPS])
    if long > MOST_GROWTH * short:
        return (
            f"requests {LONG_STEPS - SAMPLE + 1} to {LONG_STEPS}: {long:,.0f} steps of the interpreter for one, "
            f"{short:,.0f} at request {SHORT_STEPS}: {long / short:.1f} times as many for as much that is new"
        )
    return None


def _refusal(sent: SentRequest, limit_tokens: int) -> str:
    return (
        f"This model's maximum context length is {limit_tokens} tokens. However, your messages resulted in "
        f"{sent.tokens} tokens. Please reduce the length of the messages."
    )


def recovers_fault(target: Target, case: TrialCase) -> str | None:
    """After a refusal for its size a smaller request goes out, which the provider takes."""
    history = case.history("tools")
    if isinstance(target, ProxyTarget):
        return _proxy_recovers(target, history)
    limit = int(TRUE_SHARE * history.window_tokens)
    with _opened(target, history) as session:
        for number, new in enumerate(history.steps, start=1):
            try:
                sent = session.send(new)
                for _ in range(MOST_ATTEMPTS - 1):
                    if sent.tokens <= limit:
                        break
                    sent = session.refused(_refusal(sent, limit))
            except DeclinedError as error:
                return f"request {number}: gave up, though it can be made smaller: {error}"
            if sent.tokens > limit:
                return f"request {number}: {sent.tokens:,} tokens after {MOST_ATTEMPTS - 1} refusals over {limit:,}"
            broken = check(
                sent.messages,
                dialect=history.dialect,
                system=sent.system or None,
                caps=caps_of(history.dialect, history.window_tokens),
            )
            if broken:
                return f"request {number}: {broken[0].rule}, message {broken[0].index}: {broken[0].detail}"
    return None


def _proxy_recovers(target: ProxyTarget, history: ShapedHistory) -> str | None:
    target.upstream.weight = 1 / TRUE_SHARE
    try:
        session = target.session(opening_of(history), model=MODELS[1])
        for number, new in enumerate(history.steps, start=1):
            try:
                session.send(new)
            except DeclinedError as error:
                return f"request {number}: the client got the refusal: {error.broken or error}"
            if session.asked > MOST_ATTEMPTS:
                return f"request {number}: {session.asked} attempts until one was taken"
    finally:
        target.upstream.weight = 1.0
    return None


def ends_fault(target: Target, case: TrialCase) -> str | None:
    """With nothing new the request stays as it is, and refusals without an end come to one."""
    history = case.history("tools")
    fault: str | None = None
    with _opened(target, history) as session:
        sent: SentRequest | None = None
        try:
            for new in history.steps:
                sent = session.send(new)
        except DeclinedError:
            sent = None  # that is for `fits` to judge; there is no request to ask for again
        if sent is not None:
            fault = _settles(session, sent, len(history.steps))
            if fault is None and "refused" in target.abilities:
                fault = _gives_up(session, sent)
    if fault is None and isinstance(target, ProxyTarget):
        fault = _proxy_gives_up(target, history)
    return fault


def _settles(session: SessionUnderTest, sent: SentRequest, number: int) -> str | None:
    """Asked twice more: a request that was just made is not made smaller again."""
    for _ in range(2):
        try:
            again = session.again()
        except DeclinedError as error:
            return f"request {number}, once more: none was made: {error}"
        if tuple(again.messages) != tuple(sent.messages):
            return f"request {number}, once more with nothing new: it is another one ({again.tokens:,} tokens)"
    return None


def _gives_up(session: SessionUnderTest, sent: SentRequest) -> str | None:
    for attempt in range(1, MOST_ROUNDS + 1):
        before = sent
        try:
            sent = session.refused(_refusal(sent, max(1, sent.tokens - 1)))
        except DeclinedError:
            return None
        if sent.tokens >= before.tokens:
            return f"refusal {attempt}: {sent.tokens:,} tokens after a refusal of {before.tokens:,}: no end to this"
    return None


def _proxy_gives_up(target: ProxyTarget, history: ShapedHistory) -> str | None:
    target.upstream.weight = 1_000.0
    try:
        session = target.session(opening_of(history), model=MODELS[2])
        asked = target.upstream.asked
        try:
            session.send(history.messages)
        except DeclinedError:
            tried = target.upstream.asked - asked
            return f"{tried} attempts at what is always refused" if tried > MOST_ROUNDS else None
    finally:
        target.upstream.weight = 1.0
    return "an upstream that refuses everything has answered"


def streams_fault(target: Target, case: TrialCase) -> str | None:
    """Streamed or not, the same request goes out, and the whole answer comes back."""
    if not isinstance(target, ProxyTarget):
        return None
    for shape, same in (("small", True), ("tools", False)):
        history = case.history(shape)
        whole, streamed = (target.session(opening_of(history), streamed=flag) for flag in (False, True))
        for number, new in enumerate(islice(history.steps, 20), start=1):
            place = f"{shape}, request {number}"
            sent: dict[str, tuple[Wire, ...]] = {}
            for name, session in (("whole", whole), ("streamed", streamed)):
                try:
                    sent[name] = tuple(session.send(new).messages)
                except DeclinedError as error:
                    return f"{place}, {name}: {error.broken or error}"
                if not session.answer.text.endswith("✓"):
                    return f"{place}, {name}: the answer is not whole: {session.answer.text[-40:]!r}"
                if not session.answer.ended:
                    return f"{place}, {name}: the closing event did not come"
            if same and sent["whole"] != sent["streamed"]:
                return f"{place}: another request goes out where the answer is streamed"
    return None
