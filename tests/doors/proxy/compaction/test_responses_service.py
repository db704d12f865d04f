"""Compaction of Responses through the proxy, over an upstream that knows nothing of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.doors.proxy.compaction.asking import SUMMARY, TASK, TRIGGER, Asking, asking, events, items
from tests.doors.proxy.proxies import Fixed, Recording, proxied

from foldline.engine.one_shot import check
from foldline.testing import FakeProvider

THRESHOLD = [{"type": "compaction", "compact_threshold": TRIGGER}]
TRIGGERED = {"type": "compaction_trigger"}
FIRST = "context_management[0]"


def window(client: Asking, found: Any, **more: Any) -> list[dict[str, Any]]:
    """A compacted window."""
    answer = client.respond(found, path="/v1/responses/compact", **more)
    assert answer.status_code == 200, answer.text
    out: list[dict[str, Any]] = answer.json()["output"]
    return out


def test_an_item_stands_first_in_the_output_and_the_next_request_goes_on_from_it(tmp_path: Path) -> None:
    with asking(tmp_path) as client:
        answer = client.respond(items(), context_management=THRESHOLD)
        body, before = answer.json(), client.sent()
        following = [*items(), *body["output"], {"role": "user", "content": "And now?"}]
        again = client.respond(following, context_management=THRESHOLD).json()
        after = client.sent()["input"]
    assert answer.headers["x-foldline-compaction"] == "foldline"
    assert [item["type"] for item in body["output"]] == ["compaction", "message"]
    assert body["usage"]["input_tokens"] < TRIGGER  # of the reply alone: what the next request starts from
    assert "context_management" not in before
    assert any(SUMMARY in json.dumps(item) for item in before["input"])
    assert before["input"][-1] == items()[-1]
    assert before["input"][0] == items()[0]
    assert after[: len(before["input"])] == before["input"]
    assert [item["type"] for item in again["output"]] == ["message"]
    assert check(after, dialect="openai-responses") == []


def test_a_stream_has_the_item_before_the_reply_and_is_numbered_anew(tmp_path: Path) -> None:
    with asking(tmp_path) as client:
        found = events(client.respond(items(), context_management=THRESHOLD, stream=True))
    kinds = [event["type"] for event in found]
    assert kinds[2:5] == [
        "response.output_item.added",
        "response.compaction.compacting",
        "response.output_item.done",
    ]
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    places = [event["output_index"] for event in found if event["type"] == "response.output_item.added"]
    assert places == [0, 1]
    assert [item["type"] for item in found[-1]["response"]["output"]] == ["compaction", "message"]
    assert found[4]["item"] == found[-1]["response"]["output"][0]


def test_a_window_is_the_words_of_the_user_and_one_item(tmp_path: Path) -> None:
    with asking(tmp_path) as client:
        answer = client.respond(items(), path="/v1/responses/compact", instructions="You fix bugs.")
        body, question = answer.json(), json.dumps(client.sent())
        posted = client.upstream.bodies
        out = body["output"]
        client.respond([*out, {"role": "user", "content": "Next."}])
        sent = client.sent()["input"]
    assert answer.headers["x-foldline-compaction"] == "foldline"
    assert body["object"] == "response.compaction"
    assert [item["type"] for item in out] == ["message", "message", "compaction"]
    assert out[1]["content"] == [{"type": "input_text", "text": TASK}]
    assert body["usage"]["total_tokens"] == body["usage"]["input_tokens"] + body["usage"]["output_tokens"] > 2_000
    assert "line of file 3" in question
    assert len(posted) == 2
    assert [item.get("role") for item in sent] == ["developer", "user", "user", "assistant", "user"]
    assert SUMMARY in sent[2]["content"]
    assert not any("id" in item for item in sent)


def test_a_window_can_be_compacted_again_and_holds_one_item_then(tmp_path: Path) -> None:
    with asking(tmp_path) as client:
        first = window(client, items())
        longer = [*first, *items()[2:], {"role": "user", "content": "And the other file?"}]
        second = window(client, longer)
    assert [item["type"] for item in second].count("compaction") == 1
    assert second[-1]["type"] == "compaction"
    assert [item["content"][0]["text"] for item in second[:-1]] == ["Be brief.", TASK, "And the other file?"]


def test_words_beyond_their_share_of_the_window_are_left_to_the_summary(tmp_path: Path) -> None:
    long = [{"role": "user", "content": f"Part {n}: {'word ' * 900}"} for n in range(20)]
    fake = FakeProvider(lambda body: SUMMARY, window_tokens=20_000)
    with asking(tmp_path, fake=fake, window=20_000) as client:
        out = window(client, [*long, {"role": "assistant", "content": "Read."}])
    kept = [item["content"][0]["text"][:7] for item in out[:-1]]
    assert 1 <= len(kept) <= 6
    assert kept[-1] == "Part 19"


@pytest.mark.parametrize("stream", [False, True])
def test_a_trigger_is_answered_with_an_item_alone(tmp_path: Path, stream: bool) -> None:
    with asking(tmp_path) as client:
        answer = client.respond([*items(), TRIGGERED], stream=stream)
        asked = len(client.upstream.bodies)
        body = events(answer)[-1]["response"] if stream else answer.json()
        (item,) = body["output"]
        # Codex keeps the words of the user before the item.
        client.respond([items()[1], item, {"role": "user", "content": "Go."}])
        sent = client.sent()["input"]
    assert asked == 1
    assert (body["status"], item["type"]) == ("completed", "compaction")
    if stream:
        assert [event["sequence_number"] for event in events(answer)] == list(range(6))
    assert sent[0]["content"] == TASK
    assert SUMMARY in sent[1]["content"]


def test_a_text_as_input_is_served_too(tmp_path: Path) -> None:
    with asking(tmp_path) as client:
        answer = client.respond("Hello.", context_management=THRESHOLD)
        assert client.sent()["input"] == [{"role": "user", "content": "Hello."}]
        out = window(client, "Hello.")
    assert answer.status_code == 200
    assert [item["type"] for item in out] == ["message", "compaction"]


def test_a_count_of_tokens_reads_the_words_of_an_item(tmp_path: Path) -> None:
    upstream = Recording(Fixed((b'{"input_tokens": 7}',), ((b"content-type", b"application/json"),)))
    with asking(tmp_path) as client:
        item = window(client, items())[-1]
    with proxied(upstream, tmp_path) as running:
        client = Asking(running.url, FakeProvider(), upstream, running.lines)
        path = "/v1/responses/input_tokens"
        counted = client.respond([item, {"role": "user", "content": "Go."}], path=path)
        assert counted.json() == {"input_tokens": 7}
        assert SUMMARY in client.sent()["input"][0]["content"]
        assert (
            refused(client.respond([{**item, "encrypted_content": "gAAAA"}], path=path))[1]
            == "invalid_encrypted_content"
        )
        plain = {"model": "m", "previous_response_id": "resp_1"}
        client.post(path, plain)
        assert client.sent() == plain


# --- refusals ---------------------------------------------------------------------------------------------------------


def refused(answer: httpx.Response) -> tuple[str, str]:
    """The parameter and the code of a refusal."""
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    return error["param"], error["code"]


def test_items_that_were_changed_or_forged_or_made_for_another_key_are_refused(tmp_path: Path) -> None:
    go = {"role": "user", "content": "Go."}
    with asking(tmp_path) as client:
        item = window(client, items())[-1]
        sealed = item["encrypted_content"]
        block = client.ask([{"role": "user", "content": "Hi."}], compaction={"type": "summarize"}).json()["content"][0]
        expected = ("input[0]", "invalid_encrypted_content")
        for changed in (sealed[:-4] + "AAAA", "gAAAAABn", "", sealed.replace("foldline-1.", "foldline-1.0"), None):
            assert refused(client.respond([{**item, "encrypted_content": changed}, go])) == expected
        assert refused(client.respond([item, go], key="sk-two")) == expected
        # A block of Messages holds its summary beside the signature, and is no item.
        assert refused(client.respond([{**item, "encrypted_content": block["signature"]}, go])) == expected
        assert len(client.upstream.bodies) == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"type": "compaction"}, ("context_management", "invalid_type")),
        ([3], ("context_management[0]", "invalid_type")),
        ([{"type": "fold"}], ("context_management[0].type", "invalid_value")),
        ([{"type": "compaction", "compact_threshold": "9"}], (f"{FIRST}.compact_threshold", "invalid_type")),
        ([{"type": "compaction", "compact_threshold": 0}], (f"{FIRST}.compact_threshold", "integer_below_min_value")),
        ([{"type": "compaction", "keep": 3}], ("context_management[0].keep", "unknown_parameter")),
    ],
)
def test_bad_parameters_are_named_as_the_provider_does(tmp_path: Path, value: Any, expected: tuple[str, str]) -> None:
    with asking(tmp_path) as client:
        assert refused(client.respond(items(1), context_management=value)) == expected
        assert client.upstream.bodies == []


def test_a_trigger_must_come_last(tmp_path: Path) -> None:
    with asking(tmp_path) as client:
        assert refused(client.respond([TRIGGERED, *items(1)])) == ("input[0]", "invalid_value")


def test_messages_that_the_server_holds_cannot_be_compacted_here(tmp_path: Path) -> None:
    path = "/v1/responses/compact"
    with asking(tmp_path) as client:
        assert refused(client.post(path, {"model": "m"})) == ("input", "missing_required_parameter")
        without = client.post(path, {"model": "m", "previous_response_id": "resp_1"})
        assert refused(without) == ("input", "missing_required_parameter")
        assert "not here" in without.json()["error"]["message"]
        held = client.respond(items(1), path=path, previous_response_id="resp_1")
        assert refused(held) == ("previous_response_id", "unsupported_parameter")
        # In an ordinary request it is passed on, and said.
        answer = client.respond(items(1), context_management=THRESHOLD, previous_response_id="resp_1")
    assert "not compacted" in answer.headers["x-foldline-warning"]


# --- who compacts -----------------------------------------------------------------------------------------------------


def test_an_upstream_that_compacts_by_itself_gets_all_as_it_came(tmp_path: Path) -> None:
    theirs = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAABn"}
    with asking(tmp_path, compaction="foldline") as client:
        ours = window(client, items())[-1]
    with asking(tmp_path, compaction="upstream") as client:
        answer = client.respond(items(1), path="/v1/responses/compact")
        assert answer.status_code == 404  # the fake has no such path: it was asked
        assert answer.headers["x-foldline-compaction"] == "upstream"
        client.respond([theirs, {"role": "user", "content": "Go."}], context_management=THRESHOLD)
        assert client.sent()["context_management"] == THRESHOLD
        assert client.sent()["input"][0] == theirs
        client.respond([ours, {"role": "user", "content": "Go."}])
        assert SUMMARY in client.sent()["input"][0]["content"]


def test_the_path_of_compaction_passes_in_a_dry_run(tmp_path: Path) -> None:
    with asking(tmp_path, mode="dry-run") as client:
        answer = client.respond(items(1), path="/v1/responses/compact")
    assert answer.status_code == 404
    assert "x-foldline-compaction" not in answer.headers
