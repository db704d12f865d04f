from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from foldline import check
from foldline.errors import InvalidInput
from foldline.recorded.files import read_session
from foldline_bench.public_cases import named
from foldline_bench.public_sessions import SOURCES, cases_of, joined, main, messages_of

PYTHON = Path(".bench/public/bin/python")

# From a task of BFCL, with the results of its file system.
CASE: dict[str, Any] = {
    "group": "GorillaFileSystem",
    "system": "",
    "asked": [
        [
            "Move 'final_report.pdf' within document directory to 'temp' directory in document.",
            [
                ["cd", {"folder": "document"}, '{"current_working_directory": "document"}'],
                ["mkdir", {"dir_name": "temp"}, "None"],
                [
                    "mv",
                    {"source": "final_report.pdf", "destination": "temp"},
                    "{\"result\": \"'final_report.pdf' moved to 'temp/final_report.pdf'\"}",
                ],
            ],
        ],
        [
            "Perform a detailed search using grep to identify sections in the file pertaining to 'budget analysis'.",
            [["cd", {"folder": "temp"}, '{"current_working_directory": "temp"}']],
        ],
    ],
}


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("cd(folder='document')", ("cd", {"folder": "document"})),
        ("sort('final_report.pdf')", ("sort", {"args": ["final_report.pdf"]})),
        ("grep(file_name='a.txt',pattern=\"it's\")", ("grep", {"file_name": "a.txt", "pattern": "it's"})),
        ("book(price=-1.5, seats=[1, 2], late=True)", ("book", {"price": -1.5, "seats": [1, 2], "late": True})),
        ("mean(numbers=other(1))", ("mean", {"numbers": "other(1)"})),
    ],
)
def test_a_call_in_the_form_of_python_is_a_name_and_arguments(call: str, found: tuple[str, dict[str, Any]]) -> None:
    assert named(call) == found
    assert json.dumps(named(call)[1])


def test_each_call_is_a_request_of_its_own_with_its_result() -> None:
    messages = list(messages_of(CASE, 7))
    assert [message["role"] for message in messages] == [
        "user",
        *["assistant", "tool"] * 3,
        "user",
        "assistant",
        "tool",
    ]
    assert [message["tool_call_id"] for message in messages if message["role"] == "tool"] == [
        "call_7_1",
        "call_7_2",
        "call_7_3",
        "call_7_4",
    ]
    assert check(messages, dialect="openai-chat") == []


def test_cases_of_a_group_are_joined_until_they_are_large_enough() -> None:
    other = {**CASE, "group": "TravelAPI", "system": "Be polite."}
    made = list(joined("bfcl", [CASE, other, CASE, CASE, other], 600))
    assert [session["id"] for session in made] == ["bfcl-gorillafilesystem-1", "bfcl-travelapi-1"]
    assert made[0]["joints"] == [0, 10]
    assert made[1]["joints"] == [1, 11]
    assert made[1]["messages"][0] == {"role": "system", "content": "Be polite."}
    for session in made:
        assert (session["source"], session["licence"]) == SOURCES["bfcl"]
        assert check(session["messages"], dialect="openai-chat") == []
        for joint in session["joints"]:
            assert session["messages"][joint]["role"] == "user"


def test_without_the_packages_what_to_do_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match=r"bench/tools/bench_peers\.py public"):
        cases_of("retail", tmp_path / "python")
    with pytest.raises(InvalidInput, match=r"cannot be made: .*No module named"):
        cases_of("retail", Path(sys.executable))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main([str(tmp_path / "out")])
    assert "install it with" in capsys.readouterr().err


def test_the_tasks_of_the_packages_are_sessions_that_can_be_replayed(tmp_path: Path) -> None:
    if not PYTHON.exists():
        pytest.skip("not installed: python bench/tools/bench_peers.py public")
    session = next(joined("airline", cases_of("airline"), 2_000))
    file = tmp_path / "session.json.gz"
    with gzip.open(file, "wt", encoding="utf-8") as out:
        json.dump(session, out)
    read = read_session(str(file))
    assert (read.dialect, read.source) == ("openai-chat", SOURCES["airline"][0])
    assert check(read.messages, dialect="openai-chat") == []
