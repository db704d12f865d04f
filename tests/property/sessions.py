"""Random sessions in every dialect: legal ones, and ones broken in every way that was reported from the field."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

from hypothesis import strategies as st

from tests.property import wild

DIALECTS = ("openai-chat", "openai-responses", "anthropic", "gemini")
POLICIES = ("balanced", "cost", "quality", "economical", "autopilot", "sliding", "checkpoint", "layered", "confirm")

Wire = dict[str, Any]

WORDS = (
    "the build failed because src/app.py could not find symbol parse_config while test_login passed after retry 40412 "
    'Fehler größer 上下文窗口 管理 работает 👩‍👩‍👧‍👦 ValueError: expected deadbeef42 {} [] "quoted" back\\slash'
).split()


def _words(count: int, seed: int) -> str:
    out = []
    for _ in range(count):
        seed = (seed * 1103515245 + 12345) % 2**31
        out.append(WORDS[(seed >> 8) % len(WORDS)] + ("\n" if seed % 11 == 0 else ""))
    return " ".join(out)


# Made once: drawing words one by one would take most of a test's time.
_TEXTS = [_words(count, seed) for seed, count in enumerate([*range(1, 24), *range(24, 220, 9)])]


@cache
def text(most: int = 120) -> st.SearchStrategy[str]:
    """Words, from one to about `most`, sometimes over several lines."""
    return st.sampled_from([words for words in _TEXTS if len(words.split()) <= most + 12])


PICTURE = "data:image/png;base64," + "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ" * 8


class Chat:
    """Chat Completions."""

    def system(self, words: str) -> list[Wire]:
        return [{"role": "system", "content": words}]

    def user(self, words: str, picture: bool) -> list[Wire]:
        if picture:
            image = {"type": "image_url", "image_url": {"url": PICTURE}}
            return [{"role": "user", "content": [{"type": "text", "text": words}, image], "name": "ann"}]
        return [{"role": "user", "content": words}]

    def says(self, words: str, thinking: str | None) -> list[Wire]:
        return [{"role": "assistant", "content": words} | ({"reasoning_content": thinking} if thinking else {})]

    def turn(self, ids: list[str], results: list[str], words: str, thinking: str | None) -> list[Wire]:
        arguments = json.dumps({"path": "src/app.py", "content": words})
        calls = [{"id": i, "type": "function", "function": {"name": "edit", "arguments": arguments}} for i in ids]
        out: list[Wire] = [{"role": "assistant", "content": None, "tool_calls": calls, "x-unknown": {"kept": [1]}}]
        return out + [{"role": "tool", "tool_call_id": i, "content": r} for i, r in zip(ids, results, strict=False)]


class Messages:
    """Anthropic Messages."""

    def system(self, words: str) -> list[Wire]:
        return self.user(words, False)

    def user(self, words: str, picture: bool) -> list[Wire]:
        if picture:
            source = {"type": "base64", "media_type": "image/png", "data": PICTURE.split(",")[1]}
            return [{"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": words}]}]
        return [{"role": "user", "content": words}]

    def says(self, words: str, thinking: str | None) -> list[Wire]:
        return [{"role": "assistant", "content": [*_thinking(thinking), {"type": "text", "text": words}]}]

    def turn(self, ids: list[str], results: list[str], words: str, thinking: str | None) -> list[Wire]:
        calls = [
            {"type": "tool_use", "id": i, "name": "edit", "input": {"path": "a.py", "content": words}} for i in ids
        ]
        out: list[Wire] = [{"role": "assistant", "content": [*_thinking(thinking), *calls]}]
        blocks: list[Wire] = [
            {"type": "tool_result", "tool_use_id": i, "content": r} for i, r in zip(ids, results, strict=False)
        ]
        if len(words) % 5 == 0 and len(ids) == len(results):
            blocks.append({"type": "text", "text": f"and mind this: {words[:40]} ."})
        return [*out, {"role": "user", "content": blocks}] if blocks else out


class Responses:
    """OpenAI Responses."""

    def system(self, words: str) -> list[Wire]:
        return [{"type": "message", "role": "developer", "content": words}]

    def user(self, words: str, picture: bool) -> list[Wire]:
        content: list[Wire] = [{"type": "input_text", "text": words}]
        if picture:
            content.append({"type": "input_image", "image_url": PICTURE, "detail": "low"})
        return [{"type": "message", "role": "user", "content": content}]

    def says(self, words: str, thinking: str | None) -> list[Wire]:
        content = [{"type": "output_text", "text": words, "annotations": []}]
        return [*_item(thinking, words), {"type": "message", "role": "assistant", "content": content}]

    def turn(self, ids: list[str], results: list[str], words: str, thinking: str | None) -> list[Wire]:
        arguments = json.dumps({"path": "src/app.py", "content": words})
        out = _item(thinking, ids[0])
        out += [
            {"type": "function_call", "id": f"fc_{i}", "call_id": i, "name": "edit", "arguments": arguments}
            for i in ids
        ]
        return out + [
            {"type": "function_call_output", "call_id": i, "output": r} for i, r in zip(ids, results, strict=False)
        ]


class Contents:
    """Gemini `generateContent`, as Gemini 3 signs it: the first call of each step."""

    def system(self, words: str) -> list[Wire]:
        return self.user(words, False)

    def user(self, words: str, picture: bool) -> list[Wire]:
        data = {"inlineData": {"mimeType": "image/png", "data": PICTURE.split(",")[1]}}
        return [{"role": "user", "parts": [*([data] if picture else []), {"text": words}]}]

    def says(self, words: str, thinking: str | None) -> list[Wire]:
        return [{"role": "model", "parts": [*_thought(thinking), {"text": words, "thoughtSignature": "c2ln"}]}]

    def turn(self, ids: list[str], results: list[str], words: str, thinking: str | None) -> list[Wire]:
        args = {"path": "a.py", "content": words}
        calls: list[Wire] = [{"functionCall": {"id": i, "name": "edit", "args": args}} for i in ids]
        calls[0]["thoughtSignature"] = "c2ln"
        parts: list[Wire] = [
            {"functionResponse": {"id": i, "name": "edit", "response": {"output": r}}}
            for i, r in zip(ids, results, strict=False)
        ]
        out: list[Wire] = [{"role": "model", "parts": [*_thought(thinking), *calls]}]
        return [*out, {"role": "user", "parts": parts}] if parts else out


def _thought(words: str | None) -> list[Wire]:
    return [{"text": words, "thought": True}] if words else []


def _thinking(words: str | None) -> list[Wire]:
    return [{"type": "thinking", "thinking": words, "signature": "sig"}] if words else []


def _item(words: str | None, name: str) -> list[Wire]:
    if not words:
        return []
    return [
        {
            "type": "reasoning",
            "id": f"rs_{zlib.crc32(f'{name} {words}'.encode())}",
            "summary": [],
            "encrypted_content": "R" * 60,
        }
    ]


BUILDERS: dict[str, Chat | Messages | Responses | Contents] = {
    "openai-chat": Chat(),
    "anthropic": Messages(),
    "openai-responses": Responses(),
    "gemini": Contents(),
}


# Made once too: a strategy is validated at its first draw.
_THINKS = st.sampled_from((0, 1, 1, 2))  # never, always, now and then
_KINDS = st.sampled_from(("turn", "turn", "turn", "user", "says", "wild", "wild"))
_CALLS = st.sampled_from((1, 1, 2, 3))
_WILD = {dialect: st.sampled_from(turns) for dialect, turns in wild.TURNS.items()}


@st.composite
def legal(draw: st.DrawFn, dialect: str, most: int = 10) -> list[Wire]:
    """A session that the provider would take as it is, whole turns only."""
    build = BUILDERS[dialect]
    thinks = draw(_THINKS)
    out: list[Wire] = []
    if dialect not in ("anthropic", "gemini") and draw(st.booleans()):
        out += build.system(draw(text(12)))
    out += build.user(draw(text()), draw(st.integers(0, 5)) == 0)
    for number in range(draw(st.integers(0, most))):
        kind = draw(_KINDS)
        thought = (
            f"thought {number} " + draw(text(10))
            if thinks and kind in ("turn", "says") and (thinks == 1 or draw(st.booleans()))
            else None
        )
        if dialect == "gemini" and out[-1].get("role") == "model":
            out += build.user("go on", False)  # the API takes no two turns of the model with a call in the second
        if kind == "turn":
            ids = [f"c{number}_{k}" for k in range(draw(_CALLS))]
            out += build.turn(ids, [draw(text(200)) for _ in ids], draw(text(60)), thought)
        elif kind == "wild":
            out += draw(_WILD[dialect])(number, draw(text(40)), draw(text(120)))
        elif kind == "user":
            out += build.user(draw(text()), draw(st.integers(0, 7)) == 0)
        else:
            out += build.says(draw(text()), thought)
    if dialect == "gemini" and out[-1].get("role") == "model":
        out += build.user("go on", False)
    return out


@st.composite
def broken(draw: st.DrawFn, dialect: str, most: int = 8) -> list[Wire]:
    """A legal session with things lost, doubled, moved, emptied or damaged on the way."""
    wires = [json.loads(json.dumps(wire)) for wire in draw(legal(dialect, most))]
    for _ in range(draw(st.integers(1, 4))):
        if not wires:
            break
        at = draw(st.integers(0, len(wires) - 1))
        draw(_DAMAGE)(wires, at)
    return wires or BUILDERS[dialect].user("hello", False)


def _lose(wires: list[Wire], at: int) -> None:
    del wires[at]


def _double(wires: list[Wire], at: int) -> None:
    wires.insert(at, json.loads(json.dumps(wires[at])))


def _move(wires: list[Wire], at: int) -> None:
    wires.insert((at * 7 + 3) % len(wires), wires.pop(at))


def _empty(wires: list[Wire], at: int) -> None:
    for key in ("content", "output", "parts"):
        if key in wires[at]:
            wires[at][key] = [None, "", [], "   "][at % 4]


def _surrogate(wires: list[Wire], at: int) -> None:
    for key in ("content", "output"):
        if isinstance(wires[at].get(key), str):
            wires[at][key] = "broken \ud83d here"
    for part in wires[at].get("parts") or ():
        if isinstance(part, dict) and "text" in part:
            part["text"] = "broken \ud83d here"


def _role(wires: list[Wire], at: int) -> None:
    if "role" in wires[at]:
        wires[at]["role"] = ["assistant", "user", "system", "critic"][at % 4]


def _arguments(wires: list[Wire], at: int) -> None:
    for call in wires[at].get("tool_calls") or ():
        call["function"]["arguments"] = '{"cut": "off'
    if "arguments" in wires[at]:
        wires[at]["arguments"] = '{"cut": "off'


def _tail(wires: list[Wire], at: int) -> None:
    del wires[at + 1 :]


_DAMAGES: tuple[Callable[[list[Wire], int], None], ...] = (
    _lose,
    _double,
    _move,
    _empty,
    _surrogate,
    _role,
    _arguments,
    _tail,
    *wild.DAMAGES,
)
_DAMAGE = st.sampled_from(_DAMAGES)
_DIALECT = st.sampled_from(DIALECTS)


@st.composite
def sessions(draw: st.DrawFn) -> tuple[str, list[Wire], bool]:
    """(dialect, messages, whether they are legal)."""
    dialect = draw(_DIALECT)
    if draw(st.booleans()):
        return dialect, draw(legal(dialect)), True
    return dialect, draw(broken(dialect)), False
