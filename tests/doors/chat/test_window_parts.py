"""What fills the window, part by part."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foldline.doors.chat.window_parts import WindowShare, bar_lines, cells, rule_sources, shares_of, tool_sources
from foldline.engine.context import Context
from foldline.testing import session
from foldline.tokens import ESTIMATE
from foldline.view.standing_rules import StandingRule
from foldline.view.tool_sizes import ToolSize

LABELS = ("system", "rules", "tools", "pinned", "folded", "live", "free")
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


def held(rounds: int = 12) -> Context:
    context = Context(window=4_000, system="You are terse.", tools=TOOLS, max_output_tokens=300)
    context.extend(session(rounds, result="found it. " * 60))
    return context


def test_the_parts_are_the_window() -> None:
    context = held(3)
    context.pin(0)
    context.prepare()
    shares = shares_of(context, "You are terse.")
    assert tuple(share.label for share in shares) == LABELS
    assert sum(share.tokens for share in shares) == 4_000
    sizes = {share.label: share.tokens for share in shares}
    assert all(sizes[label] > 0 for label in ("system", "tools", "pinned", "live", "free"))
    assert sizes["folded"] == 0


def test_folds_move_tokens_from_live_to_folded() -> None:
    context = held()
    context.compact(summarize=None)
    sizes = {share.label: share.tokens for share in shares_of(context, "You are terse.")}
    assert sizes["folded"] > 0
    assert sum(sizes.values()) == 4_000


@given(st.lists(st.integers(0, 10_000), min_size=7, max_size=7).filter(sum), st.integers(7, 200))
def test_the_bar_is_as_wide_as_it_may_be_and_shows_what_is_small(sizes: list[int], width: int) -> None:
    shares = [WindowShare(label, size) for label, size in zip(LABELS, sizes, strict=True)]
    counts = cells(shares, width)
    assert sum(counts) == width
    assert all(count > 0 for count, size in zip(counts, sizes, strict=True) if size)
    bar, *lines = bar_lines(shares, sum(sizes), width=width)
    assert len(bar.plain) == min(width, 80)
    assert [line.plain.split()[1] for line in lines] == list(LABELS)
    assert bar_lines(shares, sum(sizes), width=width, ascii_only=True)[0].plain.isascii()


def test_rules_in_folds_and_in_the_system_text_are_a_part_of_their_own() -> None:
    context = Context(window=4_000, system="You are terse. Use tabs.", max_output_tokens=300)
    context.append({"role": "user", "content": "Never push to main."})
    context.extend(session(12, result="found it. " * 60))
    context.append({"role": "user", "content": "And now?"})
    context.compact(summarize=lambda messages, limit: "Things were found, and more will be.")
    project = StandingRule("Use tabs.", "AGENTS.md", -1, ESTIMATE.text("Use tabs."))
    sizes = {share.label: share.tokens for share in shares_of(context, "You are terse. Use tabs.", project)}
    assert sizes["rules"] > project.tokens
    assert sum(sizes.values()) == 4_000
    assert rule_sources(context.rules, project) == f"AGENTS.md {project.tokens}, user {context.rules[0].tokens}"


def test_servers_and_the_largest_tools_are_named_with_their_tokens() -> None:
    sizes = [ToolSize(f"docs_{n}", 100) for n in range(3)] + [ToolSize(f"own_{n}", 10 + n) for n in range(8)]
    servers = {f"docs_{n}": "docs" for n in range(3)}
    text = tool_sources(sizes, servers, {"docs_1"})
    assert text == (
        "docs (3 tools, 1 short) 300, own_7 17, own_6 16, own_5 15, own_4 14, own_3 13, own_2 12, 2 more 21"
    )
    assert tool_sources([], {}, set()) == ""
