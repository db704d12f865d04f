"""Foldline keeps LLM agents inside their context window: valid requests, nothing lost, a low bill.

The public names load on first use (PEP 562): `import foldline` alone costs a few milliseconds, and `classify` needs no
`Context`.
"""

from __future__ import annotations

from importlib import import_module as _import_module

# `typing` is one of the modules that this file does without; type checkers know the name wherever it is defined.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from foldline.catalog.models import lookup
    from foldline.codecs.rulebook import Violation
    from foldline.engine.context import Completion, Context, Request
    from foldline.engine.one_shot import Fit, check, count, fit
    from foldline.engine.policy import Policy
    from foldline.engine.presets import POLICIES
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
    from foldline.failures.classification import classify
    from foldline.failures.failure import Failure
    from foldline.reducers.base import Ask, Reducer
    from foldline.view.origins import Origin
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
    "Origin",
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

# By module, so that the table reads like the imports above it; a test compares the two.
_NAMES = {
    "foldline.catalog.models": "lookup",
    "foldline.codecs.rulebook": "Violation",
    "foldline.engine.context": "Completion Context Request",
    "foldline.engine.one_shot": "Fit check count fit",
    "foldline.engine.policy": "Policy",
    "foldline.engine.presets": "POLICIES",
    "foldline.engine.recovery": "Recovery",
    "foldline.errors": "DoesNotFit FoldlineError FoldRefused InvalidInput MissingExtra ProviderError SummaryError",
    "foldline.failures.classification": "classify",
    "foldline.failures.failure": "Failure",
    "foldline.reducers.base": "Ask Reducer",
    "foldline.view.origins": "Origin",
    "foldline.view.transcript": "Entry Fold Repair Unfold Usage",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:  # a checker that saw `__getattr__` would take every name for one of ours

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(_import_module(_MODULES[name]), name)  # found at once from now on
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


del TYPE_CHECKING
