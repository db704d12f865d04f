"""A part that the upstream refuses, through the whole proxy: the client's session continues without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.doors.proxy.proxies import HEADERS, PATHS, proxied, request_of
from tests.engine.test_refused_parts import PDF, document, from_user, said
from tests.property.sessions import BUILDERS

from foldline.engine.one_shot import check
from foldline.testing import FakeProvider, FakeReply
from foldline.testing.script import Body


def upstream(refusal: str) -> FakeProvider:
    """A provider that refuses each request with the PDF."""

    def answer(body: Body) -> FakeReply:
        refused = PDF in json.dumps(body)
        return FakeReply(status=400, message=refusal) if refused else FakeReply("Fine.")

    return FakeProvider(answer, repeat=True)


def ask(url: str, dialect: str, messages: list[Any]) -> httpx.Response:
    return httpx.post(
        url + PATHS[dialect], json=request_of(dialect, messages), headers=HEADERS, timeout=60, verify=False
    )


@pytest.mark.parametrize("dialect", list(PATHS))
def test_a_document_that_the_upstream_refuses_does_not_stop_a_client(dialect: str, tmp_path: Path) -> None:
    fake = upstream("messages.0.content.1.pdf.source.base64.data: The PDF specified was not valid.")
    with proxied(fake, tmp_path) as proxy:
        messages = [from_user(dialect, "keep these words", document(dialect))]
        for number in range(3):
            assert ask(proxy.url, dialect, messages).status_code == 200
            messages += [said(dialect, "Fine."), from_user(dialect, f"question {number}")]
        last = json.dumps(fake.requests[-1].body)
    assert "keep these words" in last
    assert "report.pdf removed: it could not be read" in last
    assert sum(PDF in json.dumps(request.body) for request in fake.requests) == 1, "it is not sent again"


def test_roles_that_an_upstream_refuses_are_put_in_turn_for_a_client(tmp_path: Path) -> None:
    fake = FakeProvider("Fine.", repeat=True, alternates=True)
    with proxied(fake, tmp_path) as proxy:
        messages: list[Any] = [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]
        for number in range(3):
            assert ask(proxy.url, "openai-chat", messages).status_code == 200
            messages += [{"role": "assistant", "content": "Fine."}, {"role": "user", "content": f"question {number}"}]
    assert len(fake.refused) == 1


@pytest.mark.parametrize("call_id", ["", "call"])
@pytest.mark.parametrize("dialect", list(PATHS))
def test_calls_that_share_an_id_are_sent_apart_once_the_upstream_refuses_them(
    dialect: str, call_id: str, tmp_path: Path
) -> None:
    fake = FakeProvider("Fine.", repeat=True)
    with proxied(fake, tmp_path) as proxy:
        messages = [
            from_user(dialect, "look"),
            *BUILDERS[dialect].turn([call_id] * 3, ["one", "two", "three"], "w", None),
        ]
        for number in range(2):
            assert ask(proxy.url, dialect, messages).status_code == 200
            messages += [said(dialect, "Fine."), from_user(dialect, f"question {number}")]
    assert len(fake.refused) == 1
    for request in fake.requests:
        text = json.dumps(request.body)
        assert text.index("one") < text.index("two") < text.index("three")
        assert check(request.body["input" if dialect == "openai-responses" else "messages"], dialect=dialect) == []


def test_what_an_upstream_refuses_in_words_of_its_own_is_passed_on_where_nothing_is_wrong(tmp_path: Path) -> None:
    fake = FakeProvider(FakeReply(status=400, message="the moon is full"), repeat=True)
    with proxied(fake, tmp_path) as proxy:
        answer = ask(proxy.url, "openai-chat", [from_user("openai-chat", "look")])
    assert answer.status_code == 400
    assert "the moon is full" in answer.text
    assert sum(fake.faults.values()) == 1
