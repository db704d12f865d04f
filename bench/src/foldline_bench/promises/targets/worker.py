"""The other end of `PythonTarget`: `python -m foldline_bench.promises.targets.worker SPEC [DIALECT ...]`.

Each line of standard input is a question, each line of standard output its answer.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from foldline.errors import FoldlineError
from foldline_bench.promises.targets.base import DeclinedError, Opening, SentRequest, SessionUnderTest, Target
from foldline_bench.promises.targets.local import local_target

__all__ = ["answers", "main"]


def main() -> None:
    """Answer until the input ends."""
    # Packages print: descriptor 1 becomes standard error, and answers go through a copy of the old one.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as output:
        os.dup2(2, 1)
        for answer in answers(sys.argv[1], tuple(sys.argv[2:]), map(json.loads, sys.stdin)):
            output.write(f"{json.dumps(answer)}\n")
            output.flush()


def answers(
    spec: str, dialects: tuple[str, ...], questions: Iterator[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """The answer to each question."""
    try:
        target = local_target(spec, dialects)
    except FoldlineError as error:
        yield {"fault": str(error)}
        return
    session: SessionUnderTest | None = None
    for question in questions:
        try:
            if question["do"] == "about":
                yield _about(target)
            elif question["do"] == "open":
                session = target.open(_opening(question))
                yield {"ok": True}
            elif session is None:
                yield {"declined": "no session is open"}
            else:
                yield _done(session, question)
        except DeclinedError as error:
            yield {"declined": str(error)}


def _about(target: Target) -> Mapping[str, Any]:
    return {
        "kind": target.kind,
        "dialects": target.dialects,
        "abilities": sorted(target.abilities),
        "counts_alike": target.counts_alike,
    }


def _opening(question: Mapping[str, Any]) -> Opening:
    return Opening(question["dialect"], question["window"], question["system"], frozenset(question["pinned"]))


def _done(session: SessionUnderTest, question: Mapping[str, Any]) -> Mapping[str, Any]:
    match question["do"]:
        case "send":
            return _sent(session.send(question["new"]))
        case "again":
            return _sent(session.again())
        case "refused":
            return _sent(session.refused(question["words"]))
        case "original":
            return {"message": session.original(question["index"])}
        case "changed":
            return {"index": session.changed()}
        case "work":
            return {"steps": session.work(question["new"])}
        case _:
            session.close()
            return {"ok": True}


def _sent(request: SentRequest) -> Mapping[str, Any]:
    return {"messages": request.messages, "system": request.system}


if __name__ == "__main__":
    main()
