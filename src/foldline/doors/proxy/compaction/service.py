"""Serves requests that ask for compaction, or that carry blocks and items which were made here.

A request is turned into one that any upstream understands, and goes on as any other: `ProxyExchange` plans, folds and
sends it. What the client asked for is added to its answer. Requests for a summary alone are answered here. Where the
upstream compacts by itself, all passes as it comes, but for blocks of ours, which it could not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from foldline.conversations.compaction.expansion import Expanded, rewritten
from foldline.conversations.compaction.messages_blocks import expand_blocks, has_block
from foldline.conversations.compaction.refusals import CompactionRefused
from foldline.conversations.compaction.responses_items import expand_items, has_item
from foldline.conversations.compaction.seals import MARK
from foldline.conversations.request_body import FORMS, RequestBody, read_body
from foldline.doors.proxy.bodies import TooLarge, inflate, parse_object, readable
from foldline.doors.proxy.compaction.answer_edits import EditingSend
from foldline.doors.proxy.compaction.asked import DONE_BY, Asked, CompactionParts
from foldline.doors.proxy.compaction.messages_service import serve_messages
from foldline.doors.proxy.compaction.native import CompactionSetting, upstream_compacts
from foldline.doors.proxy.compaction.responses_service import serve_compact, serve_responses
from foldline.doors.proxy.compaction.whole_answers import refusal_answer
from foldline.doors.proxy.exchange import ProxyExchange
from foldline.doors.proxy.request_head import client_of, encoding, is_streamed_at, model_at, path_of
from foldline.errors import InvalidInput

__all__ = ["CompactionService", "serves_path"]

# Paths beside those of a dialect (OpenAI, API reference: Compact a response, Get input token counts).
_COMPACT: Final = "/responses/compact"
_COUNT: Final = "/responses/input_tokens"
# A request without any of these asks for nothing here, and is not read twice. With the quotation mark: sessions often
# have these words in their texts.
_WORDS: Final = (b'"compact', b'"context_management"', b'"thread"', f'"{MARK}.'.encode())


def serves_path(method: str, path: str) -> bool:
    """Whether a path is served here that is no dialect's: it compacts, or counts, a conversation of Responses."""
    return method == "POST" and path.rstrip("/").endswith((_COMPACT, _COUNT))


@dataclass(slots=True)
class CompactionService:
    """Serves compaction for one upstream. `local` says that it is on this machine or network."""

    parts: CompactionParts
    setting: CompactionSetting
    local: bool

    async def serve(self, exchange: ProxyExchange, raw: bytes) -> None:
        """Serve a request, whether it asks for compaction or not. Raises nothing but a cancellation."""
        alone = serves_path(exchange.record.method, exchange.record.path)
        exchange.record.received_bytes = len(raw)
        body = await self._read(exchange, raw, alone)
        if body is None:
            await self._unread(exchange, raw, alone)
            return
        headers, send = exchange.headers, exchange.send
        try:
            with exchange.own_faults("passed on as it came", but=(InvalidInput,)):
                await self._serve(exchange, body, raw, alone)
                return
            if not exchange.record.status:  # only reached after a fault, and nothing has gone out
                exchange.headers, exchange.send = headers, send
                await exchange.run(raw, planned=not alone)
        except InvalidInput as error:
            exchange.body, exchange.send = body, EditingSend(send, [(DONE_BY, b"foldline")])
            await exchange.answer(refusal_answer(body.dialect, error), "refused")

    async def _read(self, exchange: ProxyExchange, raw: bytes, alone: bool) -> RequestBody | None:
        """The body of a request that may ask for compaction; None for any other."""
        if self._dry(exchange) or exchange.dialect not in ("anthropic", "openai-responses"):
            return None
        path, coding = exchange.record.path, encoding(exchange.headers)
        try:
            plain = await inflate(raw, coding, exchange.max_bytes) if coding and readable(coding) else raw
            if not path.rstrip("/").endswith(_COMPACT) and not any(word in plain for word in _WORDS):
                return None
            form = FORMS[exchange.dialect]
            return read_body(form, plain, addressed=model_at(path), streamed=is_streamed_at(path))
        except (InvalidInput, TooLarge):  # `run` says what is wrong with it
            return None

    async def _unread(self, exchange: ProxyExchange, raw: bytes, alone: bool) -> None:
        """Send on a request that asks for nothing here, or that cannot be read."""
        compacts = exchange.record.path.rstrip("/").endswith(_COMPACT)
        fields = parse_object(raw.decode("utf-8", "replace")) if compacts else None
        model = "" if fields is None else str(fields.get("model") or "")
        if fields is None or self._dry(exchange) or self._is_native("openai-responses", model, summaries=True):
            await exchange.run(raw, planned=not alone)
            return
        reason = "Missing required parameter: 'input'."
        if fields.get("previous_response_id"):
            reason = "'previous_response_id' names messages that are not here: send all of them in 'input'."
        refused = CompactionRefused(reason, place="input", code="missing_required_parameter")
        exchange.send = EditingSend(exchange.send, [(DONE_BY, b"foldline")])
        await exchange.answer(refusal_answer("openai-responses", refused), "refused")

    def _is_native(self, dialect: str, model: str, *, summaries: bool) -> bool:
        return upstream_compacts(dialect, model, self.setting, local=self.local, summaries=summaries)

    @staticmethod
    def _dry(exchange: ProxyExchange) -> bool:
        return exchange.services.mode == "dry-run"

    async def _serve(self, exchange: ProxyExchange, body: RequestBody, raw: bytes, alone: bool) -> None:
        if body.dialect == "anthropic" and body.fields.get("thread") is not None:
            await self._threaded(exchange, body, raw)
            return
        compacts = exchange.record.path.rstrip("/").endswith(_COMPACT)
        summaries, clears = _asks(body)
        if not (compacts or summaries or clears):
            await exchange.run(raw, planned=not alone)
            return
        client = client_of(exchange.headers, exchange.target.partition("?")[2].encode("latin-1"))
        form = path_of(exchange.record.method, exchange.record.path)[1]
        # Nobody here can read a stream of binary frames, so nothing could be added to it.
        unreadable = form is not None and form.binary
        if unreadable or self._is_native(body.dialect, body.model, summaries=summaries or compacts):
            await self._pass_on(exchange, body, raw, client, alone)
            return
        window = await exchange.services.windows.of(body.dialect, body.model, exchange.headers, client=client)
        asked = Asked(self.parts, exchange, body, client, None if window.guessed else window.tokens)
        if compacts:
            await serve_compact(asked)
        elif alone:
            await asked.go_on(expand_items(body.messages, self.parts.key, client, native=False).messages, planned=False)
        elif body.dialect == "anthropic":
            await serve_messages(asked)
        else:
            await serve_responses(asked)

    async def _threaded(self, exchange: ProxyExchange, body: RequestBody, raw: bytes) -> None:
        """Serve a request of a conversation that the server is to hold: the API can, any other upstream ignores it.

        The next request would hold what is new alone, and the model would read nothing else. The API's own refusal
        makes the tool runner of its libraries send all messages, which are compacted here then.
        """
        if self._is_native(body.dialect, body.model, summaries=False):
            await exchange.run(raw)
            return
        reason = "`thread` is not supported by this upstream, which holds no conversations: send all messages"
        raise CompactionRefused(reason, place="thread", code="thread_unsupported_request")

    async def _pass_on(
        self, exchange: ProxyExchange, body: RequestBody, raw: bytes, client: bytes, alone: bool
    ) -> None:
        """Send a request to an upstream that compacts by itself: as it came, but for blocks and items of ours."""
        expand = expand_blocks if body.dialect == "anthropic" else expand_items
        found: Expanded = expand(body.messages, self.parts.key, client, native=True)
        if found.changed:
            raw = rewritten(body, found.messages, ())
            exchange.headers = [each for each in exchange.headers if each[0].lower() != b"content-encoding"]
        exchange.send = EditingSend(exchange.send, [(DONE_BY, b"upstream")])
        await exchange.run(raw, planned=not alone)


def _asks(body: RequestBody) -> tuple[bool, bool]:
    """Whether a request asks for a summary or carries one, and whether it asks for old content to be cleared."""
    fields, management = body.fields, body.fields.get("context_management")
    if body.dialect != "anthropic":
        return bool(management) or has_item(body.messages), False
    edits = management.get("edits") if isinstance(management, Mapping) else None
    kinds = [edit.get("type") for edit in edits if isinstance(edit, Mapping)] if isinstance(edits, list) else []
    compacts = any(str(kind).startswith("compact_") for kind in kinds)
    return fields.get("compaction") is not None or compacts or has_block(body.messages), management is not None
