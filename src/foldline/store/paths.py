"""Paths of Foldline's files: in the platform's folders (XDG on Linux), or under FOLDLINE_HOME.

Nothing is created or read here. Writers create a folder with `make_private_folder`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from foldline.errors import MissingExtra

try:
    import platformdirs
except ImportError as error:
    raise MissingExtra("chat", "keeping sessions") from error

__all__ = [
    "cache_folder",
    "calls_path",
    "compaction_key_path",
    "config_folder",
    "config_path",
    "conversations_path",
    "data_folder",
    "history_path",
    "learned_path",
    "sessions_path",
    "state_folder",
    "trusted_path",
]

APP = "foldline"
HOME = "FOLDLINE_HOME"


def _folder(kind: str, environ: Mapping[str, str] | None) -> Path:
    # Read at each call: tests and servers set the variable after this module was imported.
    home = (os.environ if environ is None else environ).get(HOME)
    if home:
        return Path(os.path.abspath(os.path.expanduser(home))) / kind
    folders = {
        "data": platformdirs.user_data_path,
        "config": platformdirs.user_config_path,
        "state": platformdirs.user_state_path,
        "cache": platformdirs.user_cache_path,
    }
    return folders[kind](APP, appauthor=False)


def data_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Data that must last: sessions with their archives, the record of model calls."""
    return _folder("data", environ)


def config_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Files that the user writes."""
    return _folder("config", environ)


def state_folder(environ: Mapping[str, str] | None = None) -> Path:
    """State carried from one run to the next."""
    return _folder("state", environ)


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Data that can be fetched or computed again."""
    return _folder("cache", environ)


def sessions_path(environ: Mapping[str, str] | None = None) -> Path:
    """The store of the agent's sessions."""
    return data_folder(environ) / "sessions"


def conversations_path(environ: Mapping[str, str] | None = None) -> Path:
    """The store of the conversations that the proxy has folded."""
    return data_folder(environ) / "conversations"


def calls_path(environ: Mapping[str, str] | None = None) -> Path:
    """The SQLite file of model calls."""
    return data_folder(environ) / "llm_calls.sqlite"


def compaction_key_path(environ: Mapping[str, str] | None = None) -> Path:
    """The key with which the proxy signs compactions. Beside its store, not in it: clients keep what it has signed."""
    return data_folder(environ) / "compaction.key"


def config_path(environ: Mapping[str, str] | None = None) -> Path:
    """The user's own `agents.yaml`."""
    return config_folder(environ) / "agents.yaml"


def history_path(environ: Mapping[str, str] | None = None) -> Path:
    """The history of the prompt."""
    return state_folder(environ) / "history"


def learned_path(environ: Mapping[str, str] | None = None) -> Path:
    """Windows learned from errors of servers (`store.learned_limits`)."""
    return state_folder(environ) / "learned.json"


def trusted_path(environ: Mapping[str, str] | None = None) -> Path:
    """The project settings files that the user trusts (`agent.settings.file.trust_file`)."""
    return state_folder(environ) / "trusted.json"
