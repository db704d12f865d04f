"""`foldline serve` over a fake model, with a session that has folds: for tests of the page in a real browser."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from tests.doors.server_process import Door
from tests.serving import Served, serve

from foldline.testing import FakeProvider, FakeReply, asks_for_summary

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

WINDOW_TOKENS = 8_000
TOKEN = "the-token-of-these-tests"
ENTERED = f"sessionStorage.setItem('foldline.token', '{TOKEN}')"
"""A script that gives a page the token before it begins."""
SUMMARY = "## Goal\nThe user reports of towns at the river."
MARKUP = "<img src=x onerror=\"document.title='broken in'\"><script>document.title='broken in'</script><b>bold</b>"
TITLE = "Towns <b>at</b> the river"


def report(number: int) -> str:
    """A message of about 1,100 tokens, of which five do not fit the window."""
    return f"Report {number}. " + f"The town of number {number} lies at the river. " * 110


def _lines_of_ledger(first: int, last: int) -> tuple[str, dict[str, Any]]:
    return "read_file", {"path": "ledger.txt", "start_line": first, "end_line": last}


def _page_of_ledger(number: int) -> tuple[str, dict[str, Any]]:
    return _lines_of_ledger(60 * number + 1, 60 * number + 60)


@dataclass(slots=True)
class Model:
    """The fake model. A reply to a text that ends with "wait" continues only after `open_gate`."""

    gates: dict[str, asyncio.Event] = field(default_factory=dict)

    def __call__(self, body: Mapping[str, Any]) -> FakeReply:
        """A summary where one is asked for, a call where a file is asked for, else words."""
        last = body["messages"][-1]
        text = last["content"] if isinstance(last["content"], str) else json.dumps(last["content"])
        if asks_for_summary(body):
            return FakeReply(SUMMARY)
        if last["role"] == "tool":
            return FakeReply("The ledger has many lines.")
        if text.endswith("of the ledger?"):
            return FakeReply("", calls=[_page_of_ledger(int(text.split()[4]))])
        if text == "Read line by line":
            return FakeReply("", calls=[_lines_of_ledger(line, line) for line in range(1, 60)])
        if text.endswith("wait"):
            return FakeReply("First a piece, then <i>the rest</i> of the answer.", gate=self.gates[text], piece_chars=5)
        return FakeReply(f"Noted: {text[:40]}")


@dataclass(frozen=True, slots=True)
class PageServer:
    """The server, its model, and a client of its own beside the page."""

    url: str
    model: Model
    served: Served
    api: httpx.Client

    def create_session(self, **given: str) -> str:
        """Create a session; return its id."""
        return str(self._json(self.api.post("/v1/sessions", json=given))["id"])

    def say(self, session: str, text: str) -> dict[str, Any]:
        """Run a turn; return how it ended."""
        return self._json(self.api.post(f"/v1/sessions/{session}/messages", json={"text": text}))

    def fetch(self, path: str) -> dict[str, Any]:
        """The JSON at a path."""
        return self._json(self.api.get(path))

    def gate(self, text: str) -> None:
        """Hold back the answer to a text after its first piece, until `open_gate`."""
        self.model.gates[text] = asyncio.Event()

    def open_gate(self, text: str) -> None:
        """Let the held answer continue."""
        self.served.set(self.model.gates[text])

    def folded(self) -> str:
        """A session with a summary over its beginning, shortened results after that, and messages that are whole."""
        session = self.create_session(title=TITLE)
        self.say(session, f"Here is markup: {MARKUP}")
        for number in range(5):
            self.say(session, report(number))
        for number in range(12):
            self.say(session, f"What is on page {number} of the ledger?")
        return session

    def long(self) -> str:
        """A session of 124 messages in two turns."""
        session = self.create_session(title="Long")
        for _ in range(2):
            self.say(session, "Read line by line")
        return session

    def _json(self, response: httpx.Response) -> dict[str, Any]:
        assert response.is_success, response.text
        found: dict[str, Any] = response.json()
        return found


@contextmanager
def paged(folder: Path) -> Iterator[PageServer]:
    """The real command as a process, with its page; it asks for TOKEN."""
    (folder / "ledger.txt").write_text("".join(f"{n:04} boat {n % 7} paid {n * 3} coins\n" for n in range(700)))
    model = Model()
    with serve(FakeProvider(model, window_tokens=WINDOW_TOKENS)) as served:
        # What is folded must not hang on which of a summary and a turn is done first.
        (folder / "page.yaml").write_text("agents: {main: {policy: {name: balanced, ahead: 0}}}\n")
        options = ("--config", str(folder / "page.yaml"))
        door = Door(served.url, folder, str(folder / "sessions"), options, environ={"FOLDLINE_TOKEN": TOKEN})
        headers = {"Authorization": f"Bearer {TOKEN}"}
        try:
            door.start()
            with httpx.Client(base_url=door.url, headers=headers, timeout=120) as api:
                yield PageServer(door.url, model, served, api)
        finally:
            door.close()


def shown(page: Page) -> Locator:
    return page.get_by_role("list", name="What the model sees").get_by_role("listitem")


def everything(page: Page) -> Locator:
    return page.get_by_role("list", name="Everything").get_by_role("listitem")


def details(page: Page) -> Locator:
    return page.get_by_role("complementary")


def opened(page: Page, served: PageServer, session: str) -> None:
    """The session on the page, with all of it read and its stream open."""
    page.goto(f"{served.url}/#/s/{session}")
    page.locator(".title .about", has_text=session).wait_for()  # not the view before it
    page.locator("#connection[data-state='live']").wait_for()


def listed(page: Page, served: PageServer) -> None:
    """The list of sessions, made anew."""
    page.goto(f"{served.url}/#/")
    page.evaluate("dispatchEvent(new HashChangeEvent('hashchange'))")  # it may have been there
    page.locator("#connection[data-state='live']").wait_for()
    page.locator(".sessions li").first.wait_for()


def size(served: PageServer, session: str) -> int:
    """The context of a session, in tokens."""
    return int(served.fetch(f"/v1/sessions/{session}")["figures"]["current_context_tokens"])


def say(page: Page, words: str) -> None:
    page.get_by_role("textbox", name="Say something").fill(words)
    page.get_by_role("button", name="Send").click()
