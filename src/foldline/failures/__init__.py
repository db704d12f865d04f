"""Why a request failed: the kind of an error, its figures, and replies that were cut without an error.

`classify` names the kind. The wordings it knows are the rows of one table, `foldline.failures.wordings`.
"""

from __future__ import annotations

from foldline.failures.classification import (
    NEAR_WINDOW,
    Failure,
    believable,
    classify,
    silent_truncation,
)
from foldline.failures.figures import LimitOf
from foldline.failures.parts import PartKind, RefusedPart
from foldline.failures.wordings import Kind, Wording
from foldline.text.redaction import redact

__all__ = [
    "NEAR_WINDOW",
    "Failure",
    "Kind",
    "LimitOf",
    "PartKind",
    "RefusedPart",
    "Wording",
    "believable",
    "classify",
    "redact",
    "silent_truncation",
]
