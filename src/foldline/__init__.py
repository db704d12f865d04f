"""Foldline keeps LLM agents inside their context window: valid requests, nothing lost, a low bill."""

from __future__ import annotations

from foldline.catalog.models import lookup
from foldline.codecs.base import Violation
from foldline.engine.context import Completion, Context, Request
from foldline.engine.fitting import Fit, check, count, fit
from foldline.engine.policy import POLICIES, Policy
from foldline.engine.recovery import Recovery
from foldline.errors import (
    DoesNotFit,
    FoldlineError,
    FoldRefused,
    InvalidInput,
    MissingExtra,
    ProviderError,
    SummaryError,
)
from foldline.failures import Failure, classify
from foldline.reducers.base import Ask, Reducer
from foldline.view.transcript import Entry, Fold, Repair, Unfold, Usage

__all__ = [
    "POLICIES",
    "Ask",
    "Completion",
    "Context",
    "DoesNotFit",
    "Entry",
    "Failure",
    "Fit",
    "Fold",
    "FoldRefused",
    "FoldlineError",
    "InvalidInput",
    "MissingExtra",
    "Policy",
    "ProviderError",
    "Recovery",
    "Reducer",
    "Repair",
    "Request",
    "SummaryError",
    "Unfold",
    "Usage",
    "Violation",
    "check",
    "classify",
    "count",
    "fit",
    "lookup",
]
