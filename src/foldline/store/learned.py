"""The windows that servers told in their errors, kept from one run to the next."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from pathlib import Path

from foldline.messages import Json
from foldline.store.kept_json import change_json, read_json

__all__ = ["LearnedLimits"]


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

        change_json(self._path, learn)

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

        change_json(self._path, forget)


def _limits(kept: dict[str, Json]) -> dict[tuple[str, str], int]:
    """What is well-formed in the file: the rest can be learned again, and may be from a newer version."""
    return {
        (endpoint, model): tokens
        for endpoint, models in kept.items()
        if isinstance(models, dict)
        for model, tokens in models.items()
        if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0
    }
