"""One request of a client that speaks a dialect: read, planned, sent, recovered after a refusal, answered.

The steps are methods of `ProxyExchange`, in this order: `run`, `_plan`, `_fold`, `_send_until_answered`, `_relay`,
`_recover`.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Final

from starlette.types import Send

from foldline.conversations.conversation_cache import PlannedRequest
from foldline.conversations.incoming_request import IncomingRequest, PlanMode
from foldline.conversations.request_body import RequestBody
from foldline.doors.proxy import error_responses as errors
from foldline.doors.proxy.bodies import TooLarge, decoded, read_client_request, stream_form
from foldline.doors.proxy.request_head import ENCODING, Headers, client_of, encoding, evidence, session_name
from foldline.doors.proxy.response_watch import ResponseWatch, buffer_until
from foldline.doors.proxy.served_request import ExchangeRecord, Mode, Outcome, report_headers
from foldline.doors.proxy.shared_services import ProxyServices
from foldline.doors.proxy.summaries import RequestSummariser
from foldline.doors.proxy.upstream import UpstreamFault, UpstreamResponse, send_early
from foldline.doors.proxy.windows import ModelWindow
from foldline.errors import DoesNotFit, InvalidInput
from foldline.failures.classification import classify
from foldline.failures.failure import Failure
from foldline.text.redaction import redact
from foldline.view.transcript import Usage

__all__ = ["ProxyExchange", "ProxyServices"]

_PLAN_MODE: Final[Mapping[Mode, PlanMode]] = {"normal": "fold", "dry-run": "look", "strict": "refuse"}

_OVERFLOWS: Final = {"prompt_overflow", "output_overflow", "bytes_overflow", "request_too_large_for_rate"}
_CHANGED_FOR: Final = {*_OVERFLOWS, "image", "document", "malformed"}  # cured by another request

_INVALID: Final = (400, 422)  # an unknown error may then mean a known defect of the request: an orphaned result

# Each recovery sends fewer tokens than the last. The engine has five steps to make a request smaller, and the first
# recovery may only learn the limit.
_MAX_RECOVERIES: Final = 6

# From this share of the window on, the beginning of a stream is held back: providers report an overflow in a stream
# that has begun with status 200, and once the client has seen a byte of it the request cannot be sent again.
_MAY_OVERFLOW: Final = 0.5

_MAX_ERROR_BYTES: Final = 1024 * 1024  # its wording stands at the beginning
_MAX_WHOLE_BYTES: Final = 32 * 1024 * 1024  # of one that is not streamed, inspected before it is passed on

_OWN_HEADERS: Final = b"x-foldline-"
_END: Final = {"type": "http.response.body", "body": b"", "more_body": False}


@dataclass(slots=True)
class ProxyExchange:
    """One request and its response. `run` answers it, and emits a `ServedRequest` however it ends."""

    services: ProxyServices
    record: ExchangeRecord
    dialect: str
    counting: bool
    target: str
    headers: Headers
    max_bytes: int
    send: Send
    cut: Callable[[], None]
    raw: bytes = b""
    body: RequestBody | None = None
    client: bytes = b""
    window_guessed: bool = False
    summariser: RequestSummariser | None = None
    early: IncomingRequest | None = None  # a request that goes out before it is recorded
    planned: PlannedRequest | None = None
    sent: bytes = b""
    watch: ResponseWatch | None = None
    observed: bool = False  # a usage report counts once
    summaries: tuple[Usage, ...] = ()  # of a compaction that the client asked for
    summary_model: str = ""

    async def run(self, raw: bytes, *, planned: bool = True) -> None:
        """Answer a request; as it came, unless `planned`. Raises nothing but a cancellation."""
        self.raw = raw
        self.record.received_bytes = self.record.received_bytes or len(raw)
        try:
            data = await self._plan(raw) if planned else raw
            if data is not None:
                await self._send_until_answered(data)
        except UpstreamFault as fault:
            await self._report_fault(fault)
        except asyncio.CancelledError:
            self.record.outcome = "left"
            raise
        finally:
            self._emit()
        if self.planned is not None and self.services.ahead is not None and 200 <= self.record.status < 300:
            self.services.ahead.begin(self.planned, self.dialect, self.headers, self.target)

    async def refuse_too_large(self) -> None:
        """Refuse a request whose body is larger than the proxy accepts."""
        self.record.received_bytes = self.max_bytes
        await self.answer(errors.too_large(self.dialect, self.max_bytes), "refused")

    def leave(self) -> None:
        """Report that the client has left before anything was sent for it."""
        self.record.outcome = "left"
        self._emit()

    async def answer(self, response: errors.ErrorResponse, outcome: Outcome) -> None:
        """Give an answer of the proxy's own, without the upstream."""
        try:
            await self._refuse(response, outcome)
        finally:
            self._emit()

    # --- planning ----------------------------------------------------------------------------------------------------

    async def _plan(self, raw: bytes) -> bytes | None:
        """Read the request and return the bytes to send on; None when the request was refused here."""
        asked = raw, self.headers, self.dialect, self.record.path
        mends, short = self.services.mode == "normal", self.services.short_tools
        try:
            request = await read_client_request(*asked, max_bytes=self.max_bytes, mends=mends, short_tools=short)
        except InvalidInput as error:  # the upstream's own error says what is wrong with it
            self.record.warning = f"passed on unread: {error}"
            return raw
        except TooLarge:
            await self._refuse(errors.too_large(self.dialect, self.max_bytes))
            return None
        self.body, self.raw, self.headers = request.body, request.raw, request.headers
        self.record.warning = request.warning
        if away := self.body.elsewhere:
            self.record.warning = f"passed on as it came: the server holds a part of the conversation ({away})"
            return self.raw
        try:
            with self.own_faults("passed on as it came", but=(DoesNotFit, InvalidInput)):
                return await self._fold(self.body)
            self.planned, self.record.outcome = None, "open"  # only reached after a fault
        except DoesNotFit as error:
            if self.services.mode != "dry-run":
                await self._refuse(self._does_not_fit(error))
                return None
            self.record.warning = f"would be refused: {error}"
        except InvalidInput as error:
            self.record.warning = f"passed on as it came: {error}"
        return self.raw

    async def _fold(self, body: RequestBody) -> bytes:
        """Find the conversation of the request and return the bytes to send for it."""
        services, mode = self.services, self.services.mode
        self.client = client = client_of(self.headers, self.target.partition("?")[2].encode("latin-1"))
        if self.counting:
            return await services.conversations.current_body(body, client) if mode == "normal" else body.raw
        window = await self._window(body.model)
        self.record.window_tokens, self.window_guessed = window.tokens, window.guessed
        self.record.warning = "; ".join(filter(None, (self.record.warning, window.warning)))
        if mode == "normal" and services.summaries is not None:
            of = body.dialect, body.model, self.headers, asyncio.get_running_loop()
            self.summariser = services.summaries.for_request(*of, client=client, target=self.target)
        incoming = services.conversations.incoming(
            body,
            None if window.guessed else window.tokens,
            learned_as=window.learned_as,
            name=session_name(self.headers, client),
            mode=_PLAN_MODE[mode],
            summarize=self.summariser,
            client=client,
        )
        # Most requests are far below their window. They go out at once and are recorded while the model works, so that
        # recording costs the client no time.
        if services.conversations.passes_unchanged(incoming):
            self.early = incoming
            return body.raw
        self.planned = await services.conversations.plan(incoming)
        return body.raw if mode == "dry-run" else self.planned.plan.data

    async def _window(self, model: str, *, anew: bool = False) -> ModelWindow:
        return await self.services.windows.of(self.dialect, model, self.headers, client=self.client, anew=anew)

    @contextmanager
    def own_faults(self, consequence: str, *, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
        """Log a fault of the proxy. It costs the client neither its request nor the response.

        The errors in `but` are no faults, and are raised.
        """
        try:
            yield
        except but:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the request goes on without the engine
            self.record.faulty, self.record.warning = True, f"{consequence}: a fault of the proxy"
            reason = redact(str(error))[:500]
            self.services.notice(f"A fault of the proxy; request {self.record.number} is {consequence}: {reason}")
            # The traceback without the message, which may hold words of the conversation.
            self.services.notice("".join(traceback.format_tb(error.__traceback__)) + type(error).__name__)

    # --- sending -----------------------------------------------------------------------------------------------------

    async def _send_until_answered(self, data: bytes) -> None:
        """Send a request, and smaller ones in its place while the upstream refuses it for a reason that they cure."""
        forwarded = [(name, value) for name, value in self.headers if not name.startswith(_OWN_HEADERS)]
        self.record.own_seconds = perf_counter() - self.record.began
        while True:
            # Unchanged bytes keep the coding in which they came; changed ones are sent plain.
            unchanged = data is self.raw or (self.body is not None and data is self.body.raw)
            self.sent = data = self.raw if unchanged else data
            self.record.sent_bytes = len(data)
            headers = forwarded if unchanged else [(name, value) for name, value in forwarded if name != ENCODING]
            response = await self._send(headers, data)
            try:
                smaller = await self._relay(response)
            finally:
                await response.close()
            if smaller is None:
                return
            data = smaller

    async def _send(self, headers: Headers, data: bytes) -> UpstreamResponse:
        send = partial(self.services.upstream.send, self.record.method, self.target, headers, data, readable=True)
        if self.early is None:
            return await send()
        early, self.early = self.early, None
        return await send_early(lambda on_sent: send(on_sent=on_sent), partial(self._record, early))

    async def _record(self, early: IncomingRequest) -> None:
        """Record a request that has gone out."""
        try:
            with self.own_faults("passed on as it came", but=(DoesNotFit, InvalidInput)):
                self.planned = await self.services.conversations.plan(early, sent=True)
                return
            self.record.outcome = "open"
        except (DoesNotFit, InvalidInput) as error:
            self.record.warning = f"passed on as it came: {error}"

    # --- the response ------------------------------------------------------------------------------------------------

    async def _relay(self, response: UpstreamResponse) -> bytes | None:
        """Pass a response on; or return the bytes of a smaller request, if the response is a refusal that they cure."""
        chunks = response.chunks()
        held, error = await self._peek(response, chunks)
        if error is not None:
            smaller, refusal = await self._recover(await self._classify(response, error))
            if smaller is not None:
                return smaller
            if refusal is not None:
                await self._refuse(refusal)
                return None
        await self._start_response(response.status, response.headers)
        for chunk in held:
            await self._send_chunk(chunk)
        watch = self.watch
        async for chunk in chunks:
            if watch is not None:
                watch.feed(chunk)
            await self._send_chunk(chunk)
        if watch is not None:
            watch.finish()
        await self.send(_END)
        return None

    async def _peek(self, response: UpstreamResponse, chunks: AsyncIterator[bytes]) -> tuple[list[bytes], bytes | None]:
        """Read what decides before anything is passed on. Returns the chunks, and the error in them."""
        held: list[bytes] = []
        if response.status >= 400:
            await buffer_until(held, chunks, _MAX_ERROR_BYTES, lambda chunk: False)
            return held, decoded(b"".join(held), encoding(response.headers))
        wanted = self.body is not None and self.body.streamed
        streamed, coding = stream_form(self.dialect, response.headers, wanted)
        self.record.streamed = streamed
        self.watch = watch = ResponseWatch(self.dialect, streamed=streamed, encoding=coding)

        def enough(chunk: bytes) -> bool:
            watch.feed(chunk)
            return streamed and (watch.begun or watch.error is not None)

        if not streamed or self._may_overflow():
            most = _MAX_ERROR_BYTES if streamed else _MAX_WHOLE_BYTES
            if await buffer_until(held, chunks, most, enough):
                watch.finish()
        return held, None if watch.begun else watch.error

    def _may_overflow(self) -> bool:
        planned = self.planned
        if planned is None or self.services.mode != "normal":
            return False
        return self.window_guessed or planned.plan.tokens >= _MAY_OVERFLOW * self.record.window_tokens

    # --- recovering --------------------------------------------------------------------------------------------------

    async def _classify(self, response: UpstreamResponse, body: bytes) -> Failure:
        tokens = self.planned.plan.tokens if self.planned is not None else None
        window = self.record.window_tokens or None
        # An upstream may repeat any text of the request in its error, so none of that text counts as evidence.
        own = evidence(self.body, self.sent, self.headers, self.target)
        # In a thread: a request of megabytes is searched for each phrase.
        failure = await asyncio.to_thread(classify, response.status, body, estimate=tokens, window=window, request=own)
        self.record.failure = failure.kind
        return failure

    async def _recover(self, failure: Failure) -> tuple[bytes | None, errors.ErrorResponse | None]:
        """The bytes of a smaller request; or None, and the proxy's own error where it has more to say."""
        planned = self.planned
        if planned is None or self.services.mode != "normal":
            return None, None
        unnamed = failure.kind == "other" and failure.status in _INVALID and planned.cached.conversation.mendable
        if not unnamed and failure.kind not in _CHANGED_FOR:
            return None, None
        if self.record.recoveries >= _MAX_RECOVERIES:
            return None, self._still_too_long(failure)
        self.record.recoveries += 1
        try:
            with self.own_faults("refused, and not recovered from", but=(DoesNotFit,)):
                if failure.limit:  # the upstream may have been restarted with another window: ask before learning
                    planned.learned_as = (await self._window(planned.plan.body.model, anew=True)).learned_as
                if await self.services.conversations.recover(planned, failure):
                    return planned.plan.data, None
        except DoesNotFit as error:
            # If it fits by the proxy's own count, only the upstream's figures explain the refusal.
            is_larger = error.used_tokens > error.limit
            return None, self._does_not_fit(error) if is_larger else self._still_too_long(failure)
        return None, None

    def _does_not_fit(self, error: DoesNotFit) -> errors.ErrorResponse:
        window_tokens = self.record.window_tokens if self.planned is None else self.planned.plan.limits.window_tokens
        return errors.does_not_fit(self.dialect, error, self.body, window_tokens)

    def _still_too_long(self, failure: Failure) -> errors.ErrorResponse | None:
        """An error for an overflow that nothing cures; None to pass on the upstream's own."""
        if self.planned is None or self.planned.doubted:
            return None
        tokens, window_tokens = self.planned.plan.tokens, self.record.window_tokens
        return errors.still_too_long(self.dialect, failure, self.body, tokens, window_tokens)

    # --- answering the client ----------------------------------------------------------------------------------------

    async def _start_response(self, status: int, headers: Headers) -> None:
        self.record.status = status
        self._observe()  # before the headers: they report a truncation that the usage shows
        theirs = [(name, value) for name, value in headers if not name.lower().startswith(_OWN_HEADERS)]
        own = report_headers(self.planned, self.record, self.services.mode)
        await self.send({"type": "http.response.start", "status": status, "headers": [*theirs, *own]})

    async def _send_chunk(self, chunk: bytes) -> None:
        self.record.mark_first_byte()
        await self.send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def _refuse(self, response: errors.ErrorResponse, outcome: Outcome = "refused") -> None:
        self.record.outcome = outcome
        await self._start_response(response.status, list(response.headers))
        await self._send_chunk(response.body)
        await self.send(_END)

    async def _report_fault(self, fault: UpstreamFault) -> None:
        """Report that the upstream broke off: in words, or by breaking off too once a part of the response is out."""
        if self.record.status:
            self.record.outcome = "cut"
            self.cut()
            return
        status = 504 if fault.kind == "silence" else 502
        await self._refuse(errors.error_response(self.dialect, status, str(fault)), "cut")

    # --- reporting ---------------------------------------------------------------------------------------------------

    def _observe(self) -> None:
        """Give the upstream's usage report to the conversation, once."""
        planned, watch = self.planned, self.watch
        if planned is None or watch is None or watch.usage is None or self.observed:
            return
        self.observed = True
        why = ""
        with self.own_faults("answered, but not measured"):
            why = planned.observe(watch.usage, watch.stop_reason) if self.services.mode != "dry-run" else ""
        if why:
            self.record.truncated = planned.cached.truncated = why
        if why or planned.doubt:
            self.services.notice(f"Conversation {planned.session}: {why or planned.doubt}")

    def _emit(self) -> None:
        self._observe()
        watch, mode = self.watch, self.services.mode
        served = self.record.served(
            mode,
            model=self.body.model if self.body is not None else "",
            planned=self.planned,
            usage=watch.usage if watch is not None else None,
            summaries=(*self.summaries, *(() if self.summariser is None else self.summariser.usages)),
            summary_model=self.summary_model if self.summariser is None else self.summariser.model,
        )
        succeeded = 200 <= served.status < 300 and (watch is None or watch.error is None)
        if self.planned is not None and succeeded and served.outcome != "refused" and mode != "dry-run":
            self.services.conversations.record_answer(self.planned, served.input_tokens)
        self.services.emit(served)
