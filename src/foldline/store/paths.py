"""Where files are kept: the folders of the platform (XDG on Linux), or those under FOLDLINE_HOME.

Nothing is made or read here. Whoever writes makes the folder with `make_private_folder`.
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
    """What must last: sessions and their archives, the table of calls."""
    return _folder("data", environ)


def config_folder(environ: Mapping[str, str] | None = None) -> Path:
    """What the user writes."""
    return _folder("config", environ)


def state_folder(environ: Mapping[str, str] | None = None) -> Path:
    """What is remembered from one run to the next."""
    return _folder("state", environ)


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """What can be had again."""
    return _folder("cache", environ)


def sessions_path(environ: Mapping[str, str] | None = None) -> Path:
    """The folder of the sessions, one folder each."""
    return data_folder(environ) / "sessions"


def conversations_path(environ: Mapping[str, str] | None = None) -> Path:
    """The folder of the conversations that the proxy has folded."""
    return data_folder(environ) / "conversations"


def calls_path(environ: Mapping[str, str] | None = None) -> Path:
    """The SQLite file of the calls of models."""
    return data_folder(environ) / "llm_calls.sqlite"


def config_path(environ: Mapping[str, str] | None = None) -> Path:
    """The user's own `agents.yaml`."""
    return config_folder(environ) / "agents.yaml"


def history_path(environ: Mapping[str, str] | None = None) -> Path:
    """What was typed at the prompt."""
    return state_folder(environ) / "history"


def learned_path(environ: Mapping[str, str] | None = None) -> Path:
    """The windows that servers told in their errors (`store.learned`)."""
    return state_folder(environ) / "learned.json"


def trusted_path(environ: Mapping[str, str] | None = None) -> Path:
    """The settings files of projects that the user trusts (`agent.trust`)."""
    return state_folder(environ) / "trusted.json"
