"""The dialects: the form of messages on the wire, and the rules of the providers that read them."""

from __future__ import annotations

from foldline.codecs.base import Codec, Dialect, Sanitized
from foldline.codecs.dialect import DIALECTS, codec, dialect_named
from foldline.codecs.rulebook import Violation

__all__ = ["DIALECTS", "Codec", "Dialect", "Sanitized", "Violation", "codec", "dialect_named"]
