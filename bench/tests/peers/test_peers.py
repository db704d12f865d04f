"""Each peer runs end to end where its environment is, and every module has what the bench needs of it."""

from __future__ import annotations

import ast
import re

import pytest
from bench.tests.peers.support import FOLDER, ROOT, run_through

from foldline_bench.peers import PEERS, PLAIN

LONG = ("openhands-multiswe-0", 8_000, 40)
SHORT = ("tau-airline-46-t3", 3_000, 3)  # for what counts every token again at every step
SESSIONS = {"litellm": SHORT}
SUMMARISING = {"langchain", "pydantic_ai", "strands", "agent_framework"}

every_peer = pytest.mark.parametrize("peer", PEERS)
pytestmark = pytest.mark.xdist_group("peers")  # one worker alone runs the sessions that these tests look at


def tree(peer: str) -> ast.Module:
    return ast.parse((FOLDER / f"{peer}_peer.py").read_text("utf-8"))


def pins(peer: str) -> dict[str, str]:
    lines = (FOLDER / f"{peer}.txt").read_text("utf-8").splitlines()
    found = [re.fullmatch(r"([A-Za-z0-9._-]+)==([0-9][A-Za-z0-9.+!]*)", line) for line in lines]
    assert all(found), lines
    return {match[1]: match[2] for match in found if match}


def assigned(module: ast.Module) -> dict[str, ast.expr]:
    return {
        node.target.id: node.value
        for node in module.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None
    }


def test_every_module_of_a_peer_is_listed() -> None:
    modules = {path.name.removesuffix("_peer.py") for path in FOLDER.glob("*_peer.py")}
    assert modules == {PLAIN, *PEERS}
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(PEERS)


@every_peer
def test_the_packages_named_are_those_pinned(peer: str) -> None:
    packages = ast.literal_eval(assigned(tree(peer))["PACKAGES"])
    assert packages
    assert set(packages) == set(pins(peer))


@every_peer
def test_the_docstring_tells_what_is_called(peer: str) -> None:
    text = ast.get_docstring(tree(peer)) or ""
    assert len(text.splitlines()) > 5


@every_peer
def test_no_name_of_a_system_is_given_twice(peer: str) -> None:
    values = assigned(tree(peer))
    names = [
        ast.literal_eval(key) for table in ("SYSTEMS", "OWN_COUNTER") for key in getattr(values[table], "keys", ())
    ]
    assert names
    assert len(names) == len(set(names))
    assert all("own counter" in ast.literal_eval(key) for key in getattr(values["OWN_COUNTER"], "keys", ()))


@every_peer
def test_each_system_makes_requests_that_can_be_judged(peer: str) -> None:
    records = run_through(peer, *SESSIONS.get(peer, LONG))
    assert records
    for record in records:
        name = record["system"]
        assert record["malformed"] == 0, name
        assert record["copies"] == 0, f"{name}: a message left alone came back as a copy"
        assert record["tokens"], (name, record["errors"][:1])
        assert record["tokens"][0] == record["whole"][0], f"{name}: what fits is sent as it is"
        assert record["tokens"][-1] < record["whole"][-1], f"{name}: what does not fit is cut"
        assert len(record["tokens"]) + len(record["errors"]) == record["requests"], name


@every_peer
def test_a_summary_is_asked_of_the_recorded_summariser_alone(peer: str) -> None:
    asked = {record["system"]: record["asked"] for record in run_through(peer, *SESSIONS.get(peer, LONG))}
    assert all(prompt > 0 and output > 0 for calls in asked.values() for prompt, output in calls)
    asking = {name.lower() for name, calls in asked.items() if calls}
    assert all("summar" in name or "tiered" in name for name in asking)
    assert bool(asking) == (peer in SUMMARISING)


def test_no_text_is_counted_twice() -> None:
    for record in run_through("pydantic_ai", *LONG):
        assert record["again"] == 0, record["system"]


def test_strands_keeps_to_its_window_within_a_loop_of_tools_where_it_is_told_to() -> None:
    most = {record["system"]: max(record["messages"]) for record in run_through("strands", LONG[0], 1_000_000, 40)}
    assert most["strands SlidingWindow (per turn)"] <= 41, "40 and the system message"
    assert most["strands SlidingWindow (defaults)"] > 41


@pytest.mark.parametrize("session", [LONG[0], SHORT[0]])
def test_the_sessions_are_among_the_examples(session: str) -> None:
    assert (ROOT / "examples" / "sessions" / f"{session}.json.gz").exists()
