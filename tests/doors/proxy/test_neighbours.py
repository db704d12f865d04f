"""No client changes the requests of another: attacks by text, by errors and by shared state."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.doors.proxy.proxies import PATHS, Recording, messages_in, proxied, proxy_of, request_of
from tests.serving import serve

from foldline import classify
from foldline.doors.proxy.request_head import client_of, session_name
from foldline.store.learned_limits import ClientLimits, LearnedLimits
from foldline.testing import FakeProvider

dialects = pytest.mark.parametrize("dialect", list(PATHS))

CLAIM = "This model's maximum context length is 3000 tokens. However, your messages resulted in 14000 tokens"
ALICE, BOB = "sk-alice", "sk-bob"


def history(mark: str, *, turns: int = 20, words: int = 300) -> list[dict[str, Any]]:
    """A conversation of about 11,000 tokens."""
    said = "the quick build of a module has failed again "
    return [
        {"role": ("user", "assistant")[number % 2], "content": f"{mark} {number} " + said * (words // 8)}
        for number in range(2 * turns + 1)
    ]


@dataclass(slots=True)
class Refusing:
    """An upstream that refuses what some clients send by an error of its own making; a fake model answers the rest."""

    error: Callable[[Mapping[str, Any]], Any]
    key: str = ALICE
    status: int = 400
    streamed: bool = False
    window_tokens: int = 128_000

    def __post_init__(self) -> None:
        self.fake = FakeProvider("Noted.", window_tokens=self.window_tokens, tells_window=False)

    fake: FakeProvider = None  # type: ignore[assignment]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        shown = dict(scope.get("headers", ())).get(b"authorization", b"").decode()
        if scope["type"] != "http" or scope["method"] != "POST" or self.key not in shown:
            await self.fake(scope, receive, send)
            return
        raw, more = b"", True
        while more:
            message = await receive()
            raw, more = raw + message.get("body", b""), message.get("more_body", False)
        error = self.error(json.loads(raw))
        body = json.dumps(error).encode()
        if self.streamed:
            body = b"data: " + body + b"\n\n"
        kind = b"text/event-stream" if self.streamed else b"application/json"
        head = {"type": "http.response.start", "status": self.status, "headers": [(b"content-type", kind)]}
        await send(head)
        await send({"type": "http.response.body", "body": body, "more_body": False})


def asked(url: str, dialect: str, key: str, messages: list[dict[str, Any]], **more: Any) -> httpx.Response:
    """A request with a key."""
    headers = {"authorization": f"Bearer {key}", "anthropic-version": "2023-06-01", **more.pop("headers", {})}
    body = request_of(dialect, messages, **{"model": "gpt-4o-mini", **more})
    return httpx.post(url + PATHS[dialect], json=body, headers=headers, timeout=60, verify=False)


def _first(value: Any) -> str:
    return value if isinstance(value, str) else _first(value[0]["text"])


ECHOES: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "a value that is quoted": lambda body: {
        "error": {
            "message": f"Invalid value: '{body.get('reasoning_effort')}'. Supported values are: 'low', 'high'.",
            "type": "invalid_request_error",
            "param": "reasoning_effort",
            "code": "invalid_value",
        }
    },
    "a list of errors with the input": lambda body: [
        {"type": "literal_error", "loc": ["body", "x"], "msg": "Input should be 'user'", "input": body["said"]}
    ],
    "details with the input": lambda body: {
        "detail": [{"type": "value_error", "loc": ["body"], "msg": "Value error", "input": body["said"]}]
    },
    "a plain repetition": lambda body: {"error": {"message": f"cannot use this: {body['said']}"}},
    "the name of a model": lambda body: {"error": {"message": f"The model `{body['model']}` does not exist"}},
    "the newest message": lambda body: {"error": f"unsafe content: {json.dumps(body)[-9000:]}"},
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("echo", list(ECHOES))
def test_what_a_client_wrote_is_no_window_for_another(echo: str, streamed: bool, tmp_path: Path) -> None:
    refusing = Refusing(ECHOES[echo], status=200 if streamed else 400, streamed=streamed)
    upstream = Recording(refusing)
    lies = {"reasoning_effort": CLAIM, "said": CLAIM, "stream": streamed}
    named = {"model": CLAIM} if "model" in echo else {}
    with proxied(upstream, tmp_path) as proxy:
        for mark in "ab":
            said = [*history(f"evil {mark}")[:-1], {"role": "user", "content": CLAIM}]
            refused = asked(proxy.url, "openai-chat", ALICE, said, **lies, **named)
            if not streamed:
                assert refused.status_code == 400 and "context_length_exceeded" not in refused.text
        for key in (BOB, "sk-carol"):
            sent = asked(proxy.url, "openai-chat", key, history("good"))
            assert (sent.status_code, sent.headers["x-foldline-window"]) == (200, "128000")
            assert len(messages_in("openai-chat", upstream.bodies[-1])) == 41
        told = [*history("told")[:-1], {"role": "user", "content": f"Why do I get: {CLAIM}?"}]
        assert asked(proxy.url, "openai-chat", BOB, told).headers["x-foldline-folds"] == "0"
    assert len(ClientLimits(tmp_path / "state" / "learned.json")) == 0


@dialects
@pytest.mark.parametrize("streamed", [False, True])
def test_a_limit_that_one_key_was_told_is_not_the_truth_for_another(
    dialect: str, streamed: bool, tmp_path: Path
) -> None:
    error = {"error": {"message": CLAIM, "code": "context_length_exceeded", "param": "messages"}}
    refusing = Refusing(lambda body: error)
    upstream = Recording(refusing)
    model = {"model": "claude-sonnet-4-5" if dialect == "anthropic" else "gpt-4o-mini"}
    with serve(upstream) as served:
        for _ in range(2):  # the second proxy knows what the first one learned
            with proxy_of(served.url, tmp_path) as proxy:
                before = asked(proxy.url, dialect, BOB, history("good"), stream=streamed, **model)
                asked(proxy.url, dialect, ALICE, history("evil"), stream=streamed, **model)
                after = asked(proxy.url, dialect, BOB, history("more"), stream=streamed, **model)
                named = {"x-foldline-session": "one name"}
                asked(proxy.url, dialect, ALICE, history("same"), headers=named, **model)
                same = asked(proxy.url, dialect, BOB, history("same"), headers=named, **model)
            windows = {reply.headers["x-foldline-window"] for reply in (before, after, same)}
            assert windows == {"200000" if dialect == "anthropic" else "128000"}
            assert {reply.headers["x-foldline-folds"] for reply in (before, after, same)} == {"0"}
            assert len(messages_in(dialect, upstream.bodies[-1])) == 41
    text = (tmp_path / "state" / "learned.json").read_text()
    assert ALICE not in text and client_of([(b"authorization", f"Bearer {ALICE}".encode())]).hex() not in text
    assert len(ClientLimits(tmp_path / "state" / "learned.json")) == 1


def test_what_a_key_learned_holds_for_it_after_a_restart(tmp_path: Path) -> None:
    fake = FakeProvider("Noted.", window_tokens=3_000, tells_window=False)
    with serve(fake) as served:
        for times in (1, 0):
            with proxy_of(served.url, tmp_path) as proxy:
                reply = asked(proxy.url, "openai-chat", BOB, history(f"run {times}"))
                assert reply.status_code == 200
                assert int(reply.headers.get("x-foldline-recoveries", 0)) == times


def test_a_limit_far_below_what_was_taken_is_not_believed_beyond_one_request(tmp_path: Path) -> None:
    error = {"error": {"message": CLAIM, "code": "context_length_exceeded"}}
    refusing = Refusing(lambda body: error, key="nobody")
    upstream = Recording(refusing)
    with proxied(upstream, tmp_path) as proxy:
        assert asked(proxy.url, "openai-chat", BOB, history("good")).status_code == 200
        refusing.key = BOB
        lied = asked(proxy.url, "openai-chat", BOB, history("then"))
        assert (lied.status_code, lied.json()) == (400, error)
        refusing.key = "nobody"
        for mark in ("then", "last"):
            sent = asked(proxy.url, "openai-chat", BOB, history(mark))
            assert (sent.headers["x-foldline-window"], sent.headers["x-foldline-folds"]) == ("128000", "0")
            assert len(messages_in("openai-chat", upstream.bodies[-1])) == 41
    assert len(ClientLimits(tmp_path / "state" / "learned.json")) == 0


def test_what_an_older_version_learned_for_all_is_believed_for_nobody_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "state" / "learned.json"
    path.parent.mkdir()
    old = {"gpt-4o-mini": 3_000, "gpt-4o-mini (told 128000)": 3_000}
    with serve(FakeProvider("Noted.", window_tokens=128_000, tells_window=False)) as served:
        path.write_text(json.dumps({served.url: old, f"{served.url}/v1": old, "http://127.0.0.1:1": old}))
        with proxy_of(served.url, tmp_path) as proxy:
            reply = asked(proxy.url, "openai-chat", BOB, history("good"))
    assert (reply.headers["x-foldline-window"], reply.headers["x-foldline-folds"]) == ("128000", "0")
    limits = ClientLimits(path)
    limits["http://127.0.0.1:1", "m", b"who"] = 5_000
    assert ClientLimits(path).get(("http://127.0.0.1:1", "m", b"who")) == 5_000
    assert ClientLimits(path).get(("http://127.0.0.1:1", "m", b"other")) is None
    assert LearnedLimits(path)["http://127.0.0.1:1", "gpt-4o-mini"] == 3_000


def test_made_up_models_take_nobodys_limits_away(tmp_path: Path) -> None:
    path = tmp_path / "learned.json"
    limits = ClientLimits(path)
    limits["http://there", "gpt", b"bob"] = 4_000
    for number in range(80):
        limits["http://there", f"made-up-{number}", b"alice"] = 1_000 + number
    again = ClientLimits(path)
    assert again.get(("http://there", "gpt", b"bob")) == 4_000
    assert (len(again), again.get(("http://there", "made-up-79", b"alice"))) == (65, 1_079)
    assert again.get(("http://there", "made-up-0", b"alice")) is None


def test_a_client_with_a_wrong_key_keeps_nobody_from_being_told_a_window(tmp_path: Path) -> None:
    fake = FakeProvider("Noted.", window_tokens=40_000, tells_window=True)

    async def upstream(scope: Any, receive: Any, send: Any) -> None:
        shown = dict(scope.get("headers", ())).get(b"authorization", b"")
        if scope["type"] != "http" or BOB.encode() in shown:
            await fake(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    with proxied(upstream, tmp_path) as proxy:
        asked(proxy.url, "openai-chat", ALICE, history("evil", turns=1), model="some-model")
        reply = asked(proxy.url, "openai-chat", BOB, history("good", turns=1), model="some-model")
    assert reply.headers["x-foldline-window"] == "40000"


def _token(**claims: str) -> bytes:
    parts = [urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "RS256"}, claims)]
    return b"Bearer " + b".".join([*parts, b"c2ln"])


def test_a_renewed_token_is_the_same_client_where_it_says_of_whom_it_is() -> None:
    def of(value: bytes, *more: tuple[bytes, bytes], query: bytes = b"") -> bytes:
        return client_of([(b"Authorization", value), (b"user-agent", b"x"), *more], query)

    ann = {"iss": "https://login.example", "sub": "ann"}
    assert of(_token(**ann, exp="1")) == of(_token(**ann, exp="2"))
    assert of(_token(**ann)) != of(_token(iss=ann["iss"], sub="ben"))
    assert of(_token(sub="ann", exp="1")) != of(_token(sub="ann", exp="2"))  # of which server it is, nobody knows
    signed = b"AWS4-HMAC-SHA256 Credential=AKID%d/20260101/us-east-1/bedrock/aws4_request, Signature=%b"
    assert of(signed % (1, b"a")) == of(signed % (1, b"b")) != of(signed % (2, b"a"))
    assert of(b"Bearer a") != of(b"Bearer b")
    assert of(b"Bearer a") != of(b"Bearer a", (b"openai-organization", b"o")) != b""
    assert of(b"Bearer a") != of(b"Bearer a", query=b"key=AIza1") != of(b"Bearer a", query=b"key=AIza2")
    assert client_of([(b"user-agent", b"x"), (b"idempotency-key", b"1"), (b"cookie", b"a=1")]) == b""
    assert client_of([(b"x-goog-api-key", b"1")]) != client_of([(b"x-goog-api-key", b"2")])
    name = [(b"x-foldline-session", b"mine")]
    assert session_name(name, b"one") != session_name(name, b"two") != session_name([], b"two") == ""


def test_deployments_in_the_path_learn_each_for_itself(tmp_path: Path) -> None:
    fakes = {
        name: FakeProvider("Noted.", window_tokens=tokens, tells_window=False)
        for name, tokens in (("A", 3_000), ("B", 60_000))
    }

    async def upstream(scope: Any, receive: Any, send: Any) -> None:
        name = scope.get("path", "").split("/")[3:4]
        if not name:
            await fakes["B"](scope, receive, send)
            return

        async def named() -> Any:  # a fake model wants its name in the body
            message = await receive()
            if message.get("body", b"").startswith(b"{"):
                message["body"] = b'{"model":"x",' + message["body"][1:]
            return message

        await fakes[name[0]]({**scope, "path": PATHS["openai-chat"]}, named, send)

    def ask(url: str, name: str, mark: str) -> httpx.Response:
        body = {"messages": history(mark), "max_tokens": 200}
        where = f"{url}/openai/deployments/{name}/chat/completions?api-version=1"
        return httpx.post(where, json=body, headers={"api-key": BOB}, timeout=60, verify=False)

    with proxied(upstream, tmp_path) as proxy:
        first, other, again = ask(proxy.url, "A", "x"), ask(proxy.url, "B", "y"), ask(proxy.url, "A", "z")
    assert (first.headers["x-foldline-recoveries"], first.status_code) == ("1", 200)
    assert (other.headers["x-foldline-folds"], "x-foldline-recoveries" in other.headers) == ("0", False)
    assert (again.headers["x-foldline-window"], "x-foldline-recoveries" in again.headers) == ("3000", False)


def test_a_window_that_is_guessed_refuses_nothing_and_folds_nothing(tmp_path: Path) -> None:
    upstream = Recording(FakeProvider("Noted.", window_tokens=32_000, tells_window=False))
    with proxied(upstream, tmp_path) as proxy:
        large = asked(proxy.url, "openai-chat", BOB, history("x" * 9_000, turns=1), model="an-alias")
        grown = asked(proxy.url, "openai-chat", BOB, history("good"), model="an-alias")
        assert (large.status_code, grown.status_code, grown.headers["x-foldline-folds"]) == (200, 200, "0")
        assert len(messages_in("openai-chat", upstream.bodies[-1])) == 41
        over = asked(proxy.url, "openai-chat", BOB, history("over", turns=70), model="an-alias")
        assert (over.status_code, over.headers["x-foldline-recoveries"]) == (200, "1")
        learned = asked(proxy.url, "openai-chat", BOB, history("next", turns=70), model="an-alias")
        assert (learned.headers["x-foldline-window"], "x-foldline-recoveries" in learned.headers) == ("32000", False)
        huge = [{"role": "user", "content": "word " * 50_000}]
        refused = asked(proxy.url, "openai-chat", BOB, huge, model="an-alias")
    assert refused.status_code == 400
    assert "maximum context length is 32000 tokens" in refused.json()["error"]["message"]


def test_a_guessed_window_is_strict_about_nothing(tmp_path: Path) -> None:
    upstream = Recording(FakeProvider("Noted.", window_tokens=32_000, tells_window=False))
    with proxied(upstream, tmp_path, mode="strict") as proxy:
        reply = asked(proxy.url, "openai-chat", BOB, history("good"), model="an-alias")
    assert (reply.status_code, len(upstream.bodies)) == (200, 1)


@dialects
def test_an_error_names_no_limit_but_the_window(dialect: str, tmp_path: Path) -> None:
    with proxied(FakeProvider("Noted.", window_tokens=8_000), tmp_path, window=8_000) as proxy:
        said = [{"role": "user", "content": "word " * 20_000}]
        refused = asked(proxy.url, dialect, BOB, said, stream=False)
    assert refused.status_code == 400
    failure = classify(400, refused.text)
    assert (failure.kind, failure.limit) == ("prompt_overflow", 8_000)
    assert failure.requested is not None and failure.requested > 20_000


@pytest.mark.parametrize("item", [{"type": "item_reference", "id": "msg_1"}, {"id": "msg_1"}])
def test_a_request_with_an_item_that_the_server_holds_passes_as_it_came(item: dict[str, str], tmp_path: Path) -> None:
    upstream = Recording(FakeProvider("Noted.", window_tokens=128_000))
    long = {"role": "user", "content": "word " * 9_000}
    body = json.dumps({"model": "m", "input": [long, item, {"role": "user", "content": "And?"}]}).encode()
    with proxied(upstream, tmp_path, window=3_000) as proxy:
        answer = httpx.post(f"{proxy.url}/v1/responses", content=body, timeout=60, verify=False)
    assert upstream.bodies == [body]
    assert "item_reference" in answer.headers["x-foldline-warning"]
