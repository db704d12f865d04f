"""The public face: names and signatures that users rely on."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

import foldline
from foldline.errors import MissingExtra

PROMISED = {
    "Context",
    "DoesNotFit",
    "FoldlineError",
    "InvalidInput",
    "ProviderError",
    "SummaryError",
    "check",
    "classify",
    "count",
    "fit",
}

SIGNATURES = {
    "fit": "messages * max_tokens dialect policy model system tools max_output_tokens summarize",
    "check": "messages * dialect system tools",
    "count": "messages * dialect model system tools",
    "classify": "status body * error estimate window",
}

CONTEXT_METHODS = {
    "append": "wire",
    "extend": "wires",
    "sync": "wires",
    "prepare": "summarize",
    "prepare_async": "summarize",
    "observe": "usage",
    "recover": "failure",
    "compact": "instructions summarize",
    "compact_async": "instructions summarize",
    "undo": "",
    "explain": "seq",
    "pin": "seq",
}

CONTEXT_ARGUMENTS = (
    "dialect model policy window max_output_tokens system tools on_event auto endpoint max_request_bytes"
)


def arguments(function: object) -> dict[str, inspect.Parameter]:
    assert callable(function)
    return {name: p for name, p in inspect.signature(function).parameters.items() if name != "self"}


def test_the_promised_names_are_exported() -> None:
    assert set(foldline.__all__) >= PROMISED


def test_the_list_of_exports_is_the_namespace() -> None:
    """Also of a module whose names load on first use: each is there, in `dir` too, and nothing beside them."""
    assert set(foldline.__all__) <= set(dir(foldline))
    loaded = {name: getattr(foldline, name) for name in foldline.__all__}
    public = {
        name
        for name, value in vars(foldline).items()
        if not name.startswith("_") and not isinstance(value, ModuleType) and name != "annotations"
    }
    assert public == set(loaded)
    misspelt = "Contxt"
    with pytest.raises(AttributeError, match=misspelt):
        getattr(foldline, misspelt)


def test_checkers_and_the_interpreter_find_a_name_in_the_same_module() -> None:
    """The imports for type checkers are the table that names load by."""
    tree = ast.parse(inspect.getsource(foldline))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    seen = {name.name: node.module for node in imports for name in node.names if (node.module or "")[:8] == "foldline"}
    assert seen == foldline._MODULES


def test_every_public_name_says_what_it_is() -> None:
    silent = [
        name
        for name in foldline.__all__
        if (inspect.isclass(thing := getattr(foldline, name)) or inspect.isfunction(thing))
        and not inspect.getdoc(thing)
    ]
    assert silent == []


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_functions_take_what_was_promised(name: str) -> None:
    given = arguments(getattr(foldline, name))
    before, _, after = SIGNATURES[name].partition(" * ")
    assert [p for p in before.split() if given[p].kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD] == []
    assert [p for p in after.split() if given[p].kind is not inspect.Parameter.KEYWORD_ONLY] == []
    extra = [p for n, p in given.items() if n not in SIGNATURES[name].split()]
    assert [p for p in extra if p.default is inspect.Parameter.empty] == []


def test_a_context_takes_what_was_promised() -> None:
    given = arguments(foldline.Context)
    assert set(CONTEXT_ARGUMENTS.split()) <= set(given)
    assert [name for name, p in given.items() if p.default is inspect.Parameter.empty] == []


@pytest.mark.parametrize("name", CONTEXT_METHODS)
def test_a_context_does_what_was_promised(name: str) -> None:
    given = arguments(getattr(foldline.Context, name))
    assert list(given)[: len(CONTEXT_METHODS[name].split())] == CONTEXT_METHODS[name].split()
    assert inspect.iscoroutinefunction(getattr(foldline.Context, name)) == name.endswith("_async")


def test_every_module_exports_what_it_lists() -> None:
    for found in pkgutil.walk_packages(foldline.__path__, "foldline."):
        try:
            module = importlib.import_module(found.name)
        except MissingExtra:  # of the adapters, each loads in its own environment alone
            assert found.name.startswith("foldline.adapters."), found.name
            listed, given = listed_and_given(found.name)
            assert listed <= given, found.name
            continue
        missing = [name for name in getattr(module, "__all__", []) if not hasattr(module, name)]
        assert missing == [], found.name


def listed_and_given(name: str) -> tuple[set[str], set[str]]:
    """The names in `__all__` of a module, and those that it defines, read from its text."""
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    body = ast.parse(Path(spec.origin).read_text("utf-8")).body
    values = {
        target.id: node.value
        for node in body
        for target in (node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)])
        if isinstance(target, ast.Name) and isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
    }
    given = {node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)}
    return set(ast.literal_eval(values["__all__"])), given | values.keys()
