"""Messages of Chat Completions as those of Strands Agents, and back; and the model that its agents are given here."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from strands.models import Model

from foldline.messages import Wire

__all__ = ["RecordedModel", "StrandsHistory", "text_of"]

_ROLE: Final = re.compile(r"\n---\n\[(user|assistant)\]")
_RESULT: Final = re.compile(r"\[(tool) result(?:: [^\n\]]*)?(?: \(error\))?\]")
_CALL: Final = re.compile(r"\[tool call: [^\n\]]+\] ")


def _blocks(wire: Wire) -> list[dict[str, Any]]:
    """The content of a Chat Completions message as the package's blocks."""
    content = wire.get("content")
    if wire["role"] == "tool":
        text = content if isinstance(content, str) else json.dumps(content)
        return [{"toolResult": {"toolUseId": wire["tool_call_id"], "status": "success", "content": [{"text": text}]}}]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    blocks = [_block(part) for part in parts if part.get("type") != "text" or part["text"]]
    for call in wire.get("tool_calls") or ():
        function = call["function"]
        blocks.append(
            {"toolUse": {"toolUseId": call["id"], "name": function["name"], "input": _input(function["arguments"])}}
        )
    return blocks or [{"text": ""}]


def _block(part: Mapping[str, Any]) -> dict[str, Any]:
    url = part.get("image_url", {}).get("url", "")
    if url.startswith("data:"):
        head, _, data = url.partition(",")
        form = head.removeprefix("data:image/").partition(";")[0]
        return {"image": {"format": form, "source": {"bytes": base64.b64decode(data)}}}
    return {"text": part.get("text", url)}


def _input(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _rendered(role: str, blocks: Sequence[Mapping[str, Any]], known: Mapping[int, tuple[Any, Wire]]) -> list[Wire]:
    """A message that the package made or changed: results that it left alone, and its other content."""
    wires: list[Wire] = []
    for block in blocks:
        if "toolResult" in block:
            result = block["toolResult"]
            made = {"role": "tool", "tool_call_id": result["toolUseId"], "content": text_of(result["content"])}
            wires.append(known[id(block)][1] if id(block) in known else made)
    calls = [
        {
            "id": block["toolUse"]["toolUseId"],
            "type": "function",
            "function": {"name": block["toolUse"]["name"], "arguments": _arguments(block["toolUse"]["input"])},
        }
        for block in blocks
        if "toolUse" in block
    ]
    text = text_of(blocks)
    if text or calls or not wires:
        wires.append({"role": role, "content": text or None, **({"tool_calls": calls} if calls else {})})
    return wires


def _arguments(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def text_of(blocks: Iterable[Mapping[str, Any]]) -> str:
    """The texts among the blocks, one below the other."""
    return "\n".join(block["text"] for block in blocks if "text" in block)


def _unflattened(blocks: Sequence[Mapping[str, Any]]) -> Iterator[Wire]:
    """The messages in blocks of text: a block names a role, or the tool of the text that follows."""
    role, texts = "user", list[str]()
    for text in (block.get("text", "") for block in blocks):
        marker = _ROLE.fullmatch(text) or _RESULT.fullmatch(text)
        if marker is None:
            texts.append(text.removeprefix("[tool call: ").replace("] ", " ", 1) if _CALL.match(text) else text)
            continue
        if texts:
            yield {"role": role, "content": "\n".join(texts)}
        role, texts = marker[1], []
    if texts:
        yield {"role": role, "content": "\n".join(texts)}


class StrandsHistory:
    """The session in the package's messages and the way back, by the identity of blocks."""

    def __init__(self) -> None:
        self.system: list[Wire] = []
        self._taken = 0
        self._results: dict[int, tuple[Any, Wire]] = {}
        self._known: dict[tuple[int, ...], tuple[Any, list[Wire]]] = {}

    def prompt(self, messages: Sequence[Mapping[str, Any]], system_prompt: str | None) -> list[Wire]:
        """The prompt of a model call, in Chat Completions."""
        asked: list[Wire] = [{"role": "system", "content": system_prompt or ""}]
        return asked + [wire for message in messages for wire in self.wires(message)]

    def said(self, messages: Sequence[Mapping[str, Any]]) -> list[Wire]:
        """The messages to summarise: all but the question at the end.

        Or, where the package has flattened them into one message, those that its blocks are of.
        """
        if messages[0]["content"][0].get("text") == "<content>":
            return list(_unflattened(messages[0]["content"][1:-1]))
        return [wire for message in messages[:-1] for wire in self.wires(message)]

    def take(self, history: Sequence[Wire]) -> list[dict[str, Any]]:
        """The new messages; consecutive results become one message of the user."""
        made: list[dict[str, Any]] = []
        wires: list[list[Wire]] = []
        merged = False
        for wire in history[self._taken :]:
            if wire["role"] == "system" and self._taken == len(self.system):
                self.system.append(wire)
                self._taken += 1
                continue
            blocks = _blocks(wire)
            is_result = wire["role"] == "tool"
            if is_result:
                self._results[id(blocks[0])] = (blocks[0], wire)
            if is_result and merged:
                made[-1]["content"] += blocks
                wires[-1].append(wire)
            else:
                made.append({"role": "assistant" if wire["role"] == "assistant" else "user", "content": blocks})
                wires.append([wire])
            merged = is_result
            self._taken += 1
        for message, recorded in zip(made, wires, strict=True):
            self._know(message["content"], recorded)
        return made

    def _know(self, blocks: Sequence[Any], wires: list[Wire]) -> list[Wire]:
        # The blocks are kept, so that the identity of none is given to another one.
        self._known[tuple(map(id, blocks))] = (tuple(blocks), wires)
        return wires

    def wires(self, message: Mapping[str, Any]) -> list[Wire]:
        """The recorded message where it is unchanged, else a new one. O(blocks)."""
        blocks = message["content"]
        known = self._known.get(tuple(map(id, blocks)))
        return known[1] if known else self._know(blocks, _rendered(message["role"], blocks, self._results))


class RecordedModel(Model):
    """A model with a window, which answers with the recorded summaries."""

    def __init__(
        self,
        window_tokens: int,
        answer: Callable[[list[Any], str | None], str],
        count: Callable[[list[Any]], int] | None = None,
    ) -> None:
        self._config = {"context_window_limit": window_tokens}
        self._answer = answer
        self._count = count

    async def count_tokens(self, messages: Any, *args: Any, **kwargs: Any) -> int:
        """By the counter that was handed in, or else by the package's own."""
        if self._count is not None:
            return self._count(messages)
        tokens: int = await super().count_tokens(messages, *args, **kwargs)
        return tokens

    def update_config(self, **model_config: Any) -> None:
        """Take other settings."""
        self._config.update(model_config)

    def get_config(self) -> dict[str, Any]:
        """The settings: the window alone."""
        return self._config

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        """Raises TypeError: no agent here asks for it."""
        raise TypeError("a recorded summary is a text")

    async def stream(
        self, messages: Any, tool_specs: Any = None, system_prompt: str | None = None, **kwargs: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """The answer, as the events of a stream."""
        text = self._answer(messages, system_prompt)
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": text}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}
