"""Which old results stay longer."""

from __future__ import annotations

import json
from typing import Any

from foldline.engine.context import Context
from foldline.reducers.base import result_entries
from foldline.reducers.importance import _files, importance

TEXT = "\n".join(f"line {n} of module_{n}.py" for n in range(40))


def weights(*steps: tuple[str, str], said: str = "", is_error: bool = False) -> list[float]:
    """The importance of each result of a session of (file that was asked for, result), and words of the agent."""
    context = Context(dialect="anthropic", window=100_000, max_output_tokens=0)
    context.append({"role": "user", "content": "Mend it."})
    for number, (file, text) in enumerate(steps):
        call: dict[str, Any] = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {"path": file}}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": text, "is_error": is_error}
        context.append({"role": "assistant", "content": [call]})
        context.append({"role": "user", "content": [result]})
    if said:
        context.append({"role": "assistant", "content": said})
    found = result_entries(context.view)
    weighed = importance(context.view, found)
    return [weighed[entry.seq] for _, _, entry in found]


def test_what_was_referred_to_matters_more() -> None:
    first, second = weights(("a.py", TEXT), ("b.py", TEXT.replace("module", "other")), said="module_3.py, module_4.py")
    assert first > second


def test_what_failed_matters_more() -> None:
    plain, failed = weights(("a.py", TEXT), ("b.py", f"{TEXT}\nTraceback: ValueError"))
    assert failed > plain
    assert weights(("a.py", "no words of it"), is_error=True) > weights(("a.py", "no words of it"))


def test_the_newest_view_of_a_file_matters_more_than_older_ones() -> None:
    older, other, newest = weights(("src/a.py", TEXT), ("src/b.py", TEXT), ("src/a.py", TEXT))
    assert older < other == newest


def test_a_file_is_found_behind_long_arguments() -> None:
    assert _files(json.dumps({"content": "word " * 8_000, "path": "src/app/x.py"})) == {"src/app/x.py"}


def test_results_that_name_nothing_all_weigh_the_same() -> None:
    assert len(set(weights(*[("x", json.dumps({"ok": n})) for n in range(3)]))) == 1
