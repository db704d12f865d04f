"""What a client's own settings files say of its upstream. They are read, and never written."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from foldline.errors import InvalidInput

__all__ = ["ClientSettings", "claude_settings", "codex_settings", "gemini_settings"]

_CLAUDE_VARIABLE: Final = "ANTHROPIC_BASE_URL"
# Modes in which Claude Code asks a cloud, at an address of another variable and with another signature.
_CLAUDE_CLOUDS: Final = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """`upstreams` are addresses by the name of their API; `values` are further values of the row's templates.

    `arguments` are added to those of the row. `hint` is said where no request came.
    """

    upstreams: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    hint: str = ""


def claude_settings(environ: Mapping[str, str]) -> ClientSettings:
    """The variables that Claude Code's settings set. They win over the environment, and `--settings` over them.

    Source: Claude Code, "Settings", sections "Settings precedence" and "env". Raises InvalidInput for a cloud.
    """
    home = Path(environ.get("CLAUDE_CONFIG_DIR") or Path(environ.get("HOME", "~")).expanduser() / ".claude")
    project = Path(".claude")
    set_here: dict[str, str] = {}
    for path in (home / "settings.json", project / "settings.json", project / "settings.local.json"):
        found = _json(path).get("env")
        set_here |= found if isinstance(found, dict) else {}
    both = {**environ, **set_here}
    for cloud in _CLAUDE_CLOUDS:
        if both.get(cloud, "") not in {"", "0", "false"}:
            why = "asks a cloud by an address of its own: foldline proxy, with the variable that docs/clients.md names"
            raise InvalidInput(why, place=cloud)
    if _CLAUDE_VARIABLE not in set_here:
        return ClientSettings()
    return ClientSettings(
        upstreams={"anthropic": str(set_here[_CLAUDE_VARIABLE])},
        arguments=("--settings", json.dumps({"env": {_CLAUDE_VARIABLE: "$anthropic"}})),
    )


def codex_settings(environ: Mapping[str, str]) -> ClientSettings:
    """The provider of Codex's config.toml: its address, and the key that sets another one.

    Source: Codex, "Config", `model_provider`, `model_providers`, `openai_base_url`, `profile`.
    """
    home = Path(environ.get("CODEX_HOME") or Path(environ.get("HOME", "~")).expanduser() / ".codex")
    config = _toml(home / "config.toml")
    profile = _table(_table(config, "profiles"), str(config.get("profile", "")))
    name = str(profile.get("model_provider") or config.get("model_provider") or "openai")
    own = _table(_table(config, "model_providers"), name)
    key = f"model_providers.{name}.base_url" if own else "openai_base_url"
    address = own.get("base_url") if own else config.get("openai_base_url")
    upstreams = {"openai": address} if isinstance(address, str) and address else {}
    return ClientSettings(upstreams=upstreams, values={"key": key})


def gemini_settings(environ: Mapping[str, str]) -> ClientSettings:
    """What stands in the way of Gemini CLI without a terminal.

    With a base URL it takes itself to be behind a gateway, and then starts without a terminal only where its settings
    name a sign-in (version 0.61.0). They are the user's, so it can only be said.
    """
    home = Path(environ.get("GEMINI_CLI_HOME") or environ.get("HOME", "~")).expanduser()
    for path in (home / ".gemini" / "settings.json", Path(".gemini") / "settings.json"):
        if _table(_table(_json(path), "security"), "auth").get("selectedType"):
            return ClientSettings()
    where = 'security.auth.selectedType in .gemini/settings.json, "gemini-api-key" for a key'
    return ClientSettings(hint=f"without a terminal Gemini CLI needs {where}, where a base URL is set")


def _table(within: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = within.get(name)
    return found if isinstance(found, dict) else {}


def _json(path: Path) -> Mapping[str, Any]:
    """The object in a file; {} where there is none. One that is damaged is its client's to complain about."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
