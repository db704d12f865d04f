"""A client reads its own conversation at the proxy, word for word, and nobody else's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.doors.proxy.proxies import proxy_of
from tests.serving import serve

from foldline.testing import FakeProvider, FakeReply, asks_for_summary

WINDOW = 4_000
LINE = "request answered in time, nothing unusual"
TOKEN = "a-token-of-some-length"
OWNER = "a-secret-of-the-run"


def reply(body: Mapping[str, Any]) -> FakeReply:
    return FakeReply("The log was read; part 1 was the first." if asks_for_summary(body) else "So it is.")


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


@dataclass
class Talk:
    """A conversation of one client: its messages, and what it asks of the proxy's own tools."""

    url: str
    key: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    tools: list[dict[str, Any]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)

    def say(self, text: str) -> httpx.Response:
        self.messages.append({"role": "user", "content": text})
        body = {"model": "gpt-5", "max_tokens": 100, "messages": self.messages, "tools": self.tools or None}
        sent = {name: value for name, value in body.items() if value is not None}
        answer = httpx.post(f"{self.url}/v1/chat/completions", json=sent, headers=self.own, timeout=60)
        assert answer.status_code == 200, answer.text
        self.messages.append({"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]})
        return answer

    def read_parts(self, count: int) -> httpx.Response:
        """Several windows of text, the part with its number in each line."""
        for part in range(1, count):
            self.say("\n".join(f"{self.key} part {part} line {n}: {LINE}" for n in range(1, 60)))
        return self.say(f"{self.key} part {count}")

    def ask(self, tool: str, **arguments: Any) -> tuple[int, Any]:
        url = f"{self.url}/foldline/tools/{tool}"
        answer = httpx.post(url, content=json.dumps(arguments), headers=self.own, timeout=60)
        return answer.status_code, answer.json()

    def told(self, tool: str, **arguments: Any) -> str:
        status, answer = self.ask(tool, **arguments)
        assert (status, answer.get("is_error")) == (200, False), answer
        return str(answer["text"])

    @property
    def own(self) -> dict[str, str]:
        return {**({"authorization": f"Bearer {self.key}"} if self.key else {}), **self.headers}


@contextmanager
def proxy(tmp_path: Path, **settings: Any) -> Iterator[tuple[str, FakeProvider]]:
    fake = FakeProvider(reply, window_tokens=WINDOW, keep=1_000)
    with serve(fake) as served, proxy_of(served.url, tmp_path, **settings) as running:
        yield running.url, fake


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "store"])
def test_what_was_folded_is_found_and_read_word_for_word(stored: bool, tmp_path: Path) -> None:
    with proxy(tmp_path, store=str(tmp_path / "store") if stored else None) as (url, fake):
        talk = Talk(url, "sk-one")
        assert int(talk.read_parts(12).headers["x-foldline-folds"]) > 0
        line = f"sk-one part 1 line 33: {LINE}"
        assert line not in json.dumps(fake.requests[-1].body)
        assert talk.told("recall", action="grep", pattern="part 1 line 33:").endswith(f"entry 0, line 33: {line}")
        assert line in talk.told("recall", action="peek", entry=0, start_line=33, lines=1)
        report = talk.told("context")
    assert report.startswith("Window: 4,000 tokens. The next request has about ")
    assert "Folded (recall reads each entry as it was):" in report
    assert "Price of its input: $" in report


def test_a_wrong_call_is_told_so_that_the_model_can_correct_it(tmp_path: Path) -> None:
    with proxy(tmp_path) as (url, _):
        talk = Talk(url, "sk-one")
        talk.say("Hello.")
        wrong: dict[str, dict[str, Any]] = {
            "entry: peek needs the number of an entry; grep finds it": {"action": "peek"},
            "recall was not run: action:": {"action": "fetch"},
            "seq: no entry 99": {"action": "peek", "entry": 99},
        }
        for said, arguments in wrong.items():
            status, answer = talk.ask("recall", **arguments)
            assert (status, answer["is_error"]) == (200, True)
            assert said in answer["text"]
        assert talk.ask("undo")[0] == 404
        assert talk.ask("compact", instructions="x" * 70_000)[0] == 413


def test_an_answer_is_no_larger_than_its_window_allows(tmp_path: Path) -> None:
    with proxy(tmp_path) as (url, _):
        talk = Talk(url, "sk-one")
        talk.read_parts(12)
        found = talk.told("recall", action="grep", pattern="line")
    assert len(found) < WINDOW * 3 // 4
    assert found.endswith("more characters: there is no room for them; ask for less]")


def test_a_compaction_is_made_with_the_next_request_and_loses_nothing(tmp_path: Path) -> None:
    with proxy(tmp_path, window=100_000, summaries=True) as (url, fake):
        talk = Talk(url, "sk-one")
        talk.read_parts(3)
        given = len(fake.requests[-1].body["messages"])
        assert "will be compacted with the next request" in talk.told("compact", instructions="Keep the numbers.")
        assert "A compaction is made with the next request." in talk.told("context")
        answer = talk.say("Go on.")
        assert int(answer.headers["x-foldline-folds"]) >= 1
        asked, sent = list(fake.requests)[-2:]
        assert "Keep the numbers." in json.dumps(asked.body)
        assert len(sent.body["messages"]) < given
        assert "part 1 line 7:" not in json.dumps(sent.body)
        assert f"line 7: sk-one part 1 line 7: {LINE}" in talk.told("recall", action="grep", pattern="part 1 line 7:")
        assert "A compaction" not in talk.told("context")


def test_entries_are_folded_with_the_next_request_and_the_others_stay_as_they_are(tmp_path: Path) -> None:
    with proxy(tmp_path, window=100_000, summaries=True) as (url, fake):
        talk = Talk(url, "sk-one")
        talk.read_parts(4)
        found = talk.told("recall", action="grep", pattern="part 2 line 7:")
        first = int(found.split("entry ")[1].split(",")[0])
        told = talk.told("compact", first=first, last=first + 1)
        assert told.startswith(f"Entries {first} to {first + 1} (")
        talk.say("Go on.")
        sent = json.dumps(fake.requests[-1].body["messages"])
        assert "part 2 line 7:" not in sent
        assert "part 1 line 7:" in sent
        assert "part 3 line 7:" in sent
        assert "part 2 line 7:" in talk.told("recall", action="grep", pattern="part 2 line 7:")


def test_what_mentions_a_topic_is_folded_with_the_next_request(tmp_path: Path) -> None:
    with proxy(tmp_path, window=100_000, summaries=True) as (url, fake):
        talk = Talk(url, "sk-one")
        talk.read_parts(4)
        assert talk.told("compact", topic="part 3 line 9:").startswith("What mentions 'part 3 line 9:' (")
        talk.say("Go on.")
        sent = json.dumps(fake.requests[-1].body["messages"])
        assert "part 3 line 7:" not in sent
        assert "part 2 line 7:" in sent


def test_a_topic_that_nothing_mentions_changes_nothing_and_says_so(tmp_path: Path) -> None:
    with proxy(tmp_path, window=100_000) as (url, fake):
        talk = Talk(url, "sk-one")
        talk.read_parts(2)
        talk.told("compact", topic="zeppelin")
        talk.say("Go on.")
        assert fake.requests[-1].body["messages"] == talk.messages[:-1]
        assert "The last compaction changed nothing: " in talk.told("context")


def test_what_cannot_be_meant_is_refused_before_a_request_is_changed(tmp_path: Path) -> None:
    with proxy(tmp_path, window=100_000) as (url, fake):
        talk = Talk(url, "sk-one")
        talk.read_parts(2)
        for asked, why in (
            ({"first": 2}, "give first and last together"),
            ({"first": 0, "last": 1, "topic": "part"}, "give first and last together"),
            ({"first": 1, "last": 0}, "first (1) is after last (0)"),
            ({"first": 1, "last": 99}, "entries 1 to 99 are not there; they are 0 to "),
        ):
            _, answer = talk.ask("compact", **asked)
            assert answer["is_error"]
            assert why in answer["text"]
        talk.say("Go on.")
        assert fake.requests[-1].body["messages"] == talk.messages[:-1]


def test_a_compaction_that_finds_nothing_changes_nothing_and_says_so(tmp_path: Path) -> None:
    with proxy(tmp_path) as (url, fake):
        talk = Talk(url, "sk-one")
        talk.say("Hello.")
        talk.told("compact")
        talk.say("Go on.")
        assert fake.requests[-1].body["messages"] == talk.messages[:-1]
        assert "The last compaction changed nothing: " in talk.told("context")


# --- who may ----------------------------------------------------------------------------------------------------------


def test_a_client_reads_nothing_of_another(tmp_path: Path) -> None:
    with proxy(tmp_path, owner=OWNER) as (url, _):
        one, other = Talk(url, "sk-one"), Talk(url, "sk-two")
        one.say("The password is swordfish.")
        assert other.ask("recall", action="grep", pattern="swordfish")[0] == 404
        other.say("Hello.")
        assert "No line of the conversation matches" in other.told("recall", action="grep", pattern="swordfish")
        other.headers = {"x-foldline-owner": "guessed"}
        assert "No line of the conversation matches" in other.told("recall", action="grep", pattern="swordfish")
        stranger = Talk(url, "sk-three", headers={"x-foldline-session": "x"})
        assert stranger.ask("context")[0] == 404


def test_without_a_key_a_token_is_needed(tmp_path: Path) -> None:
    with proxy(tmp_path) as (url, _):
        talk = Talk(url)
        talk.say("The password is swordfish.")
        status, answer = talk.ask("context")
    assert status == 401
    assert "start the proxy with a token" in answer["detail"]
    with proxy(tmp_path, token=TOKEN) as (url, _):
        talk = Talk(url, headers={"x-foldline-token": TOKEN})
        talk.say("The password is swordfish.")
        assert "swordfish" in talk.told("recall", action="grep", pattern="password")
        talk.headers = {}
        assert talk.ask("context")[0] == 401


def test_the_owner_reads_the_conversation_that_was_used_last(tmp_path: Path) -> None:
    with proxy(tmp_path, owner=OWNER) as (url, _):
        Talk(url, "sk-one").say("An older one.")
        Talk(url, "sk-two").say("A newer one.")
        owner = Talk(url, headers={"x-foldline-owner": OWNER})
        assert "A newer one." in owner.told("recall", action="grep", pattern="one")


def test_a_question_beside_the_conversation_is_not_taken_for_it(tmp_path: Path) -> None:
    with proxy(tmp_path) as (url, _):
        main = Talk(url, "sk-one", tools=[function("mcp__foldline__recall")])
        main.say("The main one.")
        Talk(url, "sk-one", tools=[function("search")]).say("An agent.")
        Talk(url, "sk-one").say("A title, please.")
        assert "The main one." in main.told("recall", action="peek", entry=0)


def test_a_client_names_its_conversation(tmp_path: Path) -> None:
    with proxy(tmp_path) as (url, _):
        named = Talk(url, "sk-one", headers={"x-foldline-session": "first"})
        named.say("The first one.")
        Talk(url, "sk-one", headers={"x-foldline-session": "second"}).say("The second one.")
        assert "The first one." in named.told("recall", action="peek", entry=0)
        same_name = Talk(url, "sk-two", headers={"x-foldline-session": "first"})
        assert same_name.ask("context")[0] == 404
