"""Values as JSON bytes: always UTF-8 that every reader takes, whatever a model or a tool has said."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from foldline.messages import Json

__all__ = ["dumped"]


def dumped(value: Json) -> bytes:
    """JSON in UTF-8. Half a surrogate pair is escaped; NaN and the infinities, which JSON has not, become null."""
    try:
        return _text(value, ascii_only=False).encode()
    except UnicodeEncodeError:
        return _text(_finite(value), ascii_only=True).encode()
    except ValueError:
        return dumped(_finite(value))


def _text(value: Json, *, ascii_only: bool) -> str:
    return json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"), allow_nan=False, default=dict)


def _finite(value: Json) -> Json:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
