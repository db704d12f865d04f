from __future__ import annotations

import pytest

from foldline_bench.session_inputs import group_of


@pytest.mark.parametrize(
    ("source", "group"),
    [
        ("nebius/SWE-agent-trajectories (subset)", "issue solving"),
        ("All-Hands-AI/OpenHands (multi_swe_bench example output)", "issue solving"),
        ("someone/mcpmark-experiments", "MCP servers"),
        ("sierra-research/tau-bench (airline)", "customer service"),
        ("Aider-AI/aider (chat-history fixture)", "chat"),
        ("d-kimuson/claude-code-viewer (sample Claude Code sessions)", "coding"),
        ("UKGovernmentBEIS/inspect_ai (test eval logs)", "UKGovernmentBEIS/inspect_ai"),
        ("", "other"),
    ],
)
def test_a_session_is_of_the_kind_of_work_that_its_source_says(source: str, group: str) -> None:
    assert group_of(source) == group
