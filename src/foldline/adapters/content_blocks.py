"""Blocks of a framework's messages as blocks of Chat Completions: what is counted of each, and the way back.

For frameworks that have forms of their own for every provider. A block that nothing has shortened goes out as it is:
what it looks like to a provider is the framework's business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from foldline.codecs import codec
from foldline.messages import Json, Wire

__all__ = ["chat_call", "chat_tool", "counted_block", "restored_blocks"]

_IMAGES: Final = frozenset({"image", "image_url", "input_image"})
# Longer texts in a block that is neither text nor an image are bytes of a file.
_MOST_TOLD_CHARS: Final = 2_000
_CHAT: Final = codec("openai-chat")


def chat_call(call_id: str, name: str, arguments: str) -> Json:
    """A call of a tool; `arguments` is JSON text."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def chat_tool(name: str, description: str | None, parameters: Any) -> Json:
    """The definition of a tool."""
    return {
        "type": "function",
        "function": {"name": name, "description": description or "", "parameters": parameters},
    }


def counted_block(block: str | Mapping[str, Any], role: str) -> Json:
    """A block as it is counted, and as it may be shortened, in a message of this role. O(its size)."""
    if isinstance(block, str):
        return {"type": "text", "text": block}
    kind = block.get("type")
    if kind in (None, "text") and isinstance(block.get("text"), str):
        return block if kind else {"type": "text", "text": block["text"]}
    # In Chat Completions only the user's messages hold more than text: elsewhere a line stands for it.
    return (_media(block) if role == "user" else None) or {"type": "text", "text": f"[{kind}] {_told(block)}"}


def restored_blocks(wire: Wire, before: Wire, own: Sequence[Any]) -> list[list[Any]]:
    """For each block of a message what to send in its place: itself where it is shown whole. O(blocks).

    `own` are the blocks whose `counted_block` is the content of `before`; `wire` is the message to send.
    """
    content = wire.get("content") or []
    shown = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    forms = [before["content"]]
    # What only a rule of Chat Completions has changed is as it was.
    mended = _CHAT.sanitize(_CHAT.read(before)).message
    if mended is not None:
        changed = _CHAT.write(mended).get("content")
        forms += [changed] if isinstance(changed, list) and len(changed) == len(own) else []
    out: list[list[Any]] = [[] for _ in own]
    left: list[Any] = []
    for block in shown:
        place = next((at for form in forms for at, one in enumerate(form) if one == block and not out[at]), None)
        if place is None:
            left.append(block)
        else:
            out[place] = [own[place]]
    # What is new stands where the first block was that it may stand for.
    for block in left:
        place = next((at for at, sent in enumerate(out) if not sent), len(out) - 1)
        if place < 0:
            out.append([block])
        else:
            out[place] = [*out[place], block]
    return out


def _media(block: Mapping[str, Any]) -> Json | None:
    """An image or a PDF file in the form of Chat Completions; None for anything else."""
    source = next((block[name] for name in ("source", "file") if isinstance(block.get(name), Mapping)), block)
    data = source.get("base64") or source.get("data")
    kind = str(source.get("mime_type") or source.get("media_type") or "")
    url = block.get("image_url") or source.get("url") or source.get("file_data")
    url = url.get("url") if isinstance(url, Mapping) else url
    if isinstance(data, str):
        url = f"data:{kind};base64,{data}"
    if not isinstance(url, str):
        return None
    if block.get("type") in _IMAGES or kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    if url.startswith("data:application/pdf"):
        return {"type": "file", "file": {"file_data": url, "filename": "file.pdf"}}
    return None


def _told(value: object) -> str:
    """A block as JSON, without the bytes of files in it. O(its size)."""

    def short(inner: Any) -> Any:
        if isinstance(inner, Mapping):
            return {str(key): short(value) for key, value in inner.items()}
        if isinstance(inner, list | tuple):
            return [short(value) for value in inner]
        if isinstance(inner, str | bytes) and len(inner) > _MOST_TOLD_CHARS:
            return f"({len(inner)} characters)"
        return inner

    return json.dumps(short(value), ensure_ascii=False, default=str)
