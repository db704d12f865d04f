"""Reports of runs, and their delivery to a file, a webhook or a Telegram chat.

Addresses are often secrets (a bot's token is in the path): errors and logs show no more of one than its host. So
requests go straight to the transport; httpx itself would log whole addresses.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import httpx

from foldline.agent.settings.checks import variable_names
from foldline.agent.settings.connections import TELEGRAM_TOKEN, Delivery, ToFile, ToTelegram, ToWebhook
from foldline.agent.tools.workspace import Workspace
from foldline.agent.workers import run_to_end
from foldline.doors.gateway.markdown import split_text
from foldline.doors.schedule.entries import ScheduleEntry, timestamp
from foldline.errors import FoldlineError, InvalidInput
from foldline.messages import Json

__all__ = ["TELEGRAM_URL", "Courier", "Report", "delivery_label"]

TELEGRAM_URL: Final = "https://api.telegram.org"

# Of UTF-16 in one message (core.telegram.org/bots/api, sendMessage).
_MOST_UNITS: Final = 4_096

# Pauses between attempts: a restarting server is back within them; a longer outage is reported.
_PAUSES_SECONDS: Final = (1.0, 4.0, 16.0)

# The longest Retry-After that is honoured.
_LONGEST_PAUSE_SECONDS: Final = 60.0

_TIMEOUT_SECONDS: Final = 30.0
# An appended file is rewritten as a whole by each run.
_MOST_FILE_BYTES: Final = 16 * 1024 * 1024

_MOST_RESPONSE_BYTES: Final = 64 * 1024

Sleep = Callable[[float], Awaitable[None]]


def delivery_label(to: Delivery) -> str:
    """A short name of a place without secrets: "file reports/a.md", "webhook hooks.example"."""
    if isinstance(to, ToFile):
        return f"file {to.path}"
    if isinstance(to, ToWebhook):
        return f"webhook {httpx.URL(to.url).host}"
    return f"Telegram {to.chat}" + (f", thread {to.thread}" if to.thread is not None else "")


@dataclass(frozen=True, slots=True)
class _Response:
    """The response of a server."""

    status: int
    body: bytes
    retry_after: str | None


class Courier:
    """Delivers reports. `sleep` waits between two attempts; `telegram_url` is the address of the Bot API."""

    def __init__(
        self,
        workspace: Workspace,
        environ: Mapping[str, str],
        *,
        sleep: Sleep = asyncio.sleep,
        telegram_url: str = TELEGRAM_URL,
    ) -> None:
        self._workspace, self._environ, self._sleep = workspace, environ, sleep
        self._telegram_url = telegram_url

    async def deliver(self, report: Report, to: Delivery) -> bool:
        """Deliver a report; return False if it does not belong there: a file keeps the last good one.

        Raises FoldlineError with the reason, and OSError.
        """
        if isinstance(to, ToFile):
            return await run_to_end(self._write, report, to)
        if isinstance(to, ToWebhook):
            await self._post(report, to)
        else:
            await self._send(report, to)
        return True

    def missing(self, to: Delivery) -> list[str]:
        """The environment variables that a delivery needs and does not have."""
        if isinstance(to, ToFile):
            return []
        if isinstance(to, ToTelegram):
            needed = [TELEGRAM_TOKEN]
        else:
            needed = [*variable_names(to.url), *([to.secret_env] if to.secret_env else [])]
        return [name for name in needed if not self._environ.get(name)]

    # --- files -------------------------------------------------------------------------------------------------------

    def _write(self, report: Report, to: ToFile) -> bool:
        # Readers of such a file want the last good report; the failure is in the log and in `foldline schedule`.
        if to.mode == "replace" and not report.succeeded:
            return False
        path = to.path.replace("{date}", report.day)
        # The agent's own tools may write the same file at this moment.
        with self._workspace.lock:
            place = self._workspace.writable(path)
            if to.mode == "replace":
                self._workspace.write(place, f"{report.body_text}\n".encode())
                return True
            before = b""
            if place.status is not None:
                if place.status.st_size > _MOST_FILE_BYTES:
                    raise InvalidInput(f"has grown beyond {_MOST_FILE_BYTES:,} bytes; put {{date}} in it", place=path)
                with self._workspace.open(path) as (file, place):
                    before = file.read()
            gap = b"\n" if before else b""
            self._workspace.write(place, before + gap + f"{report.heading}\n\n{report.body_text}\n".encode())
            return True

    # --- webhooks ----------------------------------------------------------------------------------------------------

    async def _post(self, report: Report, to: ToWebhook) -> None:
        body = json.dumps(report.as_json(), ensure_ascii=False).encode()
        # The same key for each attempt, so that a receiver can drop repeats.
        headers = {"content-type": "application/json", "idempotency-key": report.id}
        if to.secret_env is not None:
            at = str(int(datetime.now(UTC).timestamp()))
            # The timestamp is signed too: otherwise an old delivery could be replayed.
            signed = hmac.digest(self._variable(to.secret_env).encode(), f"{at}.".encode() + body, hashlib.sha256)
            headers |= {"foldline-timestamp": at, "foldline-signature": f"sha256={signed.hex()}"}
        answer = await self._request(self._fill(to.url), body, headers, retry_after_silence=True)
        if not 200 <= answer.status < 300:
            moved = " (it leads elsewhere, and is not followed)" if 300 <= answer.status < 400 else ""
            raise FoldlineError(f"the server answered {answer.status}{moved}")

    # --- Telegram ----------------------------------------------------------------------------------------------------

    async def _send(self, report: Report, to: ToTelegram) -> None:
        url = f"{self._telegram_url}/bot{self._variable(TELEGRAM_TOKEN)}/sendMessage"
        for piece in split_text(report.body_text, _MOST_UNITS):
            if not piece.text.strip():  # Telegram refuses it
                continue
            payload: dict[str, Any] = {
                "chat_id": to.chat,
                "text": piece.text,
                # Telegram would fetch a linked address, and a page could make the model write one that leaks data.
                "link_preview_options": {"is_disabled": True},
            }
            if to.thread is not None:
                payload["message_thread_id"] = to.thread
            answer = await self._request(
                url,
                json.dumps(payload).encode(),
                {"content-type": "application/json"},
                retry_after_silence=False,  # it may have arrived: a line in the log is better than a message twice
            )
            if answer.status != 200:
                raise FoldlineError(f"Telegram answered {answer.status}: {_description(answer)}")

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _request(
        self, url: str, body: bytes, headers: Mapping[str, str], *, retry_after_silence: bool
    ) -> _Response:
        """Send a request, and again while its server is away, busy or broken; return the last response.

        Redirects are not followed: one could lead a signed report to another host.
        """
        # A new transport for each delivery: they are minutes or days apart, and a kept connection would be stale.
        async with httpx.AsyncHTTPTransport() as transport:
            for pause in (*_PAUSES_SECONDS, None):
                try:
                    answer = await _send_request(transport, httpx.Request("POST", url, content=body, headers=headers))
                except httpx.InvalidURL:
                    # Not chained: the message of httpx quotes the address, which may be secret.
                    raise FoldlineError("is no address, with the environment's values put in") from None
                except (httpx.TransportError, TimeoutError) as error:
                    # A connection that never opened has delivered nothing: a retry is always safe.
                    unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                    if pause is None or not (unsent or retry_after_silence):
                        raise FoldlineError(f"cannot be reached: {_kind(error)}") from None
                    wait_seconds = pause
                else:
                    if pause is None or not (answer.status in (408, 429) or answer.status >= 500):
                        return answer
                    wait_seconds = max(pause, _retry_after_seconds(answer))
                await self._sleep(wait_seconds)
        raise AssertionError("the last attempt returns or raises")

    def _variable(self, name: str) -> str:
        value = self._environ.get(name)
        if not value:
            raise FoldlineError(f"the environment has no {name}")
        return value

    def _fill(self, url: str) -> str:
        for name in variable_names(url):
            url = url.replace(f"${{{name}}}", self._variable(name))
        return url


async def _send_request(transport: httpx.AsyncBaseTransport, request: httpx.Request) -> _Response:
    request.extensions = {**request.extensions, "timeout": httpx.Timeout(_TIMEOUT_SECONDS).as_dict()}
    async with asyncio.timeout(4 * _TIMEOUT_SECONDS):  # httpx limits each read alone, so a trickle would never end
        response = await transport.handle_async_request(request)
        body = b""
        try:
            async for piece in response.aiter_raw():
                body += piece
                # Only the reason of an error is read from it; a longer body holds something else.
                if len(body) > _MOST_RESPONSE_BYTES:
                    break
        finally:
            await response.aclose()
    return _Response(response.status_code, body, response.headers.get("retry-after"))


def _kind(error: Exception) -> str:
    """The name of an error without its text, which may hold the address: "ConnectError"."""
    return type(error).__name__


def _description(answer: _Response) -> str:
    # The text of a foreign server goes into a log line: bounded, and without line breaks.
    found = _json_object(answer).get("description")
    return " ".join(str(found)[:200].split()) if found else "no reason given"


def _retry_after_seconds(answer: _Response) -> float:
    """The wait that a server asks for, in the header or in Telegram's form; 0 without one."""
    parameters = _json_object(answer).get("parameters")
    value = parameters.get("retry_after") if isinstance(parameters, dict) else answer.retry_after
    try:
        return min(max(0.0, float(value or 0)), _LONGEST_PAUSE_SECONDS)
    except (TypeError, ValueError):  # a date: our own pauses will do
        return 0.0


def _json_object(answer: _Response) -> dict[str, Any]:
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome of a run. `text` is the answer; `message` says why if `reason` is not "done"; `id` names the run."""

    id: str
    entry: ScheduleEntry
    due: datetime
    session: str
    reason: str
    text: str
    message: str = ""
    figures: Mapping[str, Json]

    @property
    def succeeded(self) -> bool:
        """Whether the turn ended with an answer."""
        return self.reason == "done"

    @property
    def day(self) -> str:
        """The day it was due, on the entry's clock."""
        return self.due.astimezone(self.entry.zone).strftime("%Y-%m-%d")

    @property
    def body_text(self) -> str:
        """The report for a person: the answer, or what went wrong with any partial answer."""
        if self.succeeded:
            return self.text.strip() or "(no text)"
        why = f"{self.entry.name}: {self.reason}" + (f": {self.message}" if self.message else "")
        return f"{why}\n\n{self.text.strip()}".strip()

    @property
    def heading(self) -> str:
        """The heading above it in a file that grows."""
        return f"## {self.entry.local(self.due)} · {self.entry.name}"

    def as_json(self) -> dict[str, Json]:
        """The body of a webhook."""
        return {
            "schedule": self.entry.name,
            "due": timestamp(self.due),
            "session": self.session,
            "reason": self.reason,
            "text": self.text,
            "message": self.message,
            "figures": dict(self.figures),
        }
