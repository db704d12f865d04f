"""Files that belong to pages: read once, answered with their tags."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

__all__ = ["Asset", "asset_answer", "assets"]

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/vnd.microsoft.icon",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file with its media type and its entity tag (RFC 9110, 8.8.3)."""

    data: bytes
    media_type: str
    tag: str


@cache
def assets(package: str, folder: str) -> Mapping[str, Asset]:
    """The files in a folder of a package, by their names, read once; no others can be asked for."""
    found = {}
    for one in (files(package) / folder).iterdir():
        media_type = _TYPES.get(one.name.rpartition(".")[2])
        if media_type is not None and one.is_file():
            data = one.read_bytes()
            found[one.name] = Asset(data, media_type, f'"{hashlib.sha256(data).hexdigest()[:32]}"')
    return found


def asset_answer(asset: Asset, request: Request) -> Response:
    """A file, or word that the client has it already."""
    headers = {"ETag": asset.tag, "Cache-Control": "no-cache"}
    if asset.tag in _tags(request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    return Response(asset.data, headers=headers, media_type=asset.media_type)


def _tags(header: str) -> Collection[str]:
    return [one.strip().removeprefix("W/") for one in header.split(",")]
