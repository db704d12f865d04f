"""A turn of items grows as if it were rendered anew each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline.engine.context import Context
from foldline.messages import Wire
from foldline.tokens import content_bytes, wire_bytes
from foldline.view.rendering import TileRenderer, growing_turn
from foldline.view.tiles import Tile
from foldline.view.transcript import Repair
from foldline.view.view import View


def says(words: str) -> Wire:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": words}]}


def thinks(name: str) -> Wire:
    return {"type": "reasoning", "id": f"rs_{name}", "summary": [], "encrypted_content": "R" * 60}


def calls(call_id: str, arguments: str = "{}") -> Wire:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": arguments}


def gives(call_id: str, output: str = "a result") -> Wire:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def searches() -> Wire:
    return {"type": "web_search_call", "id": "ws", "status": "completed"}


def user(words: str) -> Wire:
    return {"role": "user", "content": words}


_IDS = st.sampled_from([f"c{number}" for number in range(6)])
_ITEMS = st.one_of(
    st.sampled_from([says("So it is."), says(""), searches(), user("Go on."), {"role": "system", "content": "Brief."}]),
    st.builds(thinks, st.sampled_from("abcdef")),
    st.builds(calls, _IDS, st.sampled_from(["{}", '{"cut": "off'])),
    st.builds(calls, _IDS),
    st.builds(gives, _IDS),
    st.builds(gives, _IDS),
)
_HIDDEN = st.sampled_from((False,) * 9 + (True,))
SESSIONS = st.lists(st.tuples(_ITEMS, _HIDDEN), min_size=1, max_size=40)


def rendered(view: View, tile: Tile) -> tuple[Any, ...]:
    """A block from scratch: messages as JSON, the entries in them, sizes, repairs."""
    renderer = TileRenderer(view.codec, view.counter, counts_bytes=True)
    messages, sources, weights, repairs = renderer.block(tile, tile.forms)
    faults = tuple(Repair(entry.seq, "message", fault) for entry in tile.entries for fault in entry.faults)
    late = (Repair(tile.late, "late-result", _late_detail(tile)),) if tile.late is not None and not repairs else ()
    return [view.codec.write(m) for m in messages], sources, weights, (*faults, *repairs, *late)


def _late_detail(tile: Tile) -> str:
    return next(repair.detail for repair in tile.repairs if repair.rule == "late-result")


@costly
@given(SESSIONS, st.integers(1, 4))
def test_what_has_grown_is_what_would_be_rendered_from_scratch(items: Sequence[tuple[Wire, bool]], every: int) -> None:
    context = Context(dialect="openai-responses", window=1_000_000, max_request_bytes=10_000_000)
    view = context.view
    before: list[Wire] = []
    for number, (wire, hidden) in enumerate(items):
        context.append(wire, agent_visible=not hidden)
        total = content = 0
        for tile in view.tiles:
            wires, sources, weights, repairs = rendered(view, tile)
            assert tile.sources == sources
            assert [view.codec.write(m) for m in tile.messages] == wires
            assert (tile.weights, tile.repairs) == (weights, repairs)
            assert tile.contents == list(map(content_bytes, tile.messages))
            assert (tile.tokens, tile.content_bytes) == (sum(weights), sum(tile.contents))
            assert tile.size_bytes == sum(map(wire_bytes, wires))
            total, content = total + tile.tokens, content + tile.content_bytes
        assert view.estimated_tokens - view.base_tokens - (view.lead_tokens if view.has_lead else 0) == total
        assert view.content_bytes == content
        if number % every == 0:
            sent, stable = view.wires()
            whole = [view.codec.write(m) for tile in view.tiles for m in tile.messages]
            if not view.has_lead:
                assert sent == whole
                assert sent[:stable] == before[:stable]
                assert stable == len(sent) or stable == len(before) or sent[stable] != before[stable]
            before = sent


def test_a_run_of_items_is_not_put_in_order_again() -> None:
    context = Context(dialect="openai-responses", window=1_000_000)
    context.extend([user("Go."), says("One.")])
    for number in range(50):
        context.extend([thinks(f"{number}"), says(f"Step {number}."), calls(f"k{number}")])
    [_, tile] = context.view.tiles
    assert tile.turn is not None
    assert (tile.turn.item_count, len(tile.turn.open), tile.turn.result_count) == (151, 50, 0)
    kept = tile.messages[:151]
    context.append(gives("k49"))
    assert (tile.turn.item_count, len(tile.turn.open)) == (151, 49)
    assert tile.messages[:151] == kept


def test_a_result_takes_the_place_of_the_answer_that_stood_in_for_it() -> None:
    context = Context(dialect="openai-responses", window=1_000_000)
    context.extend([user("Go."), calls("a"), calls("b"), calls("c"), gives("b")])
    sent = context.prepare().messages
    assert [wire.get("call_id") for wire in sent] == [None, "a", "b", "c", "b", "a", "c"]
    [_, tile] = context.view.tiles
    assert tile.turn is not None
    assert [repair.rule for repair in tile.repairs] == ["missing-result", "missing-result"]
    context.extend([gives("c"), gives("a")])
    assert (tile.turn.result_count, tile.repairs) == (3, ())


def test_a_turn_that_goes_on_after_its_results_is_no_single_turn() -> None:
    context = Context(dialect="openai-responses", window=1_000_000)
    context.extend([calls("a"), gives("a"), says("So.")])
    entries = list(context.view.entries.values())
    assert growing_turn(context.view.codec, entries[:2]) is not None
    assert growing_turn(context.view.codec, entries) is None
