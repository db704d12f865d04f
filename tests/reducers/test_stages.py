"""Stages of a result: what shows where, what a call does, and when a result becomes short."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.reducers.views import LINE, applied, call, commit_all, folds_of, need_of, result, says, user, view_of

from foldline import Context
from foldline.catalog.models import CACHE_RULES
from foldline.messages import Wire
from foldline.reducers.digest import Digest
from foldline.reducers.drop import DropGroups
from foldline.reducers.mask import Mask
from foldline.reducers.stages import AGES, ShortenByRent, Stage, ToolKind, result_stages, tool_kind, use
from foldline.reducers.truncate import ShortForm

ANTHROPIC = CACHE_RULES["anthropic"]


def log(name: str, lines: int = 200) -> str:
    return "\n".join(f"{name}_{number} took {number} ms" for number in range(lines))


def read(*names: str, lines: int = 200) -> list[Wire]:
    out: list[Wire] = [user("go")]
    for name in names:
        out += [
            call(name, arguments=f'{{"path": "{name}.log"}}'),
            result(name, log(name, lines)),
            says(f"I see {name}."),
        ]
    return out


# --- stages -----------------------------------------------------------------------------------------------------------


def test_a_result_as_it_came_is_whole_with_all_its_names() -> None:
    [stage] = result_stages(view_of(read("a")))
    assert (stage.stage, stage.tool, stage.call_id, stage.held_share) == (Stage.WHOLE, "read", "a", 1.0)
    assert stage.tokens == stage.whole_tokens > 1_000


def test_a_cut_result_is_short_and_says_what_it_holds() -> None:
    view = view_of(read("a", "b", "c"))
    need = need_of(view, window=20_000)
    applied(ShortenByRent(), view, replace(need, cache_rule=CACHE_RULES["none"], requests=9))
    first = result_stages(view)[0]
    assert first.stage is Stage.SHORT
    assert 0 < first.tokens < first.whole_tokens
    assert 0 < first.held_share < 1


def test_a_masked_result_is_a_line() -> None:
    view = view_of(read("a", "b"))
    applied(Mask(keep_first=0, keep_last=1), view)
    assert [stage.stage for stage in result_stages(view)] == [Stage.LINE, Stage.WHOLE]


def test_under_a_digest_a_result_is_a_line_and_after_a_drop_it_is_gone() -> None:
    view = view_of([*read("a", "b", "c"), user("and now?")])
    applied(Digest(keep=0.0), view, need_of(view, view.estimated_tokens // 4))
    first = result_stages(view)[0]
    assert (first.stage, first.tokens) == (Stage.LINE, 0)
    assert 0 < first.held_share < 1

    view = view_of([*read("a", "b", "c"), user("and now?")])
    applied(DropGroups(keep_groups=0), view, need_of(view, 100))
    assert result_stages(view)[0].stage is Stage.GONE


def test_a_context_lists_the_results_of_all_groups() -> None:
    context = Context(window=4_000, max_output_tokens=0)
    for wire in [*read(*"abcdef"), user("and now?")]:
        context.append(wire)
        if wire["role"] != "assistant":
            context.prepare()
    results = context.results()
    assert [stage.call_id for stage in results] == list("abcdef")
    assert len({stage.stage for stage in results}) > 1


# --- kinds and expected use -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("read_file", "{}", ToolKind.READ),
        ("getFileContents", "{}", ToolKind.READ),
        ("edit_file", "{}", ToolKind.EDIT),
        ("str_replace_editor", "{}", ToolKind.EDIT),
        ("search_files", "{}", ToolKind.SEARCH),
        ("Grep", "{}", ToolKind.SEARCH),
        ("Bash", '{"command": "cat src/a.py"}', ToolKind.READ),
        ("run_command", '{"command": "grep -rn foo ."}', ToolKind.SEARCH),
        ("run_command", '{"command": "./configure"}', ToolKind.RUN),
        ("execute_sql", '{"query": "select 1"}', ToolKind.RUN),
        ("book_flight", "{}", ToolKind.OTHER),
        ("", "", ToolKind.OTHER),
    ],
)
def test_the_kind_of_a_tool_is_in_its_name_or_command(name: str, arguments: str, kind: ToolKind) -> None:
    assert tool_kind(name, arguments) is kind


@pytest.mark.parametrize("kind", ToolKind)
def test_expected_use_falls_with_age_and_is_a_share(kind: ToolKind) -> None:
    for tokens in (100, 1_000, 10_000):
        shares = [use(kind, tokens, age) for age in AGES]
        assert shares == sorted(shares, reverse=True)
        assert all(0 < share < 1 for share in shares)
        assert use(kind, tokens, 1_000) == shares[-1]


# --- by rent ----------------------------------------------------------------------------------------------------------


def due(wires: list[Wire], requests: int = 100, rule: str = "anthropic", window: int = 200_000) -> list[int]:
    view = view_of(wires)
    need = replace(need_of(view, window=window), cache_rule=CACHE_RULES[rule], requests=requests)
    return [fold.start for fold in folds_of(ShortenByRent(short=ShortForm(most_share=0.0)), view, need)]


def test_a_large_result_is_shortened_once_it_was_read_often_enough() -> None:
    # r (W - S) a against (w - r) (S + replies) and the expected request: due after some replies, and not before.
    counts = [len(due([*read("a", lines=1_200), *[says("ok")] * replies])) for replies in range(30)]
    assert counts[0] == 0 and counts[-1] == 1
    assert counts == sorted(counts)


def test_without_a_cache_expected_use_alone_decides() -> None:
    wires = [*read("a", lines=1_200), *[says("ok")] * 3]
    assert due(wires, rule="none") == [2]
    assert due(wires) == []


def test_what_this_session_never_sent_has_paid_no_rent() -> None:
    wires = [*read("a", lines=1_200), *[says("ok")] * 29]
    assert due(wires, requests=0) == []
    assert due(wires, requests=100) == [2]


def test_results_pay_together_for_what_stands_behind_them() -> None:
    alone = [*read("a", lines=400), *[says("word " * 300)] * 9]
    assert due(alone) == []
    together = [*read("a", "b", "c", "d", lines=400), *[says("word " * 300)] * 9]
    assert len(due(together)) == 4


def test_a_result_is_shortened_once_and_the_newest_never() -> None:
    view = view_of([*read("a", lines=1_200), *[says("ok")] * 29])
    need = replace(need_of(view), cache_rule=ANTHROPIC, requests=100)
    assert commit_all(view, folds_of(ShortenByRent(), view, need))
    assert folds_of(ShortenByRent(), view, need) == []
    assert due([user("go"), call("a"), result("a", LINE * 2_000)]) == []


def test_without_prices_nothing_is_due() -> None:
    view = view_of([*read("a", lines=1_200), *[says("ok")] * 29])
    assert folds_of(ShortenByRent(), view, replace(need_of(view), requests=100)) == []
