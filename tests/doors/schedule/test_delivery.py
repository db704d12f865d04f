"""The report of a run is delivered once, signed, whole and to no other place; failures are logged without secrets."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.doors.schedule.schedules import MONDAY, entry_of
from tests.real.telegram_api import TelegramApi
from tests.serving import serve

from foldline.agent.settings.connections import Delivery, ToFile, ToTelegram, ToWebhook
from foldline.agent.tools.workspace import Workspace
from foldline.doors.gateway.markdown import utf16_units
from foldline.doors.schedule.delivery import Courier, Report, delivery_label
from foldline.errors import FoldlineError

pytest_plugins = ("tests.real.telegram_api",)

TOKEN = "12345:a-secret-of-the-bot"
REPORT = Report(
    id="schedule:morning:2026-11-30T06:00:00Z",
    entry=entry_of(timezone="Europe/Berlin"),
    due=MONDAY,
    session="20261130-060000-01234567",
    reason="done",
    text="All is well.",
    figures={"used_tokens": 12},
)
FAILED = replace(REPORT, reason="failed", text="", message="The model is away.")


@dataclass
class Taken:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Hook:
    """A server that answers with these statuses in turn, the last one for ever; None breaks the connection off."""

    def __init__(self, *statuses: int | None, headers: dict[str, str] | None = None, body: bytes = b"{}") -> None:
        self.statuses, self.headers, self.body = list(statuses), headers or {}, body
        self.taken: list[Taken] = []

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        if scope["type"] == "lifespan":
            return
        body = b""
        while True:
            piece = await receive()
            body += piece.get("body", b"")
            if not piece.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.taken.append(Taken(scope["raw_path"].decode(), headers, body))
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if status is None:
            raise ConnectionResetError
        given = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": given})
        await send({"type": "http.response.body", "body": self.body})


def bring(
    to: Delivery, folder: Path, report: Report = REPORT, *, telegram_url: str = "", **environ: str
) -> tuple[bool, list[float]]:
    """Whether it was brought, and the pauses between attempts."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    courier = Courier(Workspace(folder), environ, sleep=sleep, telegram_url=telegram_url)
    return asyncio.run(courier.deliver(report, to)), pauses


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_file_is_replaced_or_grows_and_its_name_has_the_day_of_its_zone(tmp_path: Path) -> None:
    late = replace(REPORT, due=MONDAY.replace(hour=23))
    to = ToFile(path="reports/{date}/a.md")
    for report in (REPORT, REPORT, late):
        assert bring(to, tmp_path, report) == (True, [])
    assert (tmp_path / "reports/2026-11-30/a.md").read_text() == "All is well.\n"
    assert (tmp_path / "reports/2026-12-01/a.md").exists(), "23:00 in UTC is the next day in Berlin"
    grows = ToFile(path="all.md", mode="append")
    for report in (REPORT, FAILED):
        assert bring(grows, tmp_path, report) == (True, [])
    assert (tmp_path / "all.md").read_text() == (
        "## 2026-11-30 07:00 CET · morning\n\nAll is well.\n\n"
        "## 2026-11-30 07:00 CET · morning\n\nmorning: failed: The model is away.\n"
    )


def test_a_run_that_failed_leaves_the_last_good_file_as_it_is(tmp_path: Path) -> None:
    to = ToFile(path="a.md")
    bring(to, tmp_path)
    assert bring(to, tmp_path, FAILED) == (False, [])
    assert (tmp_path / "a.md").read_text() == "All is well.\n"


def test_no_link_leads_out_of_the_workspace(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "kept.md").write_text("mine")
    (inside / "link.md").symlink_to(outside / "kept.md")
    (inside / "folder").symlink_to(outside)
    (inside / "pipe").mkdir()
    os.mkfifo(inside / "fifo")
    for path in ("link.md", "folder/new.md", "../outside/kept.md", "pipe", "fifo"):
        for mode in ("replace", "append"):
            to = ToFile(path=path, mode=mode)
            with pytest.raises(FoldlineError):
                bring(to, inside)
    assert (outside / "kept.md").read_text() == "mine"
    assert sorted(path.name for path in outside.iterdir()) == ["kept.md"]


# --- webhooks ---------------------------------------------------------------------------------------------------------


def test_a_webhook_gets_json_signed_with_the_secret_of_the_environment(tmp_path: Path) -> None:
    hook = Hook(204)
    with serve(hook) as served:
        to = ToWebhook(url=f"{served.url}/hooks/${{PART}}?a=1", secret_env="SECRET")
        assert bring(to, tmp_path, PART="of-the-path", SECRET="shared") == (True, [])
    [taken] = hook.taken
    assert taken.path == "/hooks/of-the-path"
    assert taken.json == {
        "schedule": "morning",
        "due": "2026-11-30T06:00:00Z",
        "session": "20261130-060000-01234567",
        "reason": "done",
        "text": "All is well.",
        "message": "",
        "figures": {"used_tokens": 12},
    }
    assert taken.headers["idempotency-key"] == "schedule:morning:2026-11-30T06:00:00Z"
    at = taken.headers["foldline-timestamp"]
    assert abs(time.time() - int(at)) < 300
    expected = hmac.new(b"shared", f"{at}.".encode() + taken.body, hashlib.sha256).hexdigest()
    assert taken.headers["foldline-signature"] == f"sha256={expected}"


def test_a_webhook_without_a_secret_is_not_signed_and_is_told_of_failures(tmp_path: Path) -> None:
    hook = Hook(200)
    with serve(hook) as served:
        assert bring(ToWebhook(url=f"{served.url}/"), tmp_path, FAILED) == (True, [])
    [taken] = hook.taken
    assert "foldline-signature" not in taken.headers
    assert (taken.json["reason"], taken.json["message"]) == ("failed", "The model is away.")


def test_a_webhook_is_tried_again_while_its_server_is_away_with_longer_and_longer_pauses(tmp_path: Path) -> None:
    hook = Hook(500, None, 429, 200, headers={"retry-after": "7"})
    with serve(hook) as served:
        assert bring(ToWebhook(url=f"{served.url}/"), tmp_path) == (True, [7.0, 4.0, 16.0])
    assert len({taken.body for taken in hook.taken}) == 1
    assert len(hook.taken) == 4


@pytest.mark.parametrize(
    ("statuses", "said", "attempts"),
    [((503,), "the server answered 503", 4), ((404,), "the server answered 404", 1), ((None,), "cannot be reached", 4)],
)
def test_a_webhook_that_refuses_is_said(
    statuses: tuple[int | None, ...], said: str, attempts: int, tmp_path: Path
) -> None:
    hook = Hook(*statuses)
    with serve(hook) as served, pytest.raises(FoldlineError, match=said) as caught:
        bring(ToWebhook(url=f"{served.url}/a-secret-path"), tmp_path)
    assert len(hook.taken) == attempts
    assert "a-secret-path" not in str(caught.value)


def test_no_redirect_is_followed(tmp_path: Path) -> None:
    other = Hook(200)
    with serve(other) as elsewhere:
        hook = Hook(307, headers={"location": f"{elsewhere.url}/"})
        with (
            serve(hook) as served,
            pytest.raises(FoldlineError, match=r"307 \(it leads elsewhere"),
        ):
            bring(ToWebhook(url=f"{served.url}/"), tmp_path)
    assert other.taken == []


def test_a_secret_that_is_not_there_is_said_and_nothing_is_sent(tmp_path: Path) -> None:
    hook = Hook(200)
    with serve(hook) as served:
        for to in (ToWebhook(url=f"{served.url}/", secret_env="NONE"), ToWebhook(url=f"{served.url}/${{NONE}}")):
            with pytest.raises(FoldlineError, match="the environment has no NONE"):
                bring(to, tmp_path)
    assert hook.taken == []


def test_places_are_named_without_their_secrets() -> None:
    assert delivery_label(ToWebhook(url="https://hooks.example/secret/path")) == "webhook hooks.example"
    assert delivery_label(ToTelegram(chat=-5, thread=7)) == "Telegram -5, thread 7"
    assert delivery_label(ToFile(path="a/{date}.md")) == "file a/{date}.md"


# --- Telegram ---------------------------------------------------------------------------------------------------------


def test_a_message_arrives_in_its_chat_and_thread(telegram_api: TelegramApi, tmp_path: Path) -> None:
    url = telegram_api.base_url.removesuffix("/bot")
    to = ToTelegram(chat=-100_5, thread=7)
    bring(to, tmp_path, telegram_url=url, FOLDLINE_TELEGRAM_TOKEN=telegram_api.token)
    [reply] = telegram_api.wait_for(bool, -100_5, thread_id=7)
    assert (reply.text, reply.thread_id) == ("All is well.", 7)


def test_a_long_text_arrives_whole_in_pieces_that_telegram_takes(tmp_path: Path) -> None:
    hook = Hook(200, body=b'{"ok": true, "result": {}}')
    text = "\n\n".join(f"{number}: " + "Größe 👋 " * 60 for number in range(40))
    with serve(hook) as served:
        bring(
            ToTelegram(chat="@news"),
            tmp_path,
            replace(REPORT, text=text),
            telegram_url=served.url,
            FOLDLINE_TELEGRAM_TOKEN=TOKEN,
        )
    texts = [taken.json["text"] for taken in hook.taken]
    assert len(texts) > 3
    assert all(utf16_units(piece) <= 4_096 for piece in texts)
    assert "".join("".join(texts).split()) == "".join(text.split())
    assert {taken.path for taken in hook.taken} == {f"/bot{TOKEN}/sendMessage"}
    assert {taken.json["chat_id"] for taken in hook.taken} == {"@news"}


def test_telegram_is_left_alone_for_as_long_as_it_asks(tmp_path: Path) -> None:
    hook = Hook(429, 200, body=b'{"ok": false, "parameters": {"retry_after": 33}}')
    with serve(hook) as served:
        done = bring(ToTelegram(chat=1), tmp_path, telegram_url=served.url, FOLDLINE_TELEGRAM_TOKEN=TOKEN)
    assert done == (True, [33.0])


@pytest.mark.parametrize(
    ("status", "said", "attempts"),
    [(403, "Telegram answered 403: Forbidden: bot was blocked", 1), (None, "cannot be reached: ", 1)],
)
def test_what_telegram_refuses_is_said_without_the_token(
    status: int | None, said: str, attempts: int, tmp_path: Path
) -> None:
    """A connection that broke may have brought the message: it is not sent a second time."""
    hook = Hook(status, body=b'{"ok": false, "description": "Forbidden: bot was blocked"}')
    with serve(hook) as served, pytest.raises(FoldlineError, match=said) as caught:
        bring(ToTelegram(chat=1), tmp_path, telegram_url=served.url, FOLDLINE_TELEGRAM_TOKEN=TOKEN)
    assert TOKEN not in str(caught.value)
    assert len(hook.taken) == attempts


def test_a_token_is_in_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hook = Hook(200)
    with serve(hook) as served, caplog.at_level("INFO"):
        bring(ToTelegram(chat=1), tmp_path, telegram_url=served.url, FOLDLINE_TELEGRAM_TOKEN=TOKEN)
    assert TOKEN not in caplog.text
