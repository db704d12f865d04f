"""The windows that servers told in their errors, kept from one run to the next.

Whoever asks with a key of his own learns for all that he does (`LearnedLimits`). A proxy asks with the keys of others:
what one of them was told is kept for that one alone (`ClientLimits`), beside the rest in the same file.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, MutableMapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, TypeAlias

from foldline.messages import Json
from foldline.store.files import read_json, update_json

__all__ = ["ClientLimits", "LearnedLimits"]

_CLIENTS: Final = "clients"
"""Where the limits of clients stand in the file, as no address is called."""

_MOST_OF_ONE: Final = 64
"""Limits of one client at one address: more models than that are made up."""

_MOST: Final = 2_000

Taught: TypeAlias = tuple[str, str, bytes]
"""A base URL, the name under which a window is learned, and a hash of the credential of who learned it."""


class LearnedLimits(MutableMapping[tuple[str, str], int]):
    """Tokens by (base URL, model), to be handed to `Context(learned=…)`.

    The file is read when this is made and written at each change, with what other processes learned meanwhile. Raises
    InvalidInput when the file is damaged (it can be deleted: all in it is learned again), and OSError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._limits = _limits(read_json(path))

    def __getitem__(self, key: tuple[str, str]) -> int:
        return self._limits[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._limits)

    def __len__(self) -> int:
        return len(self._limits)

    def __setitem__(self, key: tuple[str, str], tokens: int) -> None:
        endpoint, model = key
        if self._limits.get(key) == tokens:
            return

        def learn(kept: dict[str, Json]) -> None:
            models = kept.get(endpoint)
            kept[endpoint] = {**(models if isinstance(models, dict) else {}), model: tokens}
            self._limits = _limits(kept)

        update_json(self._path, learn)

    def __delitem__(self, key: tuple[str, str]) -> None:
        endpoint, model = key
        if key not in self._limits:
            raise KeyError(key)

        def forget(kept: dict[str, Json]) -> None:
            models = kept.get(endpoint)
            left = {name: tokens for name, tokens in models.items() if name != model} if models else {}
            kept.pop(endpoint, None)
            if left:
                kept[endpoint] = left
            self._limits = _limits(kept)

        update_json(self._path, forget)


def _limits(kept: dict[str, Json]) -> dict[tuple[str, str], int]:
    """What is well-formed in the file: the rest can be learned again, and may be from a newer version."""
    return {
        (endpoint, model): tokens
        for endpoint, models in kept.items()
        if isinstance(models, dict)
        for model, tokens in models.items()
        if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0
    }


class ClientLimits:
    """Tokens by (base URL, name, hash of a credential). What stands in the file is hashed once more, with a key of the
    file's own: it tells nobody whose it is. Of many the longest unchanged go.

    The file is read when this is made and written at each change. Raises as `LearnedLimits` does.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._take(read_json(path))

    def get(self, key: Taught, /) -> int | None:
        """The limit under a key; None where there is none."""
        return self._limits.get(self._kept_as(key))

    def __setitem__(self, key: Taught, tokens: int, /) -> None:
        if self.get(key) != tokens:
            update_json(self._path, lambda kept: self._changed(kept, key, tokens))

    def __len__(self) -> int:
        return len(self._limits)

    def _changed(self, kept: dict[str, Json], key: Taught, tokens: int) -> None:
        self._take(kept)  # first: another process may have made the key of the file
        name = self._kept_as(key)
        self._limits.pop(name, None)
        self._limits[name] = tokens
        same = [other for other in self._limits if other[:2] == name[:2]]
        for old in (*same[:-_MOST_OF_ONE], *list(self._limits)[:-_MOST]):
            self._limits.pop(old, None)
        limits: list[Json] = [[*name, limit] for name, limit in self._limits.items()]
        kept[_CLIENTS] = {"salt": self._salt.hex(), "limits": limits}

    def _kept_as(self, key: Taught) -> tuple[str, str, str]:
        endpoint, name, client = key
        whose = blake2b(client, key=self._salt, digest_size=16).hexdigest() if client else ""
        return endpoint, whose, name

    def _take(self, kept: dict[str, Json]) -> None:
        """What is well-formed in the file, the longest unchanged first."""
        found = kept.get(_CLIENTS)
        part: dict[str, Any] = found if isinstance(found, dict) else {}
        salt, limits = part.get("salt"), part.get("limits")
        self._salt = _salt(salt)
        rows: Sequence[Any] = limits if isinstance(limits, list) else ()
        self._limits: dict[tuple[str, str, str], int] = {
            (row[0], row[1], row[2]): row[3]
            for row in rows
            if isinstance(row, list) and len(row) == 4 and all(isinstance(text, str) for text in row[:3])
            if isinstance(row[3], int) and not isinstance(row[3], bool) and row[3] > 0
        }


def _salt(given: Json) -> bytes:
    """The key of a file; a new one where it has none."""
    try:
        return bytes.fromhex(given)[:64] if isinstance(given, str) and given else secrets.token_bytes(16)
    except ValueError:
        return secrets.token_bytes(16)
