"""Targets of this interpreter, by name."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from foldline.errors import InvalidInput
from foldline_bench.promises.targets.adapted import adapter_named
from foldline_bench.promises.targets.base import Target
from foldline_bench.promises.targets.callables import target_of
from foldline_bench.promises.targets.foldline_itself import FoldlineContext, fitted
from foldline_bench.promises.targets.peers import peer_named

__all__ = ["local_target"]


def local_target(spec: str, dialects: tuple[str, ...] = ()) -> Target:
    """The target of a name. Raises InvalidInput in one line where there is none, MissingExtra.

    `foldline` and `foldline:fit` are Foldline itself, `adapter:NAME` one of its adapters, `peer:NAME/SETTING` a peer
    of the bench, `module:name` whatever it is.
    """
    if spec == "foldline":
        return target_of(spec, FoldlineContext, dialects)
    if spec == "foldline:fit":
        return target_of(spec, fitted, dialects)
    if spec.startswith("adapter:"):
        return adapter_named(spec.removeprefix("adapter:"))
    if spec.startswith("peer:"):
        return peer_named(spec.removeprefix("peer:"))
    module_name, colon, path = spec.partition(":")
    if not (colon and module_name and path):
        raise InvalidInput(
            "names no target: module:name, http://…, run:COMMAND, adapter:NAME, foldline or foldline:fit", place=spec
        )
    if os.getcwd() not in sys.path:  # as `python -m` has it
        sys.path.insert(0, os.getcwd())
    try:
        found: object = import_module(module_name)
    except Exception as error:  # noqa: BLE001 - other people's code: whatever stops it from being loaded
        raise InvalidInput(f"cannot be imported: {type(error).__name__}: {error}", place=module_name) from None
    for name in path.split("."):
        if not hasattr(found, name):
            raise InvalidInput(f"has no {name}", place=module_name)
        found = getattr(found, name)
    return target_of(spec, found, dialects)
