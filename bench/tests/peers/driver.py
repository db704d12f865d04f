"""Runs in the environment of a peer: one session through each of its systems, one line of JSON for each.

usage: driver.py PEER SESSION BUDGET_TOKENS REQUESTS

Of the session's requests so many are made, from the first to the last.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

from foldline.messages import Wire
from foldline.recorded.files import read_session
from foldline.replay import MeasuredSession
from foldline_bench.summariser import FixedSummariser
from foldline_bench.systems import MakeSystem


class Noting(FixedSummariser):
    """Keeps what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []

    def summarize(self, *args: Any, **kwargs: Any) -> str:
        self.written.append(super().summarize(*args, **kwargs))
        return self.written[-1]

    def answer(self, *args: Any, **kwargs: Any) -> str:
        self.written.append(super().answer(*args, **kwargs))
        return self.written[-1]


def run(make: MakeSystem, recording: MeasuredSession, budget_tokens: int, requests: int) -> dict[str, Any]:
    history = list(recording.session.messages)
    recorded = {id(wire) for wire in history}
    counted: dict[str, Wire] = {}
    again = 0

    def count(wire: Wire) -> int:
        nonlocal again
        if id(wire) not in recorded and wire["role"] == "user":  # a new message is read anew, in the peer's own time
            again += counted.setdefault(str(wire["content"]), wire) is not wire
        return recording.reader.read(wire).tokens

    contents = {json.dumps(wire, sort_keys=True) for wire in history}
    summariser = Noting()
    system = make(budget_tokens, count, summariser)
    sent: list[list[Wire]] = []
    errors: list[str] = []
    copies = 0
    last = len(recording.replies) - 1
    replies = [recording.replies[last * n // (requests - 1)] for n in range(requests)]
    for reply in replies:
        before = history[: reply.start]
        system.prepare(before)
        try:
            messages = list(system.finish(system.view(before)))
        except Exception as error:  # noqa: BLE001 - as the bench does, which counts them
            errors.append(f"{type(error).__name__}: {error}")
            continue
        copies += sum(id(m) not in recorded and json.dumps(m, sort_keys=True) in contents for m in messages)
        sent.append(messages)
    asked = summariser.pop_calls()
    return {
        "requests": requests,
        "errors": errors,
        "malformed": sum(not is_message(message) for messages in sent for message in messages),
        "copies": copies,
        "recorded": sum(id(message) in recorded for message in sent[-1]) if sent else 0,
        "messages": [len(messages) for messages in sent],
        "tokens": [sum(map(count, messages)) for messages in sent],
        "whole": [sum(map(count, history[: reply.start])) for reply in replies],
        "again": again,
        "written": summariser.written,
        "asked": [[ask.prompt_tokens, ask.output_tokens] for ask in asked],
    }


def is_message(message: Any) -> bool:
    """Whether it is plain JSON and has what every message of Chat Completions has."""
    json.dumps(message)
    return message["role"] in {"system", "user", "assistant", "tool"} and "content" in message


def main() -> None:
    peer, session, budget, requests = sys.argv[1:]
    module = import_module(f"foldline_bench.peers.{peer}_peer")
    recording = MeasuredSession(read_session(session))
    for name, make in {**module.SYSTEMS, **module.OWN_COUNTER}.items():
        sys.stdout.write(json.dumps({"system": name, **run(make, recording, int(budget), int(requests))}) + "\n")


if __name__ == "__main__":
    main()
