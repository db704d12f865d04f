"""The table of rules: each has one id, one sentence and one document."""

from __future__ import annotations

import pytest

from foldline.codecs import DIALECTS
from foldline.codecs.dialect import dialect_named
from foldline.codecs.rules.rulebook import RULES, Findings


def test_every_dialect_has_its_rules() -> None:
    assert set(RULES) == set(DIALECTS)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_rule_is_a_sentence_with_a_document(dialect: str) -> None:
    for rule in RULES[dialect].values():
        assert rule.sentence.endswith(".")
        assert rule.source
        assert rule.id == rule.id.lower()


def test_a_finding_says_the_sentence_where_nothing_more_is_known() -> None:
    found = Findings("anthropic", dialect_named("anthropic").limits)
    found.add(3, "signature")
    found.add(None, "tool-names", "two tools are called f")
    assert [str(violation) for violation in found.found] == [
        "message 3: A thinking block has its signature. [signature; Anthropic docs, Extended thinking]",
        'request: two tools are called f [tool-names; Anthropic API, error "Tool names must be unique"]',
    ]
