"""A dialect is one row: whatever else there is of it is found by its name, and no other table lists dialects."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.support import DIALECTS as AGENT_DIALECTS
from tests.property.sessions import BUILDERS

import foldline
from foldline.catalog.models import CACHE_RULES
from foldline.codecs import DIALECTS
from foldline.codecs.dialect import ROWS
from foldline.engine.one_shot import check
from foldline.errors import InvalidInput
from foldline.providers.http import http_dialect
from foldline.testing import FakeProvider, session
from foldline.testing.forms.base import form_of

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)
SRC = Path(foldline.__file__).parent


@every_dialect
def test_each_row_has_its_modules_on_the_higher_layers(dialect: str) -> None:
    row = ROWS[dialect]
    assert (row.codec.dialect, row.body.dialect, form_of(dialect).dialect) == (dialect, dialect, dialect)
    path = http_dialect(dialect).path.replace("{model}", "m").partition("?")[0]
    assert any(known.ending.search(path) for known in row.paths), "requests go to a path of the row"
    assert row.cache_rule in CACHE_RULES
    assert form_of(dialect).rule_words.keys() <= row.rules.keys(), "a wording is of a rule that there is"


@every_dialect
def test_the_sessions_of_the_fakes_keep_the_rules_of_each_dialect(dialect: str) -> None:
    assert check(session(2, dialect=dialect), dialect=dialect) == []


def test_the_tests_of_every_part_run_over_all_rows() -> None:
    assert set(AGENT_DIALECTS) == set(BUILDERS) == set(DIALECTS) == set(ROWS)


def test_an_unknown_dialect_is_refused_by_the_table() -> None:
    for look_up in (form_of, http_dialect):
        with pytest.raises(InvalidInput, match="openai-chat, openai-responses, anthropic, gemini"):
            look_up("klingon")
    assert FakeProvider().refusals == {}


def keyed_by_dialect(path: Path) -> Iterator[int]:
    """The lines of a module where a mapping has names of several dialects for its keys."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        keys = {key.value for key in getattr(node, "keys", ()) or () if isinstance(key, ast.Constant)}
        if isinstance(node, ast.Dict) and len(keys & set(DIALECTS)) > 1 and keys <= set(DIALECTS):
            yield node.lineno


def test_no_other_table_is_keyed_by_dialect() -> None:
    """A second one would be a second place to touch for a new dialect."""
    found = {str(path.relative_to(SRC)): list(keyed_by_dialect(path)) for path in SRC.rglob("*.py")}
    assert {name: lines for name, lines in found.items() if lines} == {}
