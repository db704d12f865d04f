"""Which dialect is spoken at a path: known by how the path ends, as providers put different things before it."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote

from foldline.codecs.dialect import ROWS, Path

__all__ = ["as_event_stream", "dialect_of", "is_streamed_at", "model_at", "path_of", "with_model_at"]

# Where a path names the model: Azure (`/openai/deployments/{name}/…`), Vertex and Gemini (`/models/{name}:method`),
# hosts that put a repository before a dialect's path (`/models/{owner}/{name}/v1/…`), Bedrock (`/model/{id}/invoke`).
# Sources: "Azure OpenAI REST API reference"; Vertex AI, "publishers.models"; Bedrock, "InvokeModel" and "Converse".
_NAMED: Final = (
    re.compile(r"/deployments/(?P<model>[^/]+)/"),
    re.compile(r"/models?/(?P<model>[^/:]+(?:/[^/:]+)?):[A-Za-z]+$"),
    re.compile(
        r"/models?/(?P<model>.+?)/(?:v\d\w*/)?(?:chat/completions|responses|messages(?:/count_tokens)?|embeddings)$"
    ),
    re.compile(r"/model/(?P<model>[^/]+)/"),
)

_LONGEST_NAME_CHARS: Final = 500

# What ends like a dialect's path and is none: a message that is added to a thread of OpenAI's Assistants.
_OTHERS: Final = re.compile(r"/threads/[^/]*/messages$")


def path_of(method: str, path: str) -> tuple[str, Path | None]:
    """The dialect that is spoken at a path, and how its path is known; "" and None for none."""
    if method == "POST":
        plain = path.rstrip("/")
        for row in ROWS.values():
            for known in row.paths:
                if known.ending.search(plain) and not _OTHERS.search(plain):
                    return row.name, known
    return "", None


def dialect_of(method: str, path: str) -> tuple[str, bool]:
    """The dialect that is spoken at a path ("" for none), and whether only tokens are to be counted."""
    dialect, known = path_of(method, path)
    return dialect, known is not None and known.counting


def is_streamed_at(path: str) -> bool:
    """Whether a path asks for a stream by itself, so that the body need not (Gemini, Vertex AI, Bedrock)."""
    known = path_of("POST", path)[1]
    return known is not None and known.streamed


def model_at(path: str) -> str:
    """The model that a path names, decoded; "" where it names none."""
    found = _named_in(path)
    name = unquote(found["model"]) if found else ""
    return name if len(name) <= _LONGEST_NAME_CHARS else ""


def with_model_at(path: str, model: str) -> str:
    """The path with another model in the place where it names one; the same path where it names none."""
    found = _named_in(path)
    if found is None:
        return path
    start, stop = found.span("model")
    return path[:start] + quote(model, safe="/" if "/" in found["model"] else "") + path[stop:]


_METHOD: Final = re.compile(r":(?:stream)?[gG]enerateContent$")


def as_event_stream(target: str) -> str:
    """A path and query of Gemini at which the reply comes as a stream of events; any other as it is."""
    path, _, query = target.partition("?")
    if _METHOD.search(path) is None:
        return target
    kept = [pair for pair in query.split("&") if pair and not pair.startswith("alt=")]
    return f"{_METHOD.sub(':streamGenerateContent', path)}?{'&'.join([*kept, 'alt=sse'])}"


def _named_in(path: str) -> re.Match[str] | None:
    plain = path.rstrip("/")
    return next((found for found in (named.search(plain) for named in _NAMED) if found), None)
