"""Each peer runs end to end where its environment is, and every module has what the bench needs of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests.bench.peers.support import FOLDER, run_through

from foldline.bench.peers import PEERS

SESSION = "openhands-multiswe-0"
BUDGET_TOKENS = 8_000

every_peer = pytest.mark.parametrize("peer", PEERS)


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
    assert modules == set(PEERS)
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
    records = run_through(peer, SESSION, BUDGET_TOKENS)
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
    for record in run_through(peer, SESSION, BUDGET_TOKENS):
        summarises = "summar" in record["system"].lower() or "tiered" in record["system"].lower()
        assert bool(record["asked"]) == summarises, record["system"]
        assert all(prompt > 0 and output > 0 for prompt, output in record["asked"]), record["system"]


def test_the_sessions_of_the_examples_are_there() -> None:
    assert Path(FOLDER.parents[3] / "examples" / "sessions" / f"{SESSION}.json.gz").exists()
