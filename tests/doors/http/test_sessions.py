"""Sessions over HTTP: created, listed, read, folded, unfolded and deleted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.doors.http.support import Api, serving

from foldline.agent.workers import CALLS, FOLDS, READERS, TOOLS, StopSignal, Workers
from foldline.testing import FakeReply, asks_for_summary

WINDOW_TOKENS = 8_000
OF_FILE: dict[str, Any] = {"base_url": None, "model": None, "environ": {"KEY": "k"}}
"""For a server whose model is the one of its settings file."""


def answers(body: Mapping[str, Any]) -> FakeReply:
    """A summary where one is asked for, a look at the folder before some answers, else words."""
    last = body["messages"][-1]
    if asks_for_summary(body):
        return FakeReply("## Goal\nThe user wants to know of towns.")
    text = last["content"] if isinstance(last["content"], str) else str(last["content"])
    if last["role"] == "user" and "folder" in text:
        return FakeReply("", calls=[("list_files", {})])
    return FakeReply(f"Noted: {text[:30]}")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("served"), answers) as served:
        yield served


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """One whose window is full after some turns."""
    with serving(tmp_path_factory.mktemp("small"), answers, window_tokens=WINDOW_TOKENS) as served:
        yield served


def long_session(api: Api, turns: int = 8) -> str:
    session = api.create_session()
    for number in range(turns):
        assert api.say(session, f"Town {number}, see the folder. " + "It lies at a river. " * 220)["reason"] == "done"
    return session


def unmarked(value: Any) -> Any:
    """Without marks for the prompt cache, which each request sets anew, on a block where there was a text."""
    if isinstance(value, dict) and "cache_control" in value.get("content", [{}])[-1:][0]:
        (block,) = value["content"]
        return {**value, "content": block["text"]} if block["type"] == "text" else value
    if isinstance(value, dict):
        return {name: unmarked(inner) for name, inner in value.items() if name != "cache_control"}
    return [unmarked(inner) for inner in value] if isinstance(value, list) else value


def test_a_session_is_begun_listed_read_and_removed(api: Api) -> None:
    reply = api.client.post("/v1/sessions", json={"title": "Rivers", "policy": "cost"})
    made = reply.json()
    assert (reply.status_code, reply.headers["location"]) == (201, f"/v1/sessions/{made['id']}")
    assert (made["title"], made["policy"], made["turns"], made["state"]) == ("Rivers", "cost", 0, "idle")
    row = api.get("")["sessions"][0]
    assert {name: made[name] for name in row if "tokens" not in name} == {
        name: row[name] for name in row if "tokens" not in name
    }
    assert api.say(made["id"], "Hi")["text"] == "Noted: Hi"
    now, sent = api.get(f"/{made['id']}"), api.fake.requests[-1].input_tokens
    assert (now["turns"], now["messages"], now["usage"]["prompt_tokens"]) == (1, 2, sent)
    assert now["figures"]["used_tokens"] == sent
    assert api.client.delete(f"/v1/sessions/{made['id']}").status_code == 204
    assert api.get(f"/{made['id']}", 404)["field"] == "id"
    assert made["id"] not in [one["id"] for one in api.get("")["sessions"]]


def test_lists_come_in_pages_and_can_be_searched(api: Api) -> None:
    made = [api.create_session(title=f"Paged {number}") for number in range(5)]
    for one in made:
        api.say(one, "Hi")
    first = api.get("", limit=2, query="paged")
    second = api.get("", limit=2, query="PAGED", after=first["next"])
    last = api.get("", limit=2, query="paged", after=second["next"])
    pages = (first, second, last)
    assert [one["id"] for page in pages for one in page["sessions"]] == made[::-1]
    assert [page["next"] for page in pages] == [made[3], made[1], None]
    assert [one["title"] for one in api.get("", query="paged 3")["sessions"]] == ["Paged 3"]


def test_a_session_begins_with_what_the_model_of_another_is_shown(api: Api) -> None:
    first = api.create_session()
    api.say(first, "The word is zephyr.")
    second = api.create_session(**{"from": first})
    assert api.get(f"/{second}")["parent"] == first
    api.say(second, "What is it?")
    assert "zephyr" in str(api.fake.requests[-1].body["messages"])


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic"])
def test_the_context_is_what_the_next_request_holds(tmp_path: Path, dialect: str) -> None:
    provider, address = ("anthropic", "{url}") if dialect == "anthropic" else ("openai", "{url}/v1")
    named = f"provider: {provider}, dialect: {dialect}, base_url: '{address}'"
    yaml = "model: {" + named + ", name: fake-model, api_key_env: KEY}\n"

    def script(body: Mapping[str, Any]) -> FakeReply:
        return answers(body if "messages" in body else {**body, "messages": body["input"]})

    with serving(tmp_path, script, window_tokens=WINDOW_TOKENS, yaml=yaml, **OF_FILE) as api:
        session = api.create_session()
        for number in range(8):
            api.say(session, f"Town {number}. " + "It lies at a river. " * 200)
        assert api.get(f"/{session}")["folds"] > 0
        received = api.get(f"/{session}/context")
        api.say(session, "short")
        sent = unmarked(api.fake.requests[-1].body)
        messages = sent["input" if dialect == "openai-responses" else "messages"]
        assert [one for one in messages if one.get("role") not in ("system", "developer")][:-1] == received["messages"]
        assert received["system"] in str(sent).replace("\\n", "\n").replace("\\'", "'")
        assert unmarked(sent["tools"]) == received["tools"]
        assert received["dialect"] == dialect
        rows = received["rows"]
        assert len(rows) == len(received["messages"])
        assert sum(row["tokens"] for row in rows) == received["parts"]["folded"] + received["parts"]["messages"]
        assert sum(size["tokens"] for size in received["tool_sizes"]) == received["parts"]["tools"]
        assert [rule["text"] for rule in received["rules"]] == []
        assert any(row["fold"] is not None for row in rows)


def test_the_history_has_everything_and_says_what_became_of_it(small: Api) -> None:
    session = long_session(small)
    count = small.get(f"/{session}")["messages"]
    whole = small.get(f"/{session}/history", limit=500)
    assert [one["seq"] for one in whole["messages"]] == list(range(count))
    seen: list[Any] = []
    following: int | None = 0
    while following is not None:
        page = small.get(f"/{session}/history", limit=7, after=following - 1)
        seen += page["messages"]
        following = page["next"]
    assert seen == whole["messages"]
    newest = small.get(f"/{session}/history", limit=3, before=2**31 - 1)
    assert newest["messages"] == whole["messages"][-3:]
    assert small.get(f"/{session}/history", before=2, limit=100)["messages"] == whole["messages"][:2]
    both = small.get(f"/{session}/history", after=3, before=6, limit=100)
    assert [one["seq"] for one in both["messages"]] == [4, 5]
    hidden = [one for one in whole["messages"] if one["state"] == "hidden"]
    folds = {fold["id"]: fold for fold in small.get(f"/{session}/folds")["folds"]}
    assert hidden
    assert all(folds[one["fold"]]["start"] <= one["seq"] < folds[one["fold"]]["stop"] for one in hidden)
    why = small.get(f"/{session}/history/{hidden[0]['seq']}")
    assert hidden[0]["fold"] in [fold["id"] for fold in why["folds"] if fold["in_effect"]]
    assert why["folds"][-1]["reason"]
    users = [one for one in whole["messages"] if one["role"] == "user" and not one["kind"]]
    assert users[0]["cut"] and len(users[0]["text"]) == 4_000
    assert len(small.get(f"/{session}/history/{users[0]['seq']}")["text"]) > 4_000
    assert [one["calls"][0]["name"] for one in whole["messages"] if one["calls"]] == ["list_files"] * 8
    assert small.get(f"/{session}/history/{count}", 404)["field"] == "seq"


def test_turns_say_how_large_the_context_was_and_what_was_folded(small: Api) -> None:
    session = long_session(small)
    turns = small.get(f"/{session}/turns")["turns"]
    assert [turn["number"] for turn in turns] == list(range(1, 9))
    assert {turn["reason"] for turn in turns} == {"done"}
    assert max(turn["prompt_tokens"] for turn in turns) <= WINDOW_TOKENS
    assert any(turn["folds"] for turn in turns)
    assert small.get(f"/{session}/turns", limit=2)["turns"] == turns[-2:]


def test_a_session_is_compacted_and_unfolded(api: Api) -> None:
    session = long_session(api, turns=3)
    done = api.post(f"/{session}/compact", instructions="Keep the towns.")
    assert "towns" in done["summary"]
    assert done["after"]["current_context_tokens"] < done["before"]["current_context_tokens"]
    assert "Keep the towns." in str(api.fake.requests[-1].body)
    assert api.get(f"/{session}/folds")["folds"] == done["folds"]
    assert api.post(f"/{session}/undo")["unfolded"] == [fold["id"] for fold in done["folds"]]
    assert api.get(f"/{session}/folds")["folds"] == []
    assert api.post(f"/{session}/undo")["unfolded"] == []


def test_nothing_to_compact_is_said_so(api: Api) -> None:
    reply = api.client.post(f"/v1/sessions/{api.create_session()}/compact")
    assert (reply.status_code, reply.json()["type"]) == (409, "/problems/nothing-to-compact")


def test_a_pinned_message_stays_and_a_folded_one_cannot_be_pinned(api: Api) -> None:
    session = long_session(api, turns=4)
    assert api.post(f"/{session}/pin", seq=0) == {"seq": 0, "pinned": True}
    api.post(f"/{session}/compact")
    states = [one["state"] for one in api.get(f"/{session}/history")["messages"]]
    assert states[0] == "pinned"
    folded = states.index("hidden")
    assert api.post(f"/{session}/pin", 409, seq=folded)["type"] == "/problems/folded"
    assert api.post(f"/{session}/pin", 404, seq=99)["field"] == "seq"
    assert api.post(f"/{session}/pin", seq=0, pinned=False)["pinned"] is False


def test_a_session_says_what_its_next_request_costs_where_a_price_is_known(tmp_path: Path, api: Api) -> None:
    with serving(tmp_path, answers, model="claude-sonnet-4-5") as priced:
        session = priced.create_session()
        priced.say(session, "Of towns. " + "It lies at a river. " * 400)
        resume = priced.get(f"/{session}")["resume"]
        assert resume["tokens"] == priced.get(f"/{session}/context")["tokens"]
        assert resume["cold_usd"] == pytest.approx(resume["tokens"] * 3.75e-6)
        assert resume["warm_usd"] < resume["cold_usd"] / 2
        assert not resume["cold"]
    assert api.get(f"/{api.create_session()}")["resume"] is None


def test_a_session_goes_on_under_another_policy(api: Api) -> None:
    session = api.create_session()
    assert api.post(f"/{session}/policy", policy="sliding")["policy"] == "sliding"
    assert api.get(f"/{session}")["policy"] == "sliding"


def test_a_session_that_cannot_be_read_is_listed_with_the_reason(api: Api) -> None:
    session = api.create_session()
    (api.folder / "sessions" / session / "events.jsonl").write_text('{"type": "nonsense"}\n')
    damaged = {row["id"] for row in api.get("")["sessions"] if row.get("damage")}
    assert damaged == {session}
    for rest in ("", "/context", "/folds", "/history"):
        assert api.get(f"/{session}{rest}", 409)["type"] == "/problems/unreadable"


def test_the_list_is_read_while_all_threads_for_folds_calls_and_tools_are_held(api: Api) -> None:
    session = api.create_session()
    pools = (FOLDS, CALLS, READERS, TOOLS)
    held, released = {pool: threading.Event() for pool in pools}, threading.Event()

    def hold(pool: Workers, stop: StopSignal) -> None:
        del stop
        held[pool].set()
        assert released.wait(60)

    async def all_held() -> None:
        await asyncio.gather(*(pool.run(partial(hold, pool)) for pool in pools for _ in range(20)))

    holding = threading.Thread(target=asyncio.run, args=[all_held()])
    holding.start()
    try:
        assert all(event.wait(60) for event in held.values())
        assert session in [one["id"] for one in api.get("")["sessions"]]
        assert api.client.get("/health").status_code == 200
    finally:
        released.set()
        holding.join()


def said(api: Api, session: str) -> list[int]:
    """The numbers of the user's messages."""
    return [one["seq"] for one in api.get(f"/{session}/history")["messages"] if one["role"] == "user"]


def test_a_chosen_stretch_is_folded_alone(api: Api) -> None:
    session = long_session(api, turns=4)
    _, first, stop, _ = said(api, session)
    done = api.post(f"/{session}/fold", first=first, last=stop - 1, instructions="Keep the towns.")
    (fold,) = done["folds"]
    assert (fold["start"], fold["stop"]) == (first, stop)
    assert done["after"]["current_context_tokens"] < done["before"]["current_context_tokens"]
    hidden = [one["seq"] for one in api.get(f"/{session}/history")["messages"] if one["state"] == "hidden"]
    assert hidden == list(range(first, stop))
    assert api.post(f"/{session}/undo")["unfolded"] == [fold["id"]]
    assert api.post(f"/{session}/fold", 404, first=2, last=99)["field"] == "last"
    assert api.post(f"/{session}/fold", 404, first=3, last=2)["field"] == "last"


def test_a_session_goes_back_to_a_message_and_its_branches_are_listed(api: Api) -> None:
    session = long_session(api, turns=3)
    assert api.get(f"/{session}/branches")["branches"] == []
    second, count = said(api, session)[1], len(api.get(f"/{session}/history")["messages"])
    assert api.post(f"/{session}/rewind", seq=second) == {"left": count - second}
    assert api.say(session, "Something else.")["reason"] == "done"
    (branch,) = api.get(f"/{session}/branches")["branches"]
    assert (branch["start"], branch["stop"]) == (second, count) and branch["at"]
    sent = str(api.fake.requests[-1].body["messages"])
    assert "Town 0" in sent and "Something else." in sent and "Town 1" not in sent
    assert len(api.get(f"/{session}/history")["messages"]) > count
    assert api.post(f"/{session}/rewind", 404, seq=second)["field"] == "seq"
    assert api.post(f"/{session}/return", 404, tip=second)["field"] == "tip"
    assert api.post(f"/{session}/return", tip=count - 1) == {"back": count - second}
    tree = api.get(f"/{session}/branches")
    assert tree["current"] == [{"start": 0, "stop": count}]
    assert [(one["start"], one["messages"]) for one in tree["branches"]] == [(count, 2)]
    api.say(session, "And further.")
    sent = str(api.fake.requests[-1].body["messages"])
    assert "Town 1" in sent and "Something else." not in sent
