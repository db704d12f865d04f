"""Long sessions of other work than coding, from two public benchmarks: customer service, travel, trading, files.

    python -m foldline_bench.public_sessions FOLDER [--tokens 40000]

tau2-bench and BFCL ship tasks, simulated services, and the calls that solve each task. One task is too short for a
window to matter. So the tasks of one kind are joined until they are large enough, as one agent serves one customer
after the other. What is in a session is theirs word for word: the user's messages are the texts of the tasks (tau2
addresses whoever plays the customer), the agent's messages are the calls, and the results are those of the services.
No model wrote anything, so the agent says nothing between its calls.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from foldline.errors import FoldlineError, InvalidInput
from foldline.messages import Wire
from foldline.tokens import ESTIMATE
from foldline_bench.workers.processes import worker_environment

__all__ = ["SOURCES", "cases_of", "joined", "main", "messages_of"]

SOURCES: Final = {
    "retail": ("sierra-research/tau2-bench (retail tasks, reference calls)", "MIT"),
    "airline": ("sierra-research/tau2-bench (airline tasks, reference calls)", "MIT"),
    "bfcl": ("ShishirPatil/gorilla (BFCL multi-turn tasks with long results, reference calls)", "Apache-2.0"),
}
"""What can be made, with the source and licence that each session names."""

_PYTHON: Final = Path(".bench/public/bin/python")
_CASES: Final = Path(__file__).with_name("public_cases.py")


def cases_of(kind: str, python: Path = _PYTHON) -> list[dict[str, Any]]:
    """Return the cases of a kind, made in the environment of the packages. Raises InvalidInput without it."""
    if not python.exists():
        raise InvalidInput(
            "is not there; install it with `python bench/tools/bench_peers.py public`", place=str(python)
        )
    command = [str(python), str(_CASES), kind]
    done = subprocess.run(command, capture_output=True, env=worker_environment(), check=False)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise InvalidInput(f"cannot be made: {last}", place=kind)
    cases: list[dict[str, Any]] = json.loads(done.stdout)
    return cases


def messages_of(case: Mapping[str, Any], number: int) -> Iterator[Wire]:
    """Yield the messages of a case without its system text. `number` makes the ids of its calls unique."""
    made = 0
    for said, calls in case["asked"]:
        yield {"role": "user", "content": said}
        for name, arguments, result in calls:
            made += 1
            call_id = f"call_{number}_{made}"
            function = {"name": name, "arguments": json.dumps(arguments)}
            call = {"id": call_id, "type": "function", "function": function}
            yield {"role": "assistant", "content": None, "tool_calls": [call]}
            yield {"role": "tool", "tool_call_id": call_id, "content": result}


def joined(kind: str, cases: Iterable[Mapping[str, Any]], least_tokens: int) -> Iterator[dict[str, Any]]:
    """Join cases of one group, in their order, until a session has so many tokens; what is left over is dropped.

    `joints` of a session are the places of the messages where a case begins.
    """
    source, licence = SOURCES[kind]
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for case in cases:
        groups.setdefault(case["group"], []).append(case)
    for group, own in groups.items():
        start = _beginning(own[0])
        messages, joints, made = [*start], list[int](), 0
        for number, case in enumerate(own):
            joints.append(len(messages))
            messages += messages_of(case, number)
            if _tokens(messages) < least_tokens:
                continue
            made += 1
            name = f"{'tau2' if group == kind else kind}-{group.lower()}-{made}"
            yield {"id": name, "source": source, "licence": licence, "joints": joints, "messages": messages}
            messages, joints = [*start], []


def _beginning(case: Mapping[str, Any]) -> list[Wire]:
    return [{"role": "system", "content": case["system"]}] if case["system"] else []


def _tokens(messages: Iterable[Wire]) -> int:
    return sum(ESTIMATE.text(json.dumps(message)) for message in messages)


def main(given: Sequence[str] | None = None) -> None:
    """Write the sessions of all kinds into a folder, one gzip file each."""
    parser = argparse.ArgumentParser(prog="python -m foldline_bench.public_sessions", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the sessions are written")
    parser.add_argument("--tokens", type=int, default=40_000, help="how large each is at least (default: %(default)s)")
    asked = parser.parse_args(given)
    try:
        asked.folder.mkdir(parents=True, exist_ok=True)
        for kind in SOURCES:
            for session in joined(kind, cases_of(kind), asked.tokens):
                with gzip.open(asked.folder / f"{session['id']}.json.gz", "wt", encoding="utf-8") as file:
                    json.dump(session, file, ensure_ascii=False)
                sys.stdout.write(
                    f"{session['id']}: {len(session['messages'])} messages, {len(session['joints'])} tasks\n"
                )
    except FoldlineError as error:
        sys.stderr.write(f"foldline_bench: {error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
