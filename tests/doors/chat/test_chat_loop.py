"""A chat from its first line to its last: turns, commands, questions, and the files that it leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.doors.chat.support import Held, hold
from tests.serving import serve

from foldline.doors.chat.commands import COMMANDS
from foldline.errors import FoldlineError, InvalidInput
from foldline.store.addresses import open_store
from foldline.testing import FakeProvider, FakeReply, asks_for_summary


def last_text(body: Mapping[str, Any]) -> str:
    return str(body["messages"][-1]["content"])


def echo(body: Mapping[str, Any]) -> str:
    return f"You said {last_text(body)}."


def test_a_line_is_answered_and_the_session_can_be_resumed(tmp_path: Path) -> None:
    held = hold(FakeProvider(echo), tmp_path, ["hello", "again"])
    assert held.code == 0
    assert "You said hello." in held.text
    assert held.text.count("[tokens: ") == 2
    (name,) = held.sessions
    assert f"To go on: foldline chat --resume {name}" in held.text
    fake = FakeProvider(echo)
    resumed = hold(fake, tmp_path, ["third"], resume="latest")
    assert f"session  {name}, resumed" in resumed.text
    assert resumed.sessions == [name]
    assert [m["content"] for m in fake.requests[0].body["messages"] if m["role"] == "user"] == [
        "hello",
        "again",
        "third",
    ]


def test_a_session_in_a_named_place_is_resumed_from_there_and_originals_are_found(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path / 'kept here.db'}"
    lines = ["begin", "go on", "/compact", "/why 0"]
    held = hold(FakeProvider(long_then_short), tmp_path, lines, answers=["y"], place=place)
    assert held.sessions == []
    with closing(open_store(place)) as store:
        (name,) = store.names()
        text = "".join(held.text.split())  # where a line wraps depends on the length of the path
        assert "".join(f"To go on: foldline chat --resume {name} --store '{store.place}'".split()) in text
        assert "".join(f"original: {store.place} {name} archive:".split()) in text
    fake = FakeProvider(echo)
    resumed = hold(fake, tmp_path, ["third"], resume="latest", place=place)
    assert f"session  {name}, resumed" in resumed.text
    assert last_text(fake.requests[0].body) == "third"


def test_the_start_says_which_model_and_why_and_what_it_may_do(tmp_path: Path) -> None:
    held = hold(FakeProvider(), tmp_path, ["/cost"], window=9_000, policy="cost", allow=("run_command",))
    assert "policy cost" in held.text
    assert "model    fake-model by custom: as set" in held.text
    assert "window   9,000 tokens, as set" in held.text
    assert "allowed  run_command; each call is asked for" in held.text
    assert f"folder   {tmp_path / 'work'}" in held.text.replace("\n", "")


@pytest.mark.parametrize("lines", [[], ["/context"], ["  ", ""], ["/history", "/undo", "/cost"]])
def test_a_session_without_a_word_leaves_nothing(tmp_path: Path, lines: list[str]) -> None:
    held = hold(FakeProvider(), tmp_path, lines)
    assert held.code == 0
    assert held.sessions == []
    assert "To go on" not in held.text


def test_nothing_is_kept_when_nothing_is_to_be_kept(tmp_path: Path) -> None:
    held = hold(FakeProvider(echo), tmp_path, ["hello", "/context", "/resume"], save=False)
    assert "You said hello." in held.text
    assert "nothing is kept here (--no-save)" in held.text
    assert held.sessions == []
    assert not (held.home / "data").exists()


def test_two_slashes_say_a_text_that_begins_with_one(tmp_path: Path) -> None:
    fake = FakeProvider(echo)
    hold(fake, tmp_path, ["//etc is a folder"])
    assert last_text(fake.requests[0].body) == "/etc is a folder"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/contxt", "did you mean /context?"),
        ("/xyzzy", "/help lists them"),
        ("/why", "/why: takes the number of a message"),
        ("/why 99", "there is no message 99; they are 0 to 1"),
        ("/why fold 7", "there is no fold 7"),
        ("/pin x", "/pin: takes the number"),
        ("/fold", "/fold: takes the numbers of messages"),
        ("/fold 4-2", "/fold: takes the numbers of messages"),
        ("/fold 0-99", "/fold: there is no message 99; they are 0 to 1"),
        ("/rewind x", "/rewind: takes the number"),
        ("/rewind 99", "/rewind: there is no message 99; they are 0 to 1"),
        ("/pin 99", "/pin: there is no message 99; they are 0 to 1"),
        ("/pin ²", "/pin: takes the number"),
        ("/pin " + "9" * 5_000, "/pin: takes the number"),
        ("/why ²", "/why: takes the number"),
        ("/why " + "9" * 5_000, "/why: takes the number"),
        ("/why fold " + "9" * 5_000, "/why: takes the number"),
        ("/history -3", "/history: takes how many"),
        ("/history 0", "/history: takes how many"),
        ("/history ²", "/history: takes how many"),
        ("/history " + "9" * 5_000, "/history: takes how many"),
        ("/policy nope", "unknown policy 'nope'"),
        ("/model openai", "openai needs a key: set OPENAI_API_KEY"),
        ("/resume nope", "there is no session 'nope'"),
        ("/export", "/export: takes the file"),
        ("/export /nosuch/x.md", "no such folder"),
        ("/clear all", "/clear: takes nothing"),
    ],
)
def test_a_wrong_command_is_one_clear_line_and_nothing_changes(tmp_path: Path, line: str, message: str) -> None:
    held = hold(FakeProvider(echo), tmp_path, ["hello", line, "still here"], width=200)
    said = held.text.partition("You said hello.")[2].splitlines()
    (found,) = [each for each in said if message in each]
    assert "Traceback" not in held.text
    assert "You said still here." in held.text, found


def test_help_has_every_command(tmp_path: Path) -> None:
    held = hold(FakeProvider(), tmp_path, ["/help"])
    assert all(command.usage in held.text and command.description in held.text for command in COMMANDS)


def long_then_short(body: Mapping[str, Any]) -> FakeReply | str:
    if "summar" in str(body["messages"][0]).lower() and len(body["messages"]) <= 2 and "tools" not in body:
        return "The user counts; the colour is blue."
    return "one two three four five. " * 40


def test_folds_can_be_looked_into_and_taken_back(tmp_path: Path) -> None:
    lines = ["begin", "go on", "/compact", "/why 0", "/history", "/undo", "/undo", "/why 0"]
    held = hold(FakeProvider(long_then_short), tmp_path, lines, answers=["y"])
    text = held.text
    assert "folded 4 messages: " in text
    assert "/why 0 · /undo" in text
    assert "stands for 4 messages (0–3)" in text
    assert "original: " in text
    assert "   0 - user      begin" in text
    assert "took back 1 fold" in text
    assert "no fold is in effect" in text
    assert "message 0, user, " in text
    assert text.rstrip().splitlines()[-2].strip() == "begin"


def test_what_the_bar_shows_is_the_window(tmp_path: Path) -> None:
    held = hold(FakeProvider(echo), tmp_path, ["hello", "/pin 0", "/context"], width=60, window=9_000)
    rows = [line.split() for line in held.text.splitlines() if line.rstrip().endswith("%")]
    assert [row[1] for row in rows] == ["system", "rules", "tools", "pinned", "folded", "live", "free"]
    assert sum(int(row[2].replace(",", "")) for row in rows) == 9_000
    assert max(map(len, held.text.partition("free")[0].splitlines()[-9:])) <= 60


def test_chosen_messages_are_folded_and_come_back(tmp_path: Path) -> None:
    talk = [f"part {number} " + "word " * 300 for number in range(4)]
    fake = FakeProvider(lambda body: "Goal: to hear the parts." if asks_for_summary(body) else echo(body))
    held = hold(fake, tmp_path, [*talk, "/fold 2-3", "go on", "/undo", "go on"], window=60_000)
    assert "folded 2 messages: ~" in held.text
    sent = [str(request.body["messages"]) for request in fake.requests]
    assert "part 1 word word" not in sent[-2] and "part 0 word word" in sent[-2] and "part 2 word word" in sent[-2]
    assert "part 1 word word" in sent[-1]


def test_going_back_to_a_message_is_a_branch_of_the_same_session(tmp_path: Path) -> None:
    fake = FakeProvider(echo)
    held = hold(fake, tmp_path, ["one", "two", "three", "/rewind 2", "another two"], window=9_000)
    assert "left 4 messages" in held.text
    assert "it said: two" in held.text
    sent = str(fake.requests[-1].body["messages"])
    assert "one" in sent and "another two" in sent and "three" not in sent
    assert len(held.sessions) == 1
    again = hold(fake, tmp_path, ["and now"], window=9_000, resume=held.sessions[0])
    assert "another two" in str(fake.requests[-1].body["messages"]) and "three" not in str(
        fake.requests[-1].body["messages"]
    )
    assert again.code == 0


def test_rules_that_stay_are_listed_with_their_sources(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "AGENTS.md").write_text("Run make check.", encoding="utf-8")
    held = hold(FakeProvider(echo), tmp_path, ["/rules", "Never push to main.", "/rules", "/context"], window=9_000)
    assert "AGENTS.md · in the system text · ~" in held.text
    assert "user · message 0 · ~" in held.text
    assert held.text.count("  Never push to main.") >= 1
    assert "rules that stay: AGENTS.md " in held.text


def test_the_policy_can_be_changed_on_the_way(tmp_path: Path) -> None:
    held = hold(FakeProvider(echo), tmp_path, ["hello", "/policy cost", "again", "/policy"])
    assert "policy cost from here on" in held.text
    assert "You said again." in held.text
    assert "cost; there are autopilot" in held.text


def test_another_model_goes_on_with_the_same_session(tmp_path: Path) -> None:
    fake = FakeProvider(echo)
    held = hold(fake, tmp_path, ["hello", "/model other-model", "again"])
    assert [request.body["model"] for request in fake.requests] == ["fake-model", "other-model"]
    assert "hello" in str(fake.requests[1].body["messages"])
    assert len(held.sessions) == 1


def test_a_model_of_another_dialect_gets_what_was_shown_in_a_session_of_its_own(tmp_path: Path) -> None:
    fake = FakeProvider(lambda body: "Noted.")
    environ = {"ANTHROPIC_API_KEY": "sk-ant-test"}
    held = _across(fake, tmp_path, environ)
    assert "goes on in a new session" in held.text
    assert fake.requests[-1].dialect == "anthropic"
    assert [m["role"] for m in fake.requests[-1].body["messages"]] == ["user", "assistant", "user"]
    logs = [held.home / "data" / "sessions" / name / "events.jsonl" for name in held.sessions]
    headers = [json.loads(log.read_text().splitlines()[0]) for log in logs]
    (new,) = [header for header in headers if header["dialect"] == "anthropic"]
    assert new["parent"] == next(header["id"] for header in headers if header is not new)
    assert set(fake.refusals) <= {"route"}  # questions about a window that it does not answer


def _across(fake: FakeProvider, tmp_path: Path, environ: dict[str, str]) -> Held:
    with serve(fake) as served:
        return hold(
            fake,
            tmp_path,
            ["hello", "/model anthropic:claude-test", "again"],
            environ={**environ, "ANTHROPIC_BASE_URL": served.url},
        )


def test_a_session_of_another_dialect_is_resumed_as_a_new_one(tmp_path: Path) -> None:
    fake = FakeProvider(lambda body: "Noted.")
    (first,) = hold(fake, tmp_path, ["hello"]).sessions
    with serve(fake) as served:
        environ = {"ANTHROPIC_API_KEY": "sk-ant-test", "ANTHROPIC_BASE_URL": served.url}
        options: dict[str, Any] = {"base_url": None, "model": None, "provider": "anthropic"}
        held = hold(fake, tmp_path, ["again"], resume="latest", environ=environ, **options)
    assert f"{first} speaks openai-chat; what its model was shown goes on in" in held.text
    assert [m["role"] for m in fake.requests[-1].body["messages"]] == ["user", "assistant", "user"]
    assert len(held.sessions) == 2


def test_an_export_has_all_that_was_said(tmp_path: Path) -> None:
    markdown, messages = tmp_path / "talk.md", tmp_path / "talk.json"
    hold(FakeProvider(echo), tmp_path, ["hello", f"/export {markdown}", f"/export {messages}"])
    assert "You said hello." in markdown.read_text()
    assert [m["content"] for m in json.loads(messages.read_text())["messages"]] == ["hello", "You said hello."]
    assert markdown.stat().st_mode & 0o077 == 0
    kept = hold(FakeProvider(echo), tmp_path, ["bye", f"/export {markdown}"], answers=["n"])
    assert "Replace it? [y/N]" in kept.questions[0]
    assert "You said bye." not in markdown.read_text()


def test_clear_begins_anew_and_resume_goes_back(tmp_path: Path) -> None:
    fake = FakeProvider(echo)
    held = hold(fake, tmp_path, ["hello", "/clear", "second"])
    assert len(held.sessions) == 2
    assert "hello" not in str(fake.requests[1].body["messages"])
    first = held.text.partition("; /resume ")[2].split()[0]
    again = hold(fake, tmp_path, ["/resume", f"/resume {first}", "third"])
    assert f"going on with {first}: 2 messages" in again.text
    assert "hello" in str(fake.requests[2].body["messages"])


def test_the_cost_is_said_by_model_with_what_was_cached(tmp_path: Path) -> None:
    held = hold(FakeProvider(echo), tmp_path, ["hello", "again", "/model gpt-4.1-mini", "third", "/cost"])
    (first,) = [line for line in held.text.splitlines() if line.startswith("fake-model: 2 calls")]
    assert "no price in the catalogue" in first
    assert "cached" in first
    (second,) = [line for line in held.text.splitlines() if line.startswith("gpt-4.1-mini: 1 call")]
    assert "$0.0" in second


def writes(body: Mapping[str, Any]) -> FakeReply | str:
    if body["messages"][-1]["role"] == "tool":
        return last_text(body)
    name = last_text(body)
    return FakeReply(calls=(("write_file", {"path": name, "content": "x"}),))


def test_each_call_that_changes_something_is_asked_for(tmp_path: Path) -> None:
    held = hold(
        FakeProvider(writes),
        tmp_path,
        ["a.txt", "b.txt", "c.txt", "d.txt"],
        answers=["y", "", "a"],
        allow=("write_file",),
    )
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["a.txt", "c.txt", "d.txt"]
    assert len(held.questions) == 3
    assert held.text.count("write_file wants to run:") == 3


def test_a_yes_for_always_does_not_go_over_to_the_next_session(tmp_path: Path) -> None:
    lines = ["a.txt", "/clear", "b.txt"]
    held = hold(FakeProvider(writes), tmp_path, lines, answers=["a", "n"], allow=("write_file",))
    assert len(held.questions) == 2
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["a.txt"]


def test_a_refused_key_is_one_line_and_the_chat_goes_on(tmp_path: Path) -> None:
    fake = FakeProvider([FakeReply(status=401), "Now it works."])
    held = hold(fake, tmp_path, ["hello", "again"])
    assert "auth: " in held.text
    assert "Now it works." in held.text


def test_a_window_that_is_a_guess_is_said_once(tmp_path: Path) -> None:
    held = hold(FakeProvider(echo, tells_window=False), tmp_path, ["hello", "again"], width=200)
    assert held.text.count("is not in the catalogue: its window is taken to be 8,192 tokens") == 1


def test_a_setting_that_cannot_be_names_its_flag(tmp_path: Path) -> None:
    for given, flag in (({"window": 0}, "--window"), ({"policy": "x"}, "--policy"), ({"allow": ("x",)}, "--allow")):
        with pytest.raises(InvalidInput) as caught:
            hold(FakeProvider(), tmp_path, [], **given)
        assert caught.value.place == flag


def test_what_keeps_a_chat_from_beginning_is_raised(tmp_path: Path) -> None:
    with pytest.raises(FoldlineError, match="needs a key"):
        hold(FakeProvider(), tmp_path, ["hi"], base_url=None, provider="openai")
    with pytest.raises(FoldlineError, match="there is no session"):
        hold(FakeProvider(), tmp_path, ["hi"], resume="20200101")


def test_the_log_of_a_session_has_calls_and_folds_and_no_secret(tmp_path: Path) -> None:
    secret = "sk-proj-" + "Ab1" * 12
    fake = FakeProvider([FakeReply(status=401, message=f"Incorrect API key provided: {secret}"), long_then_short])
    held = hold(fake, tmp_path, ["hello", "more", "/compact"], answers=["y"])
    (name,) = held.sessions
    log = held.home / "data" / "sessions" / name / "chat.log"
    text = log.read_text()
    assert "Calling AI with 1 messages (~5 bytes, ~1 tokens)" in text
    assert "Context compacted: " in text
    assert secret not in text
    assert "Ab1Ab1" not in text
    assert log.stat().st_mode & 0o777 == 0o600
