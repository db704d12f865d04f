"""Every library for Python holds a conversation of five windows through the proxy, in every dialect that it speaks."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.clients.proxied import proxied
from tests.clients.reader import DONE, Reader
from tests.clients.running import Home

pytestmark = pytest.mark.clients

WINDOW_TOKENS = 8_000
PART_CHARS = 4_000
TURNS = 22  # of two parts each, 1,000 tokens a part: 44,000 tokens at the end
APIS = ("chat", "responses")


def ways() -> list[tuple[str, str, str]]:
    """Library, driver, its arguments."""
    found = [
        (library, driver, mode)
        for library, driver in (
            ("openai", "openai_chat"),
            ("openai", "openai_responses"),
            ("anthropic", "anthropic_messages"),
        )
        for mode in ("whole", "streamed")
    ]
    for library, driver, kinds in (
        ("litellm", "litellm_chat", ("openai", "anthropic")),
        ("langchain-openai", "langchain_openai_chat", APIS),
        ("pydantic-ai", "pydantic_ai_agent", APIS),
        ("openai-agents", "openai_agents_run", APIS),
    ):
        found += [(library, driver, f"{mode} {kind}") for mode in ("whole", "streamed") for kind in kinds]
    return found


@pytest.mark.parametrize(("library", "driver", "arguments"), ways(), ids=["-".join(way) for way in ways()])
def test_a_conversation_of_five_windows_is_held_without_a_refusal(
    library: str, driver: str, arguments: str, tmp_path: Path
) -> None:
    reader = Reader(parts=TURNS * 2, in_a_turn=2)
    with proxied(reader, window_tokens=WINDOW_TOKENS) as way:
        given = [str(TURNS), *arguments.split()]
        printed = Home.inside(tmp_path).drive(library, driver, way.url, given, part_chars=PART_CHARS)
    assert DONE in printed
    assert way.faults() == []
    print(f"\n{library} {arguments}: {way.growth}")
