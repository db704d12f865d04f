"""What an entry of a schedule may hold in a settings file: the check of each of its fields."""

from __future__ import annotations

import ipaddress
import re
from pathlib import PurePosixPath, PureWindowsPath
from typing import Final
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from foldline.agent.settings.schedule import Cron, delivery
from foldline.agent.settings.specs import NAME, Block, Listed, flag, one_of, shown, text, url, variable, whole, word
from foldline.agent.settings.values import policy_names
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.store.recording import ID

__all__ = ["ENTRY"]

_DURATION = re.compile(r"([0-9]{1,6})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def _cron(value: Json) -> Cron:
    return Cron.read(word(value))


def _timezone(value: Json) -> str:
    found = word(value)
    try:
        ZoneInfo(found)
    except (KeyError, ValueError, OSError):  # no such zone; a path; a folder of zones
        raise InvalidInput(f"must be a time zone like Europe/Berlin, not {shown(value)}") from None
    return found


def _session_name(value: Json) -> str:
    found = word(value)
    if not NAME.fullmatch(found) and not ID.fullmatch(found):
        raise InvalidInput(f"must be a name, new, or the id of a session, not {shown(value)}")
    return found


def _duration(value: Json) -> float:
    """Seconds, from a text like 90s, 30m, 12h or 2d."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[1]) == 0:
        raise InvalidInput(f"must be a time like 90s, 30m, 12h or 2d, not {shown(value)}")
    return float(int(match[1]) * _SECONDS[match[2]])


def _file(value: Json) -> str:
    found = word(value)
    pure = PurePosixPath(found)
    if pure.is_absolute() or PureWindowsPath(found).anchor or ".." in pure.parts or not pure.name:
        raise InvalidInput(f"must be a path of a file within the workspace, not {shown(value)}")
    if "{" in (rest := found.replace("{date}", "")) or "}" in rest:
        raise InvalidInput(f"may have {{date}} in it and no other braces, not {shown(value)}")
    return found


def _webhook(value: Json) -> str:
    found = url(value)
    host, scheme = urlsplit(found).hostname or "", urlsplit(found).scheme
    if "$" in urlsplit(found).netloc:
        raise InvalidInput("must name its host: ${NAME} may stand behind it only")
    if scheme != "https" and not _is_loopback(host):
        raise InvalidInput(f"must be an https address (http only to this machine), not {shown(value)}")
    return found


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _chat(value: Json) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 < abs(value) < 2**53:
        return value
    if isinstance(value, str) and re.fullmatch(r"@[A-Za-z][A-Za-z0-9_]{3,31}", value):
        return value
    raise InvalidInput(f"must be the number of a chat, or the @name of a channel, not {shown(value)}")


ENTRY: Final = Block(
    {
        "cron": _cron,
        "timezone": _timezone,
        "prompt": text,
        "session": _session_name,
        "deliver": Listed(
            Block(
                {
                    "file": _file,
                    "mode": one_of("replace", "append"),
                    "webhook": _webhook,
                    "secret_env": variable,
                    "telegram": _chat,
                    "thread": whole(1, 2**31 - 1),
                }
            ),
            delivery,
        ),
        "enabled": flag,
        "max_late": _duration,
        "policy": one_of(*policy_names()),
    }
)
