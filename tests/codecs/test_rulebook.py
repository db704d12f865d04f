"""The tables of rules: each rule has one id, one sentence and one document."""

from __future__ import annotations

import pytest

from foldline.codecs.dialect import ROWS
from foldline.codecs.rulebook import Findings


@pytest.mark.parametrize("dialect", ROWS)
def test_every_rule_is_a_sentence_with_a_document(dialect: str) -> None:
    for rule in ROWS[dialect].rules.values():
        assert rule.sentence.endswith(".")
        assert rule.source
        assert rule.id == rule.id.lower()


def test_a_finding_without_a_detail_has_the_sentence_of_its_rule() -> None:
    row = ROWS["anthropic"]
    found = Findings(row.rules, row.limits)
    found.add(3, "signature")
    found.add(None, "tool-names", "two tools are called f")
    assert [str(violation) for violation in found.found] == [
        "message 3: A thinking block has its signature. [signature; Anthropic docs, Extended thinking]",
        'request: two tools are called f [tool-names; Anthropic API, error "Tool names must be unique"]',
    ]
