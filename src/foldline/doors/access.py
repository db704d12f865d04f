"""Access to the servers: the token that clients must show, and the host names that a server answers to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from foldline.errors import InvalidInput

__all__ = ["TOKEN", "names_of", "token_of"]

TOKEN: Final = "FOLDLINE_TOKEN"
"""The environment variable that holds the token. Every process can read a command line."""

_TOKEN_CHARS: Final = 16
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def token_of(token_file: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the token that clients must show; None if none is needed. Raises InvalidInput for a bad token, and
    OSError.
    """
    if token_file is not None:
        token, place = Path(token_file).expanduser().read_text("utf-8").strip(), f"--token-file {token_file}"
    else:
        token, place = environ.get(TOKEN, "").strip(), TOKEN
        if not token:
            return None
    # Visible ASCII only: the token travels in a header and in a path.
    if len(token) < _TOKEN_CHARS or not re.fullmatch("[!-~]+", token):
        raise InvalidInput(f"must be a token of at least {_TOKEN_CHARS} letters, digits and signs", place=place)
    return token


def names_of(host: str, token: str | None, allow_host: tuple[str, ...]) -> frozenset[str] | None:
    """Return the host names that a server at this address answers to; None for any.

    Raises InvalidInput if other machines could connect without a token.
    """
    from foldline.doors.http.server import is_loopback

    local = is_loopback(host)
    if not local and token is None:
        why = f"can be reached by others, so a token is needed: --token-file, or {TOKEN}"
        raise InvalidInput(why, place=f"--host {host}")
    if allow_host and token is None:
        why = f"others come through that proxy, so a token is needed: --token-file, or {TOKEN}"
        raise InvalidInput(why, place=f"--allow-host {allow_host[0][:100]}")
    # Checked against the Host header: without it, a page on any site could reach a server on loopback by DNS rebinding.
    names = {name.lower().rstrip(".") for name in allow_host}
    return frozenset(names | _LOOPBACK | {host.lower()}) if local or names else None
