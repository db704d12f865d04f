"""Windows learned from errors of servers, stored for the next run.

With one's own API key, a window holds for all of one's sessions (`LearnedLimits`). A proxy sends the keys of its
clients: a window learned for one client is used for that client alone (`ClientLimits`). Both share a file.
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

_CLIENTS: Final = "clients"  # the field of `ClientLimits` in the file; no base URL is called that
# Whoever may call the proxy chooses the names of models, so the file needs a bound. At one address; a client with more
# has invented them.
_MAX_PER_CLIENT: Final = 64
_MAX_LIMITS: Final = 2_000

ClientModel: TypeAlias = tuple[str, str, bytes]
"""A base URL, the name of the model, and a hash of the credential that the window was learned with."""


class LearnedLimits(MutableMapping[tuple[str, str], int]):
    """Tokens by (base URL, model), for `Context(learned=…)`.

    The file is read once, and written at each change together with what other processes have learned meanwhile. Raises
    InvalidInput when it is damaged (it can be deleted: everything in it can be learned again), and OSError.
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
        # The same limit is learned at each overflow: the file is written only when something changes.
        endpoint, model = key
        if self._limits.get(key) == tokens:
            return

        def learn(stored: dict[str, Json]) -> None:
            models = stored.get(endpoint)
            stored[endpoint] = {**(models if isinstance(models, dict) else {}), model: tokens}
            self._limits = _limits(stored)

        update_json(self._path, learn)

    def __delitem__(self, key: tuple[str, str]) -> None:
        endpoint, model = key
        if key not in self._limits:
            raise KeyError(key)

        def forget(stored: dict[str, Json]) -> None:
            models = stored.get(endpoint)
            left = {name: tokens for name, tokens in models.items() if name != model} if models else {}
            stored.pop(endpoint, None)
            if left:
                stored[endpoint] = left
            self._limits = _limits(stored)

        update_json(self._path, forget)


def _limits(stored: dict[str, Json]) -> dict[tuple[str, str], int]:
    """The well-formed limits of the file. The rest may be from a newer version, and can be learned again."""
    return {
        (endpoint, model): tokens
        for endpoint, models in stored.items()
        if isinstance(models, dict)
        for model, tokens in models.items()
        if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0
    }


class ClientLimits:
    """Tokens by (base URL, model, hash of a credential).

    The file holds that hash hashed again with a salt of its own, so that it identifies no client elsewhere. Beyond a
    maximum the longest unchanged limits are dropped. The file is read once and written at each change. Raises as
    `LearnedLimits` does.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._load(read_json(path))

    def get(self, key: ClientModel, /) -> int | None:
        """The limit for a key; None when there is none."""
        return self._limits.get(self._stored_key(key))

    def __setitem__(self, key: ClientModel, tokens: int, /) -> None:
        if self.get(key) != tokens:
            update_json(self._path, lambda stored: self._changed(stored, key, tokens))

    def __len__(self) -> int:
        return len(self._limits)

    def _changed(self, stored: dict[str, Json], key: ClientModel, tokens: int) -> None:
        self._load(stored)  # first: another process may have created the salt
        name = self._stored_key(key)
        self._limits.pop(name, None)  # to the end of the dict: its order is the order of change
        self._limits[name] = tokens
        same = [other for other in self._limits if other[:2] == name[:2]]
        for old in (*same[:-_MAX_PER_CLIENT], *list(self._limits)[:-_MAX_LIMITS]):
            self._limits.pop(old, None)
        limits: list[Json] = [[*name, limit] for name, limit in self._limits.items()]
        stored[_CLIENTS] = {"salt": self._salt.hex(), "limits": limits}

    def _stored_key(self, key: ClientModel) -> tuple[str, str, str]:
        endpoint, name, client = key
        # Keyed with the salt of this file: the same credential gives another hash elsewhere, so two files cannot be
        # compared, and a table of hashed credentials is of no use. 16 bytes tell any number of clients apart.
        whose = blake2b(client, key=self._salt, digest_size=16).hexdigest() if client else ""
        return endpoint, whose, name

    def _load(self, stored: dict[str, Json]) -> None:
        """Read the well-formed limits of the file, the longest unchanged first."""
        # Anything malformed is dropped and learned again, at the price of one refused request.
        found = stored.get(_CLIENTS)
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


def _salt(text: Json) -> bytes:
    """The salt of a file; a new one when it has none."""
    try:
        return bytes.fromhex(text)[:64] if isinstance(text, str) and text else secrets.token_bytes(16)
    except ValueError:
        return secrets.token_bytes(16)
