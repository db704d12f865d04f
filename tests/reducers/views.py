"""Views to propose for, and the requests that come of what was proposed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from foldline.engine.context import Context
from foldline.engine.one_shot import check
from foldline.reducers.base import Ask, Reducer
from foldline.testing import session
from foldline.view.budget import Need, Pressure
from foldline.view.transcript import Fold
from foldline.view.view import View

Wire = dict[str, Any]

LINE = "a line of a result that was read\n"


def tool_loop(rounds: int = 20, dialect: str = "openai-chat") -> list[Any]:
    """A session of so many calls with long results."""
    return list(session(rounds, result=LINE * 12, dialect=dialect))


def answered_loop(rounds: int = 20) -> list[Any]:
    """A tool loop, its answer and the user's next message."""
    return [*tool_loop(rounds), says("done"), user("next")]


def context_of(wires: Sequence[Any], dialect: str = "openai-chat", **settings: Any) -> Context:
    """A context that folds nothing by itself."""
    context = Context(**{"dialect": dialect, "window": 1_000_000, "policy": "confirm", **settings})
    context.extend(wires)
    return context


def view_of(wires: Sequence[Any], dialect: str = "openai-chat", **settings: Any) -> View:
    """Its view."""
    return context_of(wires, dialect, **settings).view


def need_of(view: View, target_tokens: int = 0, *, fresh: int = 0, window: int = 1_000_000, output: int = 0) -> Need:
    """The need to land at `target_tokens`."""
    return Need(Pressure.HARD, view.estimated_tokens, target_tokens, int(0.9 * window), window - output, fresh, output)


def folds_of(reducer: Reducer, view: View, need: Need | None = None) -> list[Fold]:
    """What it proposes, folds only."""
    return [move for move in reducer.propose(view, need or need_of(view)) if isinstance(move, Fold)]


def asks_of(reducer: Reducer, view: View, need: Need | None = None) -> list[Ask]:
    """What it asks for."""
    return [move for move in reducer.propose(view, need or need_of(view)) if isinstance(move, Ask)]


def commit_all(view: View, folds: Iterable[Fold]) -> list[Fold]:
    """Put folds into effect; every one has to shrink, and to leave a request that its provider takes."""
    made = []
    for number, fold in enumerate(folds):
        made.append(view.commit(Fold(**{**_fields(fold), "id": number})))
        assert made[-1].tokens < made[-1].before_tokens
        assert check(view.wires()[0], dialect=view.codec.dialect) == []
    return made


def applied(reducer: Reducer, view: View, need: Need | None = None) -> list[Any]:
    """The request after everything that was proposed."""
    commit_all(view, folds_of(reducer, view, need))
    return view.wires()[0]


def sent(view: View) -> str:
    """The request as text."""
    return json.dumps(view.wires()[0], ensure_ascii=False)


def user(words: str) -> Wire:
    """A user's words, in Chat Completions and Messages."""
    return {"role": "user", "content": words}


def says(words: str) -> Wire:
    """An assistant's words."""
    return {"role": "assistant", "content": words}


def call(*ids: str, name: str = "read", arguments: str = "{}") -> Wire:
    """An assistant message with calls (Chat Completions)."""
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": i, "type": "function", "function": function} for i in ids],
    }


def result(call_id: str, words: str) -> Wire:
    """A tool result (Chat Completions)."""
    return {"role": "tool", "tool_call_id": call_id, "content": words}


def use(call_id: str, name: str = "read", **given: Any) -> Wire:
    """An assistant message with one call (Messages)."""
    return {"role": "assistant", "content": [{"type": "tool_use", "id": call_id, "name": name, "input": given}]}


def gave(call_id: str, content: Any, *more: Wire, **fields: Any) -> Wire:
    """A user message with one result, and more blocks (Messages)."""
    block = {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}
    return {"role": "user", "content": [block, *more]}


def picture(letter: str = "A", size: int = 4_000) -> Wire:
    """An image block (Messages)."""
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": letter * size}}


def text(words: str) -> Wire:
    """A text block."""
    return {"type": "text", "text": words}


def contents(messages: Iterable[Any]) -> list[Any]:
    """The content of each message."""
    return [message["content"] for message in messages]


def _fields(fold: Fold) -> dict[str, Any]:
    names = ("start", "stop", "shown", "tokens", "reducer", "reason", "before_tokens", "archive", "id", "form")
    return {name: getattr(fold, name) for name in names}
