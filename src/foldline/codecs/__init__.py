"""The dialects: what a message looks like on the wire, and what its provider takes."""

from __future__ import annotations

from foldline.codecs.base import Codec, Sanitized, Violation
from foldline.codecs.dialect import DIALECTS, Dialect, codec, dialect_named

__all__ = ["DIALECTS", "Codec", "Dialect", "Sanitized", "Violation", "codec", "dialect_named"]
