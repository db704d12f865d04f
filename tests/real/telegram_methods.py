"""Before the emulation of the Bot API: answers the methods that it lacks, mends replies that no bot library can read.

All that is said goes through the emulation, which numbers and keeps the messages. Here are only files, the rules of the
real server that the emulation does not know, and a wait in getUpdates instead of an empty reply at once. Rules and
figures are those of the Bot API's reference (core.telegram.org/bots/api).
"""

from __future__ import annotations

import asyncio
import html.parser
import json
import re
import secrets
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

__all__ = ["BOT_ID", "Kept", "Refusal", "application", "plain_text"]

BOT_ID = 666  # the emulation's
MAX_TEXT_UNITS = 4096  # "1-4096 characters after entities parsing", counted in UTF-16 units as entities are
MAX_CAPTION_UNITS = 1024
MAX_DOWNLOAD_BYTES = 20 * 2**20  # getFile: "bots can download files of up to 20MB in size"
HTML_TAGS = frozenset("a b blockquote code del em i ins pre s span strike strong tg-emoji tg-spoiler u".split())
NUMBERS = ("chat_id", "message_id", "message_thread_id", "offset", "limit", "timeout")


class Refusal(Exception):  # noqa: N818, a reply like others, not a fault of ours
    """What the Bot API answers instead of a result."""

    def __init__(self, status: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.status = status
        self.parameters = parameters

    def reply(self) -> JSONResponse:
        body = {"ok": False, "error_code": self.status, "description": str(self)}
        return JSONResponse(body | ({"parameters": self.parameters} if self.parameters else {}), self.status)


@dataclass
class Kept:
    """What is known of one bot beside the emulation; read by the tests from another thread."""

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    files: dict[str, tuple[str, bytes, int]] = field(default_factory=dict)
    chats: dict[int, dict[str, Any]] = field(default_factory=dict)
    refusals: dict[str, list[Refusal]] = field(default_factory=lambda: defaultdict(list))
    pending: list[dict[str, Any]] = field(default_factory=list)
    changes: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    def tell(self) -> None:
        """Wake a test that waits."""
        with self.changed:
            self.changes += 1
            self.changed.notify_all()

    def wait_for_change(self, seen: int, seconds: float) -> bool:
        """Whether `changes` has gone beyond `seen`, as soon as it has."""
        with self.changed:
            return self.changed.wait_for(lambda: self.changes > seen, seconds)

    def keep_file(self, name: str, content: bytes, media_type: str, size_bytes: int | None = None) -> dict[str, Any]:
        """A file that can be fetched from now on: its description in a message."""
        number = secrets.token_hex(8)
        size_bytes = len(content) if size_bytes is None else size_bytes
        self.files[number] = (name, content, size_bytes)
        known = {"file_id": number, "file_unique_id": f"u{number}", "file_size": size_bytes}
        return {**known, "file_name": name, "mime_type": media_type}


class _Text(html.parser.HTMLParser):
    """Reads the HTML of messages: known tags, each closed."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in HTML_TAGS:
            raise Refusal(400, f'Bad Request: can\'t parse entities: Unsupported start tag "{tag}"')
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            raise Refusal(400, f'Bad Request: can\'t parse entities: Unexpected end tag "{tag}"')

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def plain_text(text: str, parse_mode: str | None) -> str:
    """What a person reads of `text`; Refusal where the server could not parse it."""
    if parse_mode is None:
        return text
    if parse_mode.upper() != "HTML":
        raise Refusal(400, f"Bad Request: this emulation reads no {parse_mode}, only HTML")
    if re.search(r"<(?![a-zA-Z/])", text):  # Python's reader takes such a sign for text
        raise Refusal(400, "Bad Request: can't parse entities: Unsupported start tag")
    reader = _Text()
    reader.feed(text)
    reader.close()
    if reader.open:
        raise Refusal(400, f"Bad Request: can't parse entities: Can't find end tag of \"{reader.open[-1]}\"")
    return "".join(reader.parts)


def checked_text(given: dict[str, Any], name: str, max_units: int) -> None:
    text = plain_text(str(given.get(name, "")), given.get("parse_mode"))
    if name == "text" and not text.strip():
        raise Refusal(400, "Bad Request: message text is empty")
    if len(text.encode("utf-16-le")) // 2 > max_units:
        raise Refusal(400, f"Bad Request: message {'is' if name == 'text' else 'caption is'} too long")


async def parameters(request: Request, kept: Kept) -> dict[str, Any]:
    """What the bot sent, typed: forms carry numbers as digits and objects as JSON; files are put away."""
    given: dict[str, Any] = dict(request.query_params)
    if request.headers.get("content-type", "").startswith("application/json"):
        given |= await request.json()
    else:
        async with request.form() as form:
            for name, value in form.items():
                if isinstance(value, UploadFile):
                    media_type = value.content_type or "application/octet-stream"
                    given[name] = kept.keep_file(value.filename or "file", await value.read(), media_type)
                else:
                    given[name] = json.loads(value) if value[:1] in {"{", "["} and name != "text" else value
    return given | {name: int(given[name]) for name in NUMBERS if re.fullmatch(r"-?\d+", str(given.get(name, "")))}


class Methods:
    """The methods of the Bot API, over the emulation at `url`. One for all bots; `bots` by token."""

    def __init__(self, url: str, bots: dict[str, Kept]) -> None:
        self.url = url
        self.bots = bots
        self.client = httpx.AsyncClient(base_url=url, timeout=120)
        self.news = asyncio.Condition()

    async def emulated(self, path: str, given: dict[str, Any]) -> Any:
        reply = (await self.client.post(path, json=given)).json()
        if not reply["ok"]:
            raise Refusal(reply.get("error_code", 400), str(reply.get("description") or reply))
        return reply["result"]

    def as_message(self, kept: Kept, message_id: int, stored: dict[str, Any]) -> dict[str, Any]:
        """A message of the bot in the form of the Bot API: what it sent beside that (parse_mode, …) is not in it."""
        chat_id = stored["chat_id"]
        message: dict[str, Any] = {
            "message_id": message_id,
            "date": stored.get("date", 0) // 1000,  # the emulation counts in milliseconds
            "chat": kept.chats.get(chat_id, {"id": chat_id, "type": "private", "first_name": "User"}),
            "from": {"id": BOT_ID, "is_bot": True, "first_name": "Test", "username": "TestNameBot"},
        }
        if "message_thread_id" in stored:
            message |= {"message_thread_id": stored["message_thread_id"], "is_topic_message": True}
        for name in ("text", "caption"):
            if name in stored:
                message[name] = plain_text(stored[name], stored.get("parse_mode"))
        return message | {name: stored[name] for name in ("document", "reply_markup") if stored.get(name)}

    async def stored(self, token: str, given: dict[str, Any]) -> dict[str, Any]:
        """The bot's message that `given` names, as the emulation has it."""
        for update in await self.emulated("/getUpdatesHistory", {"token": token}):
            message = update.get("message", {})
            if update["messageId"] == given.get("message_id") and message.get("chat_id") == given.get("chat_id"):
                return dict(message)
        raise Refusal(400, "Bad Request: message to edit not found")

    async def send_message(self, token: str, given: dict[str, Any]) -> Any:
        checked_text(given, "text", MAX_TEXT_UNITS)
        sent = await self.emulated(f"/bot{token}/sendMessage", given)
        return self.as_message(self.bots[token], sent["message_id"], given | {"date": sent["date"]})

    async def send_document(self, token: str, given: dict[str, Any]) -> Any:
        checked_text(given, "caption", MAX_CAPTION_UNITS)
        sent = await self.emulated(f"/bot{token}/sendMessage", given)
        return self.as_message(self.bots[token], sent["message_id"], given | {"date": sent["date"]})

    async def edit_message_text(self, token: str, given: dict[str, Any]) -> Any:
        checked_text(given, "text", MAX_TEXT_UNITS)
        before = await self.stored(token, given)
        now = {name: value for name, value in before.items() if name != "parse_mode"} | given
        if (before.get("text"), before.get("reply_markup")) == (given["text"], given.get("reply_markup")):
            raise Refusal(400, "Bad Request: message is not modified")
        # With the message, for whoever reads it: the emulation keeps every field.
        earlier = [*before.get("earlier", ()), before["text"]]
        await self.emulated(f"/bot{token}/editMessageText", {"parse_mode": None, **given, "earlier": earlier})
        return self.as_message(self.bots[token], given["message_id"], now)

    async def edit_message_reply_markup(self, token: str, given: dict[str, Any]) -> Any:
        before = await self.stored(token, given)
        await self.emulated(f"/bot{token}/editMessageReplyMarkup", given)
        return self.as_message(self.bots[token], given["message_id"], before | given)

    async def get_updates(self, token: str, given: dict[str, Any]) -> Any:
        """Updates from `offset` on, again and again until a higher offset confirms them."""
        kept = self.bots[token]
        end = asyncio.get_running_loop().time() + given.get("timeout", 0)
        async with self.news:
            while True:
                kept.pending += await self.emulated(f"/bot{token}/getUpdates", {})
                kept.pending = [update for update in kept.pending if update["update_id"] >= given.get("offset", 0)]
                left_seconds = end - asyncio.get_running_loop().time()
                if kept.pending or left_seconds <= 0:
                    return kept.pending[: given.get("limit", 100)]
                try:
                    async with asyncio.timeout(left_seconds):  # not wait_for: its task would keep the lock at the end
                        await self.news.wait()
                except TimeoutError:
                    return []

    async def get_me(self, token: str, given: dict[str, Any]) -> Any:
        abilities = {"can_join_groups": True, "can_read_all_group_messages": False, "supports_inline_queries": False}
        return await self.emulated(f"/bot{token}/getMe", {}) | {"is_bot": True} | abilities

    async def get_file(self, token: str, given: dict[str, Any]) -> Any:
        if (found := self.bots[token].files.get(given.get("file_id", ""))) is None:
            raise Refusal(400, "Bad Request: invalid file_id")
        name, _, size_bytes = found
        if size_bytes > MAX_DOWNLOAD_BYTES:
            raise Refusal(400, "Bad Request: file is too big")
        number = given["file_id"]
        known = {"file_id": number, "file_unique_id": f"u{number}", "file_size": size_bytes}
        return {**known, "file_path": f"documents/{number}/{name}"}

    async def accepted(self, token: str, given: dict[str, Any]) -> Any:
        """Done and forgotten: only `calls` has it."""
        return True

    async def method(self, request: Request) -> Response:
        token, name = request.path_params["token"], request.path_params["method"]
        if (kept := self.bots.get(token)) is None:
            return Refusal(401, "Unauthorized").reply()
        own = OWN.get(name)
        try:
            given = await parameters(request, kept)
            if name != "getUpdates":
                kept.calls.append((name, given))
            if kept.refusals[name]:
                raise kept.refusals[name].pop(0)
            result = await own(self, token, given) if own else await self.emulated(f"/bot{token}/{name}", given)
        except Refusal as refusal:
            return refusal.reply()
        finally:
            kept.tell()
        return JSONResponse({"ok": True, "result": True if result is None else result})

    async def download(self, request: Request) -> Response:
        kept = self.bots.get(request.path_params["token"])
        found = kept.files.get(request.path_params["number"]) if kept else None
        return Response(found[1]) if found else Refusal(404, "Not Found").reply()

    async def passed_on(self, request: Request) -> Response:
        """The emulation's side of the users; getUpdates is woken."""
        reply = await self.client.post(request.url.path, json=await request.json())
        async with self.news:
            self.news.notify_all()
        return Response(reply.content, reply.status_code, media_type="application/json")


OWN: dict[str, Callable[[Methods, str, dict[str, Any]], Coroutine[Any, Any, Any]]] = {
    "deleteMyCommands": Methods.accepted,
    "editMessageReplyMarkup": Methods.edit_message_reply_markup,
    "editMessageText": Methods.edit_message_text,
    "getFile": Methods.get_file,
    "getMe": Methods.get_me,
    "getUpdates": Methods.get_updates,
    "sendChatAction": Methods.accepted,
    "sendDocument": Methods.send_document,
    "sendMessage": Methods.send_message,
    "setMyCommands": Methods.accepted,
}


def application(url: str, bots: dict[str, Kept]) -> Starlette:
    """The Bot API for `bots` by their tokens, over the emulation at `url`."""
    methods = Methods(url, bots)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await methods.client.aclose()

    routes = [
        Route("/bot{token}/{method}", methods.method, methods=["GET", "POST"]),
        Route("/file/bot{token}/documents/{number}/{name}", methods.download),
        Route("/{method}", methods.passed_on, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)
