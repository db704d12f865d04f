"""Requests through the whole proxy, over real connections, to a provider with real refusals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.doors.proxy.proxies import (
    HEADERS,
    PATHS,
    Fixed,
    Recording,
    ServedProxy,
    before_newest,
    messages_in,
    proxied,
    proxy_of,
    proxy_with,
    request_of,
)
from tests.serving import serve

from foldline import check, classify
from foldline.conversations.conversation_cache import PlannedRequest
from foldline.conversations.request_plan import ConversationSettings
from foldline.conversations.service import Conversations
from foldline.doors.proxy.served_request import ServedRequest
from foldline.failures.failure import Failure
from foldline.testing import FakeProvider, FakeReply
from foldline.view.transcript import Usage

WINDOW = 3_000
dialects = pytest.mark.parametrize("dialect", list(PATHS))


class Client:
    """A client that resends everything, as clients do."""

    def __init__(
        self, proxy: ServedProxy, dialect: str, *, stream: bool = False, name: str = "", key: str = ""
    ) -> None:
        self.url, self.dialect, self.stream = proxy.url + PATHS[dialect], dialect, stream
        self.messages: list[dict[str, Any]] = []
        self.headers = HEADERS | ({"x-foldline-session": name} if name else {})
        self.headers |= {"authorization": f"Bearer {key}"} if key else {}

    def ask(self, text: str, **more: Any) -> httpx.Response:
        """Say something; the answer becomes a part of the history when it is one."""
        self.messages.append({"role": "user", "content": text})
        body = request_of(self.dialect, self.messages, stream=self.stream, **more)
        # Certificates take 20 ms to load, and nothing is checked against them on loopback.
        answer = httpx.post(self.url, json=body, headers=self.headers, timeout=60, verify=False)
        if answer.status_code == 200:
            self.messages.append(
                {"role": "assistant", "content": f"That was number {len(self.messages)}. " + "so " * 20}
            )
        return answer

    def talk(self, turns: int) -> httpx.Response:
        """Several questions of a few hundred words."""
        for number in range(turns):
            answer = self.ask(f"Question {number}: " + "words of a long story " * 60)
            assert answer.status_code == 200, answer.text
        return answer


# --- what passes -----------------------------------------------------------------------------------------------------


PIECES = (b": a comment\n\n", b'event: x.y\ndata: {"type":"x.y","\\u00e9":1.0}\n\n', b"data: [DONE]\r\n\r\n")


@dialects
def test_a_request_that_fits_passes_byte_for_byte_and_so_does_its_answer(dialect: str, tmp_path: Path) -> None:
    upstream = Recording(Fixed(PIECES))
    sent = json.dumps(request_of(dialect, [{"role": "user", "content": "Grüße"}], stream=True), indent=3)
    sent = sent.replace('"m"', '"m", "of_tomorrow" : [1.0, -0, "\\u0041"]  ')
    with proxied(upstream, tmp_path) as proxy:
        answer = httpx.post(
            proxy.url + PATHS[dialect], content=sent.encode(), headers={**HEADERS, "x-of-tomorrow": "a b"}
        )
    assert upstream.bodies == [sent.encode()]
    assert (b"x-of-tomorrow", b"a b") in upstream.headers[0]
    assert (b"authorization", b"Bearer sk-client-key") in upstream.headers[0]
    assert answer.content == b"".join(PIECES)


@dialects
def test_what_cannot_be_read_passes_and_the_upstream_says_what_is_wrong(dialect: str, tmp_path: Path) -> None:
    upstream = Recording(Fixed((b'{"error":{"message":"no"}}',), status=422))
    bodies = [b"", b"{", b"[1]", b'{"messages": 3}', b'{"messages":[3]}', b'{"a":1}', b"\xff\xfe"]
    with proxied(upstream, tmp_path) as proxy:
        answers = [httpx.post(proxy.url + PATHS[dialect], content=body) for body in bodies]
    assert [(one.status_code, one.content) for one in answers] == [(422, b'{"error":{"message":"no"}}')] * len(bodies)
    assert upstream.bodies == bodies


def test_other_paths_pass_both_ways(tmp_path: Path) -> None:
    upstream = Recording(
        Fixed((b"one", b"two"), ((b"content-type", b"x/y"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")))
    )
    with proxied(upstream, tmp_path) as proxy:
        answer = httpx.post(f"{proxy.url}/v1/files?purpose=a%20b", content=b"\0\1" * 50_000)
    assert upstream.bodies == [b"\0\1" * 50_000]
    assert answer.content == b"onetwo"
    assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]


@pytest.mark.parametrize("more", [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}])
def test_what_a_server_holds_a_part_of_passes_with_a_word_about_it(more: dict[str, str], tmp_path: Path) -> None:
    upstream = Recording(Fixed((b"{}",)))
    body = json.dumps(request_of("openai-responses", [{"role": "user", "content": "word " * 9_000}], **more)).encode()
    with proxied(upstream, tmp_path, window=WINDOW) as proxy:
        answer = httpx.post(f"{proxy.url}/v1/responses", content=body)
    assert upstream.bodies == [body]
    assert next(iter(more)) in answer.headers["x-foldline-warning"]


# --- what is folded --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dialect", "stream"), [*((dialect, True) for dialect in PATHS), ("openai-chat", False)])
def test_a_conversation_of_five_windows_is_refused_nothing_and_its_prefix_stays(
    dialect: str, stream: bool, tmp_path: Path
) -> None:
    fake = FakeProvider("Noted.", window_tokens=WINDOW, tells_window=True)
    upstream = Recording(fake)
    with proxied(upstream, tmp_path) as proxy:
        client = Client(proxy, dialect, stream=stream)
        answers = [client.ask(f"Question {number}: " + "words of a long story " * 40) for number in range(85)]
    assert {answer.status_code for answer in answers} == {200}
    assert list(fake.refused) == []
    last = answers[-1].headers
    given = int(last["x-foldline-tokens"]) + int(last["x-foldline-saved"])
    assert given > 5 * WINDOW
    assert int(last["x-foldline-folds"]) > 0
    assert len({answer.headers["x-foldline-session"] for answer in answers}) == 1
    stable = 0
    for old, new in zip(upstream.bodies, upstream.bodies[1:], strict=False):
        assert check(messages_in(dialect, new), dialect=dialect) == []
        if messages_in(dialect, new)[:-2] == messages_in(dialect, old):
            assert new.startswith(before_newest(dialect, old))
            stable += 1
    assert stable >= 50  # the others are the requests that were folded anew


def test_the_window_that_the_upstream_tells_is_used(tmp_path: Path) -> None:
    with proxied(FakeProvider("ok", window_tokens=WINDOW), tmp_path) as proxy:
        assert Client(proxy, "openai-chat").ask("Hello").headers["x-foldline-window"] == str(WINDOW)


@dialects
def test_a_model_that_nobody_knows_gets_a_small_window_and_a_warning(dialect: str, tmp_path: Path) -> None:
    with proxied(FakeProvider("ok", tells_window=False), tmp_path) as proxy:
        answer = Client(proxy, dialect).ask("Hello", model="model-of-nobody")
    assert answer.headers["x-foldline-window"] == "8192"
    assert "8,192 tokens are taken (--window)" in answer.headers["x-foldline-warning"]


def test_a_name_of_the_clients_own_decides_which_conversation_it_is(tmp_path: Path) -> None:
    with proxied(FakeProvider("ok"), tmp_path) as proxy:
        sessions = [
            Client(proxy, "openai-chat", name=name).ask("Hello").headers["x-foldline-session"]
            for name in ("a", "b", "a")
        ]
        other = Client(proxy, "openai-chat", name="a", key="another")
        sessions.append(other.ask("Hello").headers["x-foldline-session"])
    assert sessions[0] == sessions[2]
    assert len(set(sessions)) == 3


def test_two_clients_with_one_first_message_do_not_mix(tmp_path: Path) -> None:
    upstream = Recording(FakeProvider("ok", window_tokens=WINDOW))
    with proxied(upstream, tmp_path) as proxy:
        clients = [Client(proxy, "openai-chat") for _ in range(2)]
        for client in clients:
            client.ask("Hello")
        for number in range(14):
            for name, client in zip("AB", clients, strict=True):
                answer = client.ask(f"mark-{name} {number} " + "words of a long story " * 60)
                assert answer.status_code == 200
                other = "mark-B" if name == "A" else "mark-A"
                assert other.encode() not in upstream.bodies[-1]
        sessions = [client.ask("Goodbye").headers["x-foldline-session"] for client in clients]
    assert sessions[0] != sessions[1]


def test_count_tokens_counts_what_would_be_sent(tmp_path: Path) -> None:
    fake = FakeProvider("ok", window_tokens=WINDOW)
    upstream = Recording(fake)
    with proxied(upstream, tmp_path) as proxy:
        client = Client(proxy, "anthropic")
        client.talk(12)
        client.messages.append({"role": "user", "content": "And now?"})
        body = {"model": "m", "messages": client.messages}
        counted = httpx.post(f"{proxy.url}/v1/messages/count_tokens", json=body, headers=HEADERS)
        asked = len(upstream.bodies)
        client.messages.pop()
        client.ask("And now?")
    assert counted.json()["input_tokens"] < WINDOW
    assert messages_in("anthropic", upstream.bodies[asked - 1]) == messages_in("anthropic", upstream.bodies[asked])


SUMMARY = """## Goal
To hear a long story.
## Progress
It was told, and each part was noted with its number.
## Next
To hear its next part, and to keep the names that were in it.
"""


@dialects
def test_summaries_are_written_by_the_upstream_with_the_clients_own_key(dialect: str, tmp_path: Path) -> None:
    def answer(body: Mapping[str, Any]) -> str:
        messages = body["input" if dialect == "openai-responses" else "messages"]
        return "Noted." if "Question" in json.dumps(messages[-1])[:80] else SUMMARY

    fake = FakeProvider(answer, window_tokens=WINDOW, api_key="sk-client-key", keep=200)
    with proxied(fake, tmp_path, summaries=True, summary_model="cheap-model") as proxy:
        last = Client(proxy, dialect).talk(12)
    assert last.status_code == 200
    models = [request.body["model"] for request in fake.requests]
    assert 0 < models.count("cheap-model") < 10
    assert "To hear a long story" in json.dumps(fake.requests[-1].body)
    assert [one for one in fake.refused if one.kind != "route"] == []


# --- recovering ------------------------------------------------------------------------------------------------------


@dialects
@pytest.mark.parametrize("stream", [False, True])
def test_a_window_that_is_smaller_than_thought_is_learned_before_the_client_sees_anything(
    dialect: str, stream: bool, tmp_path: Path
) -> None:
    fake = FakeProvider("Noted.", window_tokens=WINDOW, tells_window=False)
    with proxied(fake, tmp_path, window=20_000) as proxy:
        answer = Client(proxy, dialect, stream=stream).talk(13)
    assert answer.status_code == 200
    assert 1 <= sum(fake.refusals.values()) <= 2  # the first one teaches the limit
    assert fake.served == 13


class Restarted:
    """A server that is started anew now and then: another one each time."""

    def __init__(self, first: FakeProvider) -> None:
        self.now = first

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.now(scope, receive, send)


def test_what_a_refusal_taught_is_not_believed_of_a_server_that_tells_something_else(tmp_path: Path) -> None:
    server = Restarted(FakeProvider("Noted.", window_tokens=12_000, tells_window=True))
    windows = []
    with serve(server) as served:
        with proxy_of(served.url, tmp_path) as proxy:
            windows.append(Client(proxy, "openai-chat").ask("Hello").headers["x-foldline-window"])
            server.now = FakeProvider(
                "Noted.", window_tokens=WINDOW, tells_window=True
            )  # smaller: refused, and learned
            assert Client(proxy, "openai-chat").talk(12).status_code == 200
            assert sum(server.now.refusals.values()) == 1
            windows.append(Client(proxy, "openai-chat").ask("Hello").headers["x-foldline-window"])
        server.now = FakeProvider("Noted.", window_tokens=9_000, tells_window=True)
        with proxy_of(served.url, tmp_path) as proxy:
            windows.append(Client(proxy, "openai-chat").ask("Hello").headers["x-foldline-window"])
    assert windows == ["12000", str(WINDOW), "9000"]


@dialects
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("after_events", [0, 1])
def test_an_overflow_inside_an_answer_with_status_200_is_recovered_from(
    dialect: str, stream: bool, after_events: int, tmp_path: Path
) -> None:
    fails = FakeReply("never seen", fails="overflow", after_events=after_events)
    asked: list[bytes] = []
    upstream = Recording(FakeProvider(lambda body: fails if len(asked) == 8 else "Noted."), asked)
    with proxied(upstream, tmp_path, window=5_000) as proxy:
        answer = Client(proxy, dialect, stream=stream).talk(8)
    assert answer.status_code == 200
    assert "error" not in answer.text or '"error":null' in answer.text.replace(" ", "")
    assert answer.headers["x-foldline-recoveries"] == "1"
    assert len(asked) == 9
    assert len(asked[-1]) < len(asked[-2])


@dialects
def test_after_the_first_byte_everything_passes_as_it_comes(dialect: str, tmp_path: Path) -> None:
    fake = FakeProvider(FakeReply("a few words of an answer", fails="overflow"))
    upstream = Recording(fake)
    with proxied(upstream, tmp_path, window=4_000) as proxy:
        client = Client(proxy, dialect, stream=True)
        answer = client.ask("word " * 2_500)
    assert len(upstream.bodies) == 1
    assert "a few words" in answer.text
    assert classify(200, answer.text.rstrip().rpartition("data: ")[2]).kind == "prompt_overflow"


@dialects
def test_at_the_end_of_the_ladder_the_client_gets_the_overflow_of_its_own_dialect(dialect: str, tmp_path: Path) -> None:
    fake = FakeProvider("never", window_tokens=WINDOW)
    with proxied(fake, tmp_path) as proxy:
        answer = Client(proxy, dialect).ask("word " * 9_000)
    failure = classify(answer.status_code, answer.text)
    assert (answer.status_code, failure.kind) == (400, "prompt_overflow")
    assert fake.served == 0


@dialects
def test_other_refusals_pass_as_they_are(dialect: str, tmp_path: Path) -> None:
    statuses = (401, 429, 500, 503, 529)
    fake = FakeProvider([FakeReply(status=status, retry_after_seconds=7) for status in statuses for _ in range(2)])
    with serve(fake) as served, proxy_of(served.url, tmp_path) as proxy:
        for status in statuses:
            request = request_of(dialect, [{"role": "user", "content": "a"}])
            direct = httpx.post(served.url + PATHS[dialect], json=request, headers=HEADERS)
            answer = Client(proxy, dialect).ask("a")
            assert answer.status_code == direct.status_code == status
            assert answer.headers["retry-after"] == "7"
            assert [*answer.json()] == [*direct.json()]
            assert "x-foldline-recoveries" not in answer.headers


def test_an_upstream_that_is_not_there_is_a_502_in_the_clients_dialect(tmp_path: Path) -> None:
    with proxy_of("http://127.0.0.1:9", tmp_path) as proxy:
        answer = Client(proxy, "anthropic").ask("a")
    assert answer.status_code == 502
    assert answer.json()["type"] == "error"


# --- what is said of it ----------------------------------------------------------------------------------------------


def test_a_prompt_that_was_cut_without_a_word_is_told_in_the_answer(tmp_path: Path) -> None:
    with proxied(FakeProvider(FakeReply("ok", input_tokens=1_000)), tmp_path, window=50_000) as proxy:
        answer = Client(proxy, "openai-chat").ask("word " * 9_000)
    assert "1,000 input tokens" in answer.headers["x-foldline-truncated"]
    assert any("1,000 input tokens" in line for line in proxy.lines)


def test_where_the_answer_is_a_stream_it_is_told_with_the_next_one(tmp_path: Path) -> None:
    with proxied(FakeProvider(FakeReply("ok", input_tokens=1_000)), tmp_path, window=50_000) as proxy:
        client = Client(proxy, "openai-chat", stream=True)
        first = client.ask("word " * 9_000, stream_options={"include_usage": True})
        second = client.ask("And?", stream_options={"include_usage": True})
    assert "x-foldline-truncated" not in first.headers
    assert "1,000 input tokens" in second.headers["x-foldline-truncated"]


@dialects
def test_a_dry_run_changes_nothing_and_says_what_it_would_do(dialect: str, tmp_path: Path) -> None:
    upstream = Recording(Fixed((b"{}",), ((b"content-type", b"application/json"),)))
    with proxied(upstream, tmp_path, window=WINDOW, mode="dry-run") as proxy:
        client = Client(proxy, dialect)
        answer = client.talk(12)
    assert messages_in(dialect, upstream.bodies[-1]) == client.messages[:-1]
    assert int(answer.headers["x-foldline-saved"]) > 0
    assert answer.headers["x-foldline-mode"] == "dry-run"


@dialects
def test_a_strict_proxy_refuses_what_does_not_fit_with_the_figures(dialect: str, tmp_path: Path) -> None:
    upstream = Recording(Fixed((b"{}",), ((b"content-type", b"application/json"),)))
    with proxied(upstream, tmp_path, window=WINDOW, mode="strict") as proxy:
        client = Client(proxy, dialect)
        assert client.ask("Hello").status_code == 200
        refused = client.ask("word " * 4_000)
    assert refused.status_code == 400
    assert classify(400, refused.text).kind == "prompt_overflow"
    assert "--strict" in refused.text
    assert len(upstream.bodies) == 1


@dialects
def test_a_request_that_is_larger_than_the_proxy_takes_is_told_like_any_other_refusal(
    dialect: str, tmp_path: Path
) -> None:
    with proxied(FakeProvider("ok"), tmp_path, max_request_bytes=2_000) as proxy:
        client = Client(proxy, dialect)
        assert client.ask("Hello").status_code == 200
        refused = client.ask("word " * 1_000)
        state = httpx.get(f"{proxy.url}/foldline/state").json()
        metrics = httpx.get(f"{proxy.url}/metrics").text
    assert (refused.status_code, "2,000 bytes" in refused.text) == (413, True)
    row = next(one for one in state["requests"] if one["status"] == 413)
    assert (row["outcome"], row["dialect"], row["path"]) == ("refused", dialect, PATHS[dialect])
    assert f'foldline_proxy_requests_total{{dialect="{dialect}",outcome="refused",status="413"}} 1.0' in metrics


KEY = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"


class Broken(Conversations):
    """An engine with a fault."""

    async def plan(self, *given: Any, **named: Any) -> PlannedRequest:
        raise RuntimeError(
            "a fault that nobody foresaw, with the key sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"
        )


@dialects
@pytest.mark.parametrize("stream", [False, True])
def test_a_fault_of_ours_costs_no_request(dialect: str, stream: bool) -> None:
    upstream, records = Recording(FakeProvider("ok")), list[ServedRequest]()
    sent = json.dumps(request_of(dialect, [{"role": "user", "content": "Hello"}], stream=stream), indent=1).encode()
    with (
        serve(upstream) as served,
        proxy_with(served.url, lambda under: Broken(under, max_bytes=2**20), records) as proxy,
    ):
        answer = httpx.post(proxy.url + PATHS[dialect], content=sent, headers=HEADERS)
    assert (answer.status_code, upstream.bodies) == (200, [sent])
    assert "a fault" in answer.headers["x-foldline-warning"]
    assert [(one.outcome, one.faulty) for one in records] == [("open", True)]
    assert any("nobody foresaw" in line for line in proxy.lines)
    assert KEY not in "".join(proxy.lines)


class Deaf(PlannedRequest):
    """A request with a fault that shows when the answer is measured."""

    def observe(self, usage: Usage, stop_reason: str = "") -> str:
        raise RuntimeError("a fault that nobody foresaw")


class Unmeasured(Conversations):
    """An engine with such a fault."""

    async def plan(self, *given: Any, **named: Any) -> PlannedRequest:
        hold = await super().plan(*given, **named)
        return Deaf(**{one.name: getattr(hold, one.name) for one in fields(hold)})


@dialects
@pytest.mark.parametrize("stream", [False, True])
def test_a_fault_while_an_answer_is_measured_costs_no_answer(dialect: str, stream: bool) -> None:
    records: list[ServedRequest] = []
    more = {"stream_options": {"include_usage": True}} if dialect == "openai-chat" and stream else {}
    body = request_of(dialect, [{"role": "user", "content": "Hello"}], stream=stream, **more)
    with (
        serve(FakeProvider("What the model says.")) as served,
        proxy_with(served.url, lambda under: Unmeasured(under, max_bytes=2**20), records) as proxy,
    ):
        answer = httpx.post(proxy.url + PATHS[dialect], json=body, headers=HEADERS)
    assert answer.status_code == 200
    assert "says." in answer.text
    assert [(one.outcome, one.status, one.faulty) for one in records] == [("passed", 200, True)]
    assert sum("answered, but not measured" in line for line in proxy.lines) == 1


class Helpless(Conversations):
    """An engine with a fault that shows when it is to recover."""

    async def recover(self, hold: PlannedRequest, failure: Failure) -> bool:
        raise RuntimeError("a fault that nobody foresaw")


def test_a_fault_while_recovering_leaves_the_client_what_the_upstream_said() -> None:
    records: list[ServedRequest] = []
    with (
        serve(FakeProvider("never", window_tokens=100)) as served,
        proxy_with(served.url, lambda under: Helpless(under, max_bytes=2**20), records) as proxy,
    ):
        answer = Client(proxy, "anthropic").ask("word " * 300)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert [(one.outcome, one.faulty) for one in records] == [("passed", True)]
    assert any("not recovered from" in line for line in proxy.lines)


class Answers(Conversations):
    """Conversations that note which requests count as answered."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.answered: list[PlannedRequest] = []

    def record_answer(self, planned: PlannedRequest, reported_tokens: int | None) -> None:
        self.answered.append(planned)
        super().record_answer(planned, reported_tokens)


def test_a_refusal_in_a_stream_of_status_200_does_not_count_as_an_answer() -> None:
    """Responses reports an overflow in a stream with status 200; the upstream has answered nothing all the same."""
    made: list[Answers] = []

    def answers(settings: ConversationSettings) -> Conversations:
        made.append(Answers(settings, max_bytes=2**20))
        return made[-1]

    records: list[ServedRequest] = []
    with serve(FakeProvider("never", window_tokens=100)) as served, proxy_with(served.url, answers, records) as proxy:
        answer = Client(proxy, "openai-responses", stream=True).ask("word " * 300)
    assert (answer.status_code, "context_length_exceeded" in answer.text) == (200, True)
    assert [one.outcome for one in records] == ["refused"]
    assert made[0].answered == []


def test_keys_of_clients_are_stored_and_told_nowhere(tmp_path: Path) -> None:
    with proxied(FakeProvider("ok", window_tokens=WINDOW), tmp_path, store=str(tmp_path / "store")) as proxy:
        client = Client(proxy, "openai-chat", name="my name")
        client.talk(12)
        page = httpx.get(f"{proxy.url}/foldline/state").text + httpx.get(f"{proxy.url}/metrics").text
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert len(files) > 10_000  # it was folded, and written down
    for secret in ("sk-client-key", "my name"):
        assert secret.encode() not in files
        assert secret not in page + "".join(proxy.lines)


# --- several proxies, restarts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "place"), [("openai-chat", "folder"), ("openai-responses", "sqlite"), ("anthropic", "sqlite")]
)
def test_a_proxy_that_is_started_anew_goes_on_with_the_same_folds(dialect: str, place: str, tmp_path: Path) -> None:
    store = str(tmp_path / "kept") if place == "folder" else f"sqlite:///{tmp_path / 'kept.db'}"
    upstream = Recording(FakeProvider("ok", window_tokens=WINDOW))
    with serve(upstream) as served:
        with proxy_of(served.url, tmp_path, store=store) as proxy:
            client = Client(proxy, dialect)
            while (
                "x-foldline-folds" not in (answer := client.talk(1)).headers
                or answer.headers["x-foldline-folds"] == "0"
            ):
                pass
        with proxy_of(served.url, tmp_path, store=store) as proxy:
            client.url = proxy.url + PATHS[dialect]
            client.ask("And now?")
    before, after = upstream.bodies[-2:]
    assert messages_in(dialect, after)[:-2] == messages_in(dialect, before)
    assert after.startswith(before_newest(dialect, before))


def test_two_proxies_on_one_store_send_the_same_whichever_is_asked(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'kept.db'}"
    fake = FakeProvider("ok", window_tokens=WINDOW)
    upstream = Recording(fake)
    with (
        serve(upstream) as served,
        proxy_of(served.url, tmp_path / "one", store=store) as one,
        proxy_of(served.url, tmp_path / "two", store=store) as two,
    ):
        client = Client(one, "openai-chat")
        for number in range(36):
            client.url = (one, two)[number % 2].url + PATHS["openai-chat"]
            assert client.ask(f"Question {number}: " + "words of a long story " * 40).status_code == 200
    assert list(fake.refused) == []
    steps = list(zip(upstream.bodies, upstream.bodies[1:], strict=False))
    stable = sum(new.startswith(before_newest("openai-chat", old)) for old, new in steps)
    assert stable >= 24  # the others are the requests that were folded anew


@dialects
def test_an_overflow_of_something_small_is_told_with_the_upstreams_figures(dialect: str, tmp_path: Path) -> None:
    refusal = FakeReply(status=400, message="the request exceeds the available context size (5 tokens)")
    with proxied(FakeProvider(refusal), tmp_path, window=WINDOW) as proxy:
        answer = Client(proxy, dialect).ask("Hello")
    assert answer.status_code == 400
    assert classify(400, answer.text).kind == "prompt_overflow"
    assert "available context size" in answer.text


def test_a_report_that_cannot_be_true_is_told_on_the_page_of_the_server(tmp_path: Path) -> None:
    with proxied(FakeProvider(FakeReply("ok", input_tokens=40_000)), tmp_path, window=50_000) as proxy:
        Client(proxy, "openai-chat").ask("word " * 5_000)
    assert any("40,000 input tokens" in line and "something else" in line for line in proxy.lines)


@pytest.mark.parametrize("mode", ["normal", "dry-run", "strict"])
def test_descriptions_of_tools_are_cut_where_that_is_asked_for_and_nothing_may_be_kept_as_it_came(
    mode: str, tmp_path: Path
) -> None:
    text = "Reads a file. It says how each line of it begins, and how it ends, and what lies in between. " * 4
    tools = [{"name": "read", "description": text, "input_schema": {"type": "object", "properties": {}}}]
    fake = FakeProvider(["Yes.", "Yes."], window_tokens=8_000)
    headers = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
    with (
        serve(fake) as served,
        proxy_of(served.url, tmp_path, mode=mode, short_tools=10) as proxy,
        httpx.Client(base_url=proxy.url, headers=headers) as client,
    ):
        for _ in range(2):
            asked = request_of("anthropic", [{"role": "user", "content": "Read."}], tools=tools)
            assert client.post("/v1/messages", json=asked).status_code == 200
    sent = [request.body["tools"][0]["description"] for request in fake.requests]
    assert sent == ["Reads a file. […]" if mode == "normal" else text] * 2
