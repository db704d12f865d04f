"""The libraries of the makers ask for compaction, and get it from a proxy before a provider that has none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.clients.proxied import proxied
from tests.clients.reader import DONE, Reader
from tests.clients.running import Home

pytestmark = pytest.mark.clients

WINDOW_TOKENS = 8_000
PART_CHARS = 4_000
TURNS = 22  # of two parts each, 1,000 tokens a part: five windows
MODES = ("whole", "streamed")
WAYS = [
    *(("anthropic", kind, mode) for kind in ("threshold", "pause", "demand", "clearing") for mode in MODES),
    ("anthropic", "runner", "whole"),
    *(("openai", kind, mode) for kind in ("threshold", "trigger") for mode in MODES),
    ("openai", "compact", "whole"),
]


@pytest.mark.parametrize(("library", "kind", "mode"), WAYS, ids=["-".join(way) for way in WAYS])
def test_a_conversation_of_five_windows_is_compacted_as_its_library_expects(
    library: str, kind: str, mode: str, tmp_path: Path
) -> None:
    # The runner has one turn, which lasts until all parts are read.
    reader = Reader(parts=TURNS * 2, in_a_turn=None if kind == "runner" else 2)
    with proxied(reader, window_tokens=WINDOW_TOKENS) as way:
        given = [str(TURNS), kind, mode]
        printed = Home.inside(tmp_path).drive(library, f"{library}_compaction", way.url, given, part_chars=PART_CHARS)
        asked = way.relay.asked
    assert DONE in printed
    found = re.search(r"compactions: (\d+), cleared: (\d+)", printed)
    assert found is not None
    compactions, cleared = map(int, found.groups())
    assert cleared > 50 if kind == "clearing" else compactions >= 5
    assert [one for one in way.fake.refused if one.kind != "route"] == []
    # The runner asks for a thread at the server first, and sends all messages once that is refused.
    assert len([one.error for one in asked if one.status != 200]) == (kind == "runner")
    assert [text for one in asked if (text := one.answered.get("x-foldline-warning"))] == []
    assert reader.read == reader.parts
    assert way.fake.largest_tokens <= WINDOW_TOKENS
    assert {one.answered.get("x-foldline-compaction") for one in asked} <= {"foldline", None}
    print(f"\n{library} {kind} {mode}: {compactions} compactions, {cleared} results cleared; {way.growth}")
