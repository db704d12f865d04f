"""Planted constraints: whether a rule that a user or operator gave once is still in every later request.

The constraints and their wording are those of conpact (the benchmark of "Lost in Compaction", arXiv 2608.11242), read
from its package. Each is planted in recorded sessions, one at a time, at the top or in the middle, in the words of the
user or of the system, and the session is replayed in a small window. conpact asks a model whether a constraint is still
there; here its words themselves are looked for.

    python -m foldline_bench.constraints [SESSION ...] [--budget 8000,16000] [--policy balanced,...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

from foldline.catalog.models import CACHE_RULES
from foldline.engine.presets import policy
from foldline.errors import DoesNotFit, FoldlineError, InvalidInput
from foldline.messages import Wire
from foldline.recorded.files import read_session
from foldline.recorded.sessions import Session
from foldline.replay import Managed, MeasuredSession, Sender, Sent, context_for
from foldline.tokens import ESTIMATE
from foldline_bench.workers.processes import worker_environment

__all__ = ["Constraint", "ConstraintCount", "Recent", "constraints_of", "holds", "plant", "table"]

Position: TypeAlias = Literal["top", "middle"]
Role: TypeAlias = Literal["user", "system"]

PLACES: Final[tuple[tuple[Position, Role], ...]] = (
    ("top", "user"),
    ("middle", "user"),
    ("top", "system"),
    ("middle", "system"),
)
# Messages that the baseline of conpact's paper keeps (`RecentN`).
RECENT: Final = 5

# Sessions of less than so many budgets are left out: hardly anything is folded in them (docs/bench.md).
LEAST_RATIO: Final = 1.2

_PYTHON: Final = Path(".bench/conformance/bin/python")
_TEXTS: Final = (
    "import json; from conpact import SCS, render_sc; "
    "print(json.dumps([[sc['id'], sc['sc'], render_sc(sc['sc'], False, True)] for sc in SCS]))"
)


@dataclass(frozen=True, slots=True)
class Constraint:
    """A side constraint: its words, and the sentence in which it is stated ("For the rest of this session. …")."""

    number: int
    words: str
    stated: str

    @property
    def sought(self) -> str:
        """Its words as in the statement, where they begin with a small letter."""
        return self.stated[-len(self.words) :]


@dataclass(frozen=True, slots=True)
class ConstraintCount:
    """One replay with a planted constraint: at how many of the later requests it was still there."""

    system: str
    budget_tokens: int
    session: str
    number: int
    position: Position
    role: Role
    requests: int
    kept: int


class Recent:
    """The last messages only: the baseline."""

    def __init__(self, count: int = RECENT) -> None:
        self._count = count
        self._messages: list[Wire] = []

    def send(self, new: Sequence[Wire]) -> Sent:
        """Return the last `count` messages."""
        self._messages += new
        return Sent(tuple(self._messages[-self._count :]), None)


def constraints_of(python: Path = _PYTHON) -> list[Constraint]:
    """The constraints that ship in conpact, from the environment of that interpreter. Raises InvalidInput."""
    hint = f"conpact is not there; install it with `python bench/tools/bench_peers.py {python.parts[-3]}`"
    try:
        found = subprocess.run(
            [str(python), "-c", _TEXTS], capture_output=True, text=True, check=False, env=worker_environment()
        )
    except OSError:
        raise InvalidInput(hint, place=str(python)) from None
    if found.returncode:
        raise InvalidInput(hint, place=str(python))
    return [Constraint(number, words, stated) for number, words, stated in json.loads(found.stdout)]


def plant(messages: Sequence[Wire], stated: str, position: Position, role: Role) -> tuple[list[Wire], int]:
    """The messages with the statement in them, and the index of the message that holds it.

    In the user's words it goes before those of the first user message or of the middle one, as conpact does it; where a
    session has fewer than three, the middle is a message of its own between two steps of the agent. In the words of the
    system it is a message of its own: behind those that a session begins with, or before that middle.
    """
    out = list(messages)
    users = [index for index, message in enumerate(out) if message.get("role") == "user"]
    if role == "user" and users and (position == "top" or len(users) > 2):
        at = users[0] if position == "top" else users[len(users) // 2]
        out[at] = {**out[at], "content": _before(stated, out[at].get("content"))}
        return out, at
    if position == "top":
        at = next((index for index, message in enumerate(out) if message.get("role") != "system"), len(out))
    else:
        steps = [index for index, message in enumerate(out) if index and message.get("role") in {"user", "assistant"}]
        at = users[len(users) // 2] if len(users) > 2 else steps[len(steps) // 2] if steps else len(out)
    out.insert(at, {"role": role, "content": stated})
    return out, at


def _before(stated: str, content: object) -> object:
    if isinstance(content, list):
        return [{"type": "text", "text": stated}, *content]
    return f"{stated}\n{content}"


def holds(messages: Iterable[Wire], words: str) -> bool:
    """Whether the words are in any of the messages, however lines are broken."""
    wanted = " ".join(words.split())
    return any(wanted in " ".join(text.split()) for message in messages for text in _texts(message.get("content")))


def _texts(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, Sequence):
        for part in content:
            if isinstance(part, Mapping) and isinstance(part.get("text"), str):
                yield cast("str", part["text"])


def replay_planted(
    session: Session,
    constraint: Constraint,
    place: tuple[Position, Role],
    system: str,
    budget_tokens: int,
) -> ConstraintCount:
    """Replay a session with the constraint planted, and look for it in each later request."""
    messages, planted = plant(session.messages, constraint.stated, *place)
    sender = _sender(system, session, budget_tokens)
    sent_count = requests = kept = 0
    for index, message in enumerate(messages):
        if message.get("role") != "assistant" or not index:
            continue
        try:
            sent = sender.send(messages[sent_count:index])
        except DoesNotFit:
            sent = Sent((), None)
        sent_count = index
        if index > planted:
            requests += 1
            kept += holds(sent.messages, constraint.sought)
    return ConstraintCount(system, budget_tokens, session.name, constraint.number, *place, requests, kept)


def _sender(system: str, session: Session, budget_tokens: int) -> Sender:
    if system == f"RecentN({RECENT})":
        return Recent()
    recording = MeasuredSession(Session(name=session.name, dialect=session.dialect, messages=(), system=session.system))
    return Managed(context_for(recording, system, window=budget_tokens, rule=CACHE_RULES["anthropic"]))


def table(results: Sequence[ConstraintCount]) -> str:
    """How many constraints were in every request of every session, and below it those that were lost."""
    numbers = {one.number for one in results}
    heads = [f"{position}, {role}" for position, role in PLACES]
    lines = [f"{'budget':>8}  {'system':<14}" + "".join(f"{head:>16}" for head in heads)]
    for budget in sorted({one.budget_tokens for one in results}):
        for system in dict.fromkeys(one.system for one in results):
            mine = [one for one in results if (one.budget_tokens, one.system) == (budget, system)]
            cells = [_cell([one for one in mine if (one.position, one.role) == place], numbers) for place in PLACES]
            lines.append(f"{budget:>8,}  {system:<14}" + "".join(f"{cell:>16}" for cell in cells))
    lines.append(
        "\nof the constraints so many were in every later request of every session; in brackets: of all requests"
    )
    lines += [
        f"lost by {one.system} at {one.budget_tokens:,}: constraint {one.number}, {one.position}, {one.role}, in "
        f"{one.requests - one.kept} of {one.requests} requests of {one.session}"
        for one in results
        if one.kept < one.requests and not one.system.startswith("RecentN")
    ]
    return "\n".join(lines) + "\n"


def _cell(results: Sequence[ConstraintCount], numbers: set[int]) -> str:
    lost = {one.number for one in results if one.kept < one.requests}
    # A constraint in the last message has no later request, and was never tested.
    tried = {one.number for one in results if one.requests} & numbers
    requests, kept = sum(one.requests for one in results), sum(one.kept for one in results)
    return f"{len(tried - lost)}/{len(tried)} ({kept / requests:.0%})" if requests else "-"


def run(
    sessions: Sequence[Session],
    constraints: Sequence[Constraint],
    systems: Sequence[str],
    budgets: Sequence[int],
    on_session: Callable[[str], None] = lambda line: None,
) -> list[ConstraintCount]:
    """All of it: each constraint at each place of each session that is large enough, under each system."""
    out: list[ConstraintCount] = []
    for budget in budgets:
        for session in sessions:
            if MeasuredSession(session, ESTIMATE).tokens < LEAST_RATIO * budget:
                on_session(f"{session.name} is left out at {budget:,}: too small")
                continue
            on_session(f"{session.name} at {budget:,}")
            out += [
                replay_planted(session, constraint, place, system, budget)
                for system in systems
                for place in PLACES
                for constraint in constraints
            ]
    return out


def main(argv: Sequence[str] | None = None) -> None:
    """Plant, replay and print. Takes about a minute for each budget and policy on the example sessions."""
    parser = argparse.ArgumentParser(prog="python -m foldline_bench.constraints", description=(__doc__ or "")[:90])
    parser.add_argument("sessions", nargs="*", type=Path, help="recorded sessions in the Chat form (examples/sessions)")
    parser.add_argument("--budget", default="8000,16000", help="windows in tokens (default: %(default)s)")
    parser.add_argument("--policy", default="balanced,economical", help="policies (default: %(default)s)")
    parser.add_argument("--python", type=Path, default=_PYTHON, help="interpreter that has conpact")
    parser.add_argument("--json", type=Path, help="write every replay there")
    options = parser.parse_args(argv)
    try:
        systems = [policy(name).name for name in options.policy.split(",")]
        files = options.sessions or sorted(Path("examples/sessions").glob("*.json.gz"))
        sessions = [session for session in map(read_session, files) if session.dialect == "openai-chat"]
        budgets = [int(budget) for budget in options.budget.split(",")]
        results = run(sessions, constraints_of(options.python), [f"RecentN({RECENT})", *systems], budgets, _say)
    except FoldlineError as error:
        sys.stderr.write(f"foldline_bench.constraints: {error}\n")
        sys.exit(2)
    if options.json:
        plain: list[dict[str, Any]] = [asdict(one) for one in results]
        options.json.write_text(json.dumps(plain, indent=1), encoding="utf-8")
    sys.stdout.write(table(results))


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main()
