"""Secrets in known shapes are taken out of what is logged, shown in an error or summed up.

A shape is what its issuer gives it (a prefix and a length), or the place where it stands (a URL, a header, a field that
is called password). Ordinary words must survive: a summary lives on names such as `pk_orders` and `sk-learn`. So must
hashes, UUIDs and pictures in base64.
"""

from __future__ import annotations

import re

from foldline.text.secret_shapes import HEADERS, NAMED, SHAPES

__all__ = ["REDACTED", "redact"]

REDACTED = "[redacted]"


def redact(text: str) -> str:
    """The text with each secret of a known shape replaced by `[redacted]`. O(size)."""
    # Patterns are compiled when they are first needed: importing this package is not the time to do it.
    text = re.sub(SHAPES, REDACTED, text)
    text = re.sub(HEADERS, lambda found: f"{found[1] or found[2]}{REDACTED}", text)
    return re.sub(NAMED, rf"\1{REDACTED}", text)
