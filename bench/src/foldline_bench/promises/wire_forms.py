"""Messages as a client of each dialect writes them, from the same few words."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from foldline.messages import Wire

__all__ = ["FORMS", "AskedCall", "CallResult", "WireForm"]


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A call of a tool by the model."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a call; `failed` marks it as an error where the dialect has a mark for that."""

    call: AskedCall
    text: str
    failed: bool = False


class WireForm(ABC):
    """How a dialect writes what is said; each method returns the messages that its words become."""

    dialect: str
    system_inside: bool = False
    """Whether system text is a message."""
    marks_failures: bool = False
    """Whether a result can be marked as an error."""

    @abstractmethod
    def user(self, text: str, images: Sequence[str] = ()) -> list[Wire]:
        """Words of the user; images are PNG files in base64."""

    @abstractmethod
    def assistant(self, text: str, calls: Sequence[AskedCall] = ()) -> list[Wire]:
        """A turn of the model: words, and calls of tools."""

    @abstractmethod
    def results(self, results: Sequence[CallResult]) -> list[Wire]:
        """Results of calls that arrive together."""


class _Chat(WireForm):
    dialect = "openai-chat"
    system_inside = True

    def user(self, text: str, images: Sequence[str] = ()) -> list[Wire]:
        if not images:
            return [{"role": "user", "content": text}]
        urls = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}} for data in images]
        return [{"role": "user", "content": [{"type": "text", "text": text}, *urls]}]

    def assistant(self, text: str, calls: Sequence[AskedCall] = ()) -> list[Wire]:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _json(call)}}
                for call in calls
            ]
        return [message]

    def results(self, results: Sequence[CallResult]) -> list[Wire]:
        return [{"role": "tool", "tool_call_id": one.call.id, "content": one.text} for one in results]


class _Responses(WireForm):
    dialect = "openai-responses"

    def user(self, text: str, images: Sequence[str] = ()) -> list[Wire]:
        urls = [{"type": "input_image", "image_url": f"data:image/png;base64,{data}"} for data in images]
        content = [{"type": "input_text", "text": text}, *urls]
        return [{"type": "message", "role": "user", "content": content}]

    def assistant(self, text: str, calls: Sequence[AskedCall] = ()) -> list[Wire]:
        said: list[Wire] = []
        if text or not calls:
            content = [{"type": "output_text", "text": text, "annotations": []}]
            said.append({"type": "message", "role": "assistant", "content": content})
        return said + [
            {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": _json(call)} for call in calls
        ]

    def results(self, results: Sequence[CallResult]) -> list[Wire]:
        return [{"type": "function_call_output", "call_id": one.call.id, "output": one.text} for one in results]


class _Anthropic(WireForm):
    dialect = "anthropic"
    marks_failures = True

    def user(self, text: str, images: Sequence[str] = ()) -> list[Wire]:
        sources = [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}} for data in images
        ]
        return [{"role": "user", "content": [*sources, {"type": "text", "text": text}]}]

    def assistant(self, text: str, calls: Sequence[AskedCall] = ()) -> list[Wire]:
        words = [{"type": "text", "text": text}] if text or not calls else []
        asked = [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)} for call in calls
        ]
        return [{"role": "assistant", "content": [*words, *asked]}]

    def results(self, results: Sequence[CallResult]) -> list[Wire]:
        content = [
            {"type": "tool_result", "tool_use_id": one.call.id, "content": one.text}
            | ({"is_error": True} if one.failed else {})
            for one in results
        ]
        return [{"role": "user", "content": content}]


class _Gemini(WireForm):
    dialect = "gemini"

    def user(self, text: str, images: Sequence[str] = ()) -> list[Wire]:
        inline = [{"inlineData": {"mimeType": "image/png", "data": data}} for data in images]
        return [{"role": "user", "parts": [*inline, {"text": text}]}]

    def assistant(self, text: str, calls: Sequence[AskedCall] = ()) -> list[Wire]:
        parts: list[dict[str, Any]] = [{"text": text}] if text or not calls else []
        asked: list[dict[str, Any]] = [
            {"functionCall": {"id": call.id, "name": call.name, "args": dict(call.arguments)}} for call in calls
        ]
        if asked:  # "Thought signatures": the first call of a step carries one
            asked[0]["thoughtSignature"] = "c2lnbmVk"
        return [{"role": "model", "parts": [*parts, *asked]}]

    def results(self, results: Sequence[CallResult]) -> list[Wire]:
        parts = [
            {
                "functionResponse": {
                    "id": one.call.id,
                    "name": one.call.name,
                    "response": {"error" if one.failed else "output": one.text},
                }
            }
            for one in results
        ]
        return [{"role": "user", "parts": parts}]


def _json(call: AskedCall) -> str:
    return json.dumps(call.arguments, ensure_ascii=False)


FORMS: Final[Mapping[str, WireForm]] = {form.dialect: form for form in (_Chat(), _Responses(), _Anthropic(), _Gemini())}
"""The form of each dialect."""
