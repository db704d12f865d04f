"""The three dialects: what a message looks like on the wire, and what its provider takes."""

from __future__ import annotations

from typing import Final

from foldline.codecs.anthropic import Anthropic
from foldline.codecs.base import Codec, Sanitized, Violation
from foldline.codecs.openai_chat import OpenAIChat
from foldline.codecs.openai_responses import OpenAIResponses
from foldline.errors import InvalidInput

__all__ = ["DIALECTS", "Codec", "Sanitized", "Violation", "codec"]

_CODECS: Final[dict[str, Codec]] = {each.dialect: each for each in (OpenAIChat(), OpenAIResponses(), Anthropic())}

DIALECTS: Final = ("openai-chat", "openai-responses", "anthropic")


def codec(dialect: str) -> Codec:
    """The codec of a dialect. Raises InvalidInput, which names the known ones, for any other."""
    found = _CODECS.get(dialect)
    if found is None:
        raise InvalidInput(f"unknown dialect {dialect!r}; known are {', '.join(DIALECTS)}", place="dialect")
    return found
