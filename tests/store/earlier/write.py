"""Writes the stores of tests/store/test_earlier.py, with the code of whatever version is on PYTHONPATH.

    python write.py FOLDER    # FOLDER/files, FOLDER/sessions.db and FOLDER/expected.json

Run it before a change of what stores hold, and pack the folder:

    tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -czf NAME.tar.gz -C FOLDER .
"""

from __future__ import annotations

import importlib
import json
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any


def first_of(*names: str) -> Any:
    """What the first of these paths that exists holds: modules have moved."""
    for name in names:
        module, _, attribute = name.rpartition(".")
        with suppress(ImportError, AttributeError):
            return getattr(importlib.import_module(module), attribute)
    raise ImportError(names[0])


def context_of_work() -> Any:
    """A context with calls, results, an image and folds."""
    context = first_of("foldline.engine.context.Context", "foldline.context.Context")(
        window=2_000, policy="balanced", system="Be brief.", max_output_tokens=200
    )
    context.append({"role": "user", "content": "Why does the build fail? Grüße, 世界. Never touch setup.cfg."})
    for step in range(12):
        call = {"name": "read", "arguments": json.dumps({"path": f"src/part_{step}.c"})}
        context.append(
            {
                "role": "assistant",
                "content": f"Step {step}.",
                "tool_calls": [{"id": f"call_{step}", "type": "function", "function": call}],
            }
        )
        text = f"/* part {step} */\n" + "".join(f"int value_{step}_{line} = {line};\n" for line in range(30))
        context.append({"role": "tool", "tool_call_id": f"call_{step}", "content": text})
        context.prepare()
    return context


def main(folder: Path) -> None:
    """Write both stores and what they must show."""
    context = context_of_work()
    request = context.prepare()
    stores = [first_of("foldline.store.FileStore")(folder / "files")]
    with suppress(ImportError):
        at = first_of("foldline.store.sql.store.SqlStore", "foldline.store.sql.SqlStore").at
        stores.append(at(f"sqlite:///{folder}/sessions.db"))
    for store in stores:
        with closing(store), closing(store.create(dialect="openai-chat", window=2_000)) as session:
            session.append(context.events)
            session.save(context)
            store.bind("chat 1", session.id)
    expected = {"events": len(context.events), "messages": request.messages}
    (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=1), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
