"""The `output` field of Responses, whose shape depends on the kind of call.

Source: OpenAI API reference, Responses, the items whose type ends in "_call_output".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from foldline.codecs.blocks import read_block, read_content, settle_block, settle_content
from foldline.messages import Image, Json, Part, Text, Wire

__all__ = ["OUTPUT", "empty_output", "is_output", "read_output", "settle_output"]

OUTPUT: Final = "output"

# One black pixel. The output of a computer call must be a picture, so this replaces one that is not shown.
_BLANK_SCREEN: Final = {
    "type": "computer_screenshot",
    "image_url": (
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNgAAAAAgAB5Sfe/AAAAABJRU5ErkJggg=="
    ),
}


def is_output(kind: str) -> bool:
    """Whether an item of this type is the client's result of a call."""
    return kind.endswith("_call_output")


def empty_output(kind: str, text: str = "") -> Json:
    """Return an output with `text` in the shape of this kind of item; that of a computer call is a blank picture."""
    if kind == "computer_call_output":
        return dict(_BLANK_SCREEN)
    return [_shell_chunk(text, {})] if kind == "shell_call_output" else text


def _shell_chunk(text: str, base: Mapping[str, Any]) -> dict[str, Any]:
    # The text of an edited chunk goes to stdout: what was stderr can no longer be told apart.
    return {"outcome": {"type": "exit", "exit_code": 0}, **base, "stdout": text, "stderr": ""}


def _shell_text(chunk: Mapping[str, Any]) -> str:
    found = (chunk.get(stream) for stream in ("stdout", "stderr"))
    return "\n".join(text for text in found if isinstance(text, str) and text)


def _read_chunk(chunk: Json) -> Part:
    if isinstance(chunk, Mapping) and "type" not in chunk and ("stdout" in chunk or "stderr" in chunk):
        return Text(_shell_text(chunk), raw=chunk)
    return read_block(chunk)


def read_output(item: Wire, kind: str) -> tuple[Part, ...]:
    """Return the parts of an output: text, blocks, one screenshot, or chunks of a shell (stdout, then stderr)."""
    return read_content(item.get(OUTPUT), _read_chunk if kind == "shell_call_output" else read_block)


def _settle_chunk(part: Part) -> Part:
    if not isinstance(part, Text):
        return settle_block(part, "input_text")
    raw = part.raw if isinstance(part.raw, Mapping) and "type" not in part.raw else {}
    return part if raw and _shell_text(raw) == part.text else replace(part, raw=_shell_chunk(part.text, raw))


def settle_output(base: Json, parts: Sequence[Part], kind: str) -> tuple[Json, tuple[Part, ...]]:
    """Return the output made of `parts`, and the parts as they are sent. A picture that became text is blank."""
    if kind == "computer_call_output":
        # The API accepts one screenshot, so the first one is sent.
        screens = [part for part in parts if isinstance(part, Image) and part.raw is not None]
        return (screens[0].raw, tuple(screens[:1])) if screens else (dict(_BLANK_SCREEN), (read_block(_BLANK_SCREEN),))
    if kind == "shell_call_output":
        settled = tuple(map(_settle_chunk, parts))
        return [part.raw for part in settled], settled
    return settle_content(base, parts, lambda part: settle_block(part, "input_text"))
