"""One request of a client that speaks a dialect: found, folded where it must be, sent, recovered, answered."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from time import perf_counter
from typing import Any, Final

from foldline.conversations.conversation_cache import PlannedRequest
from foldline.conversations.incoming_request import IncomingRequest, PlanMode
from foldline.conversations.request_body import RequestBody
from foldline.doors.proxy.clients import client_of, evidence, name_in
from foldline.doors.proxy.headers import ENCODING, Headers, encoding, header, media
from foldline.doors.proxy.inflating import TooMuch
from foldline.doors.proxy.parts import Parts
from foldline.doors.proxy.reading import request_in
from foldline.doors.proxy.refusals import Refusal, does_not_fit, refused, still_too_long, too_large
from foldline.doors.proxy.report_headers import report
from foldline.doors.proxy.send_early import sent_ahead
from foldline.doors.proxy.summaries import ForRequest
from foldline.doors.proxy.upstream import Answer, UpstreamFault
from foldline.doors.proxy.values import Mode, Outcome, Served, of_hold, of_usage
from foldline.doors.proxy.watching import Watch, decoded, hold_back
from foldline.doors.proxy.windows import Window
from foldline.errors import DoesNotFit, InvalidInput
from foldline.failures import Failure, classify, redact

__all__ = ["Exchange", "Parts"]

Send = Callable[[dict[str, Any]], Awaitable[None]]

_PLAN_MODE: Final[Mapping[Mode, PlanMode]] = {"normal": "fold", "dry-run": "look", "strict": "refuse"}

_OVERFLOWS: Final = {"prompt_overflow", "output_overflow", "bytes_overflow", "request_too_large_for_rate"}
_CHANGED_FOR: Final = {*_OVERFLOWS, "image", "document", "malformed"}  # what another request cures

_INVALID: Final = (400, 422)  # words that nobody knows may be about what is known to be wrong with the request

_MOST_RECOVERIES: Final = 6
"""Each sends fewer tokens than the last, and the ladder has five rungs; the first may only learn the limit."""

_MAY_OVERFLOW: Final = 0.5
"""Share of the window from which on the beginning of a stream is held back until it is more than a beginning."""

_MOST_ERROR_BYTES: Final = 1024 * 1024
_MOST_WHOLE_BYTES: Final = 32 * 1024 * 1024
"""A reply that does not come in pieces is looked at before it is passed on, up to this size."""

_OURS: Final = b"x-foldline-"
_END: Final = {"type": "http.response.body", "body": b"", "more_body": False}


@dataclass(slots=True)
class Exchange:
    """One request on its way. `run` answers it, and tells of it whatever became of it."""

    parts: Parts
    number: int
    dialect: str
    counting: bool
    method: str
    path: str
    target: str
    headers: Headers
    most_bytes: int
    send: Send
    cut: Callable[[], None]
    began: float = field(default_factory=perf_counter)
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    raw: bytes = b""
    body: RequestBody | None = None
    hold: PlannedRequest | None = None
    ahead: IncomingRequest | None = None
    asks: ForRequest | None = None
    window_tokens: int = 0
    told: dict[str, Any] = field(default_factory=dict)
    warning: str = ""
    recoveries: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    watch: Watch | None = None
    client: bytes = b""
    data: bytes = b""
    guessed: bool = False
    """Whether nobody knows the window of the model."""

    async def run(self, raw: bytes) -> None:
        """Answer a request. Raises nothing but a cancellation."""
        self.raw, self.received_bytes = raw, len(raw)
        try:
            data = await self._planned(raw)
            if data is not None:
                await self._served(data)
        except UpstreamFault as fault:
            await self._faulty(fault)
        except asyncio.CancelledError:
            self.told["outcome"] = "left"
            raise
        finally:
            self._tell()

    async def turn_away(self) -> None:
        """Refuse a request that is larger than we take, and tell of it."""
        self.received_bytes = self.most_bytes
        try:
            await self._refuse(too_large(self.dialect, self.most_bytes))
        finally:
            self._tell()

    # --- what to send ------------------------------------------------------------------------------------------------

    async def _planned(self, raw: bytes) -> bytes | None:
        """The bytes to send on; None when the request was refused here."""
        try:
            mends, most = self.parts.mode == "normal", self.most_bytes
            read = await request_in(raw, self.headers, self.dialect, self.path, most_bytes=most, mends=mends)
            self.body, self.raw, self.headers, self.warning = read.body, read.raw, read.headers, read.warning
        except InvalidInput as error:  # the upstream will say what is wrong with it
            self.warning = f"passed on unread: {error}"
            return raw
        except TooMuch:
            await self._refuse(too_large(self.dialect, self.most_bytes))
            return None
        if away := self.body.elsewhere:
            self.warning = f"passed on as it came: the server holds a part of the conversation ({away})"
            return raw
        try:
            with self._ours("passed on as it came", but=(DoesNotFit, InvalidInput)):
                return await self._folded(self.body)
            self.hold, self.told["outcome"] = None, "open"
        except DoesNotFit as error:
            if self.parts.mode != "dry-run":
                await self._refuse(self._too_large(error))
                return None
            self.warning = f"would be refused: {error}"
        except InvalidInput as error:
            self.warning = f"passed on as it came: {error}"
        return self.raw

    async def _folded(self, body: RequestBody) -> bytes:
        parts = self.parts
        self.client = client = client_of(self.headers, self.target.partition("?")[2].encode("latin-1"))
        if self.counting:
            return await parts.conversations.current_body(body, client) if parts.mode == "normal" else body.raw
        window = await self._window(body.model)
        self.window_tokens = window.tokens
        self.guessed, self.warning = window.guessed, "; ".join(filter(None, (self.warning, window.warning)))
        plan_mode = _PLAN_MODE[parts.mode]
        if plan_mode == "fold" and parts.summaries is not None:
            of = body.dialect, body.model, self.headers, asyncio.get_running_loop()
            self.asks = parts.summaries.for_request(*of, client=client, target=self.target)
        asked = parts.conversations.incoming(
            body,
            None if self.guessed else window.tokens,
            learned_as=window.learned_as,
            name=name_in(self.headers, client),
            mode=plan_mode,
            summarize=self.asks,
            client=client,
        )
        if parts.conversations.passes_unchanged(asked):
            self.ahead = asked
            return body.raw
        self.hold = await parts.conversations.plan(asked)
        return body.raw if parts.mode == "dry-run" else self.hold.plan.data

    @contextmanager
    def _ours(self, so: str, *, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
        """Work of ours: a fault in it is logged, and costs the client neither its request nor the answer to it.

        What is raised `but` for a reason is none.
        """
        try:
            yield
        except but:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the request goes on without us
            self.told["faulty"], self.warning = True, f"{so}: a fault of the proxy"
            self.parts.notice(f"A fault of ours; request {self.number} is {so}: {redact(str(error))[:500]}")
            self.parts.notice("".join(traceback.format_tb(error.__traceback__)) + type(error).__name__)

    # --- sending it --------------------------------------------------------------------------------------------------

    async def _served(self, data: bytes) -> None:
        given = [(name, value) for name, value in self.headers if not name.startswith(_OURS)]
        self.told["own_seconds"] = perf_counter() - self.began
        while True:
            as_it_came = data is self.raw or (self.body is not None and data is self.body.raw)
            data = self.raw if as_it_came else data  # coded as it came
            headers = given if as_it_came else [(name, value) for name, value in given if name != ENCODING]
            self.data, self.sent_bytes = data, len(data)
            answer = await self._sent(headers, data)
            try:
                again = await self._answered(answer)
            finally:
                await answer.close()
            if again is None:
                return
            data = again

    async def _sent(self, headers: Headers, data: bytes) -> Answer:
        """The answer to a request. One that was sure to pass is taken up here, while the upstream is at work on it."""
        send = partial(self.parts.upstream.send, self.method, self.target, headers, data, readable=True)
        if self.ahead is None:
            return await send()
        ahead, self.ahead = self.ahead, None
        return await sent_ahead(lambda sent: send(on_sent=sent), partial(self._take_up, ahead))

    async def _take_up(self, ahead: IncomingRequest) -> None:
        try:
            with self._ours("passed on as it came", but=(DoesNotFit, InvalidInput)):
                self.hold = await self.parts.conversations.plan(ahead, sent=True)
                return
            self.told["outcome"] = "open"
        except (DoesNotFit, InvalidInput) as error:
            self.warning = f"passed on as it came: {error}"

    async def _answered(self, answer: Answer) -> bytes | None:
        """Pass an answer on; or the bytes to send in its place, when it was a refusal that a smaller request cures."""
        chunks = answer.chunks()
        held, error = await self._beginning(answer, chunks)
        if error is not None:
            again, refusal = await self._recovered(await self._failure(answer, error))
            if again is not None:
                return again
            if refusal is not None:
                await self._refuse(refusal)
                return None
        await self._begin(answer.status, answer.headers)
        for chunk in held:
            await self._piece(chunk)
        watch = self.watch
        async for chunk in chunks:
            if watch is not None:
                watch.feed(chunk)
            await self._piece(chunk)
        if watch is not None:
            watch.finish()
        await self.send(_END)
        return None

    async def _beginning(self, answer: Answer, chunks: AsyncIterator[bytes]) -> tuple[list[bytes], bytes | None]:
        """What has to be seen before anything is passed on, and the error that stands in it."""
        held: list[bytes] = []
        if answer.status >= 400:
            await hold_back(held, chunks, _MOST_ERROR_BYTES, lambda chunk: False)
            return held, decoded(b"".join(held), encoding(answer.headers))
        kind = media(answer.headers)
        asked = self.body is not None and self.body.streamed
        self.told["streamed"] = streamed = kind == "text/event-stream" or (asked and kind != "application/json")
        self.watch = watch = Watch(self.dialect, streamed=streamed, encoding=encoding(answer.headers))

        def enough(chunk: bytes) -> bool:
            watch.feed(chunk)
            return streamed and (watch.begun or watch.error is not None)

        if not streamed or self._may_overflow():
            most = _MOST_ERROR_BYTES if streamed else _MOST_WHOLE_BYTES
            if await hold_back(held, chunks, most, enough):
                watch.finish()
        return held, None if watch.begun else watch.error

    def _may_overflow(self) -> bool:
        hold = self.hold
        if hold is None or self.parts.mode != "normal":
            return False
        return self.guessed or hold.plan.tokens >= _MAY_OVERFLOW * self.window_tokens

    async def _failure(self, answer: Answer, body: bytes) -> Failure:
        tokens = self.hold.plan.tokens if self.hold is not None else None
        window = self.window_tokens or None
        # What a client wrote is no evidence, wherever it stands: an upstream may repeat any of it in its error.
        said = evidence(self.body, self.data, self.headers, self.target)
        failure = await asyncio.to_thread(classify, answer.status, body, estimate=tokens, window=window, request=said)
        self.told["failure"] = failure.kind
        return failure

    async def _recovered(self, failure: Failure) -> tuple[bytes | None, Refusal | None]:
        """The bytes of a smaller request; or None, and our own refusal where there is something better to say."""
        hold = self.hold
        if hold is None or self.parts.mode != "normal":
            return None, None
        unnamed = failure.kind == "other" and failure.status in _INVALID and hold.cached.conversation.mendable
        if not unnamed and failure.kind not in _CHANGED_FOR:
            return None, None
        if self.recoveries >= _MOST_RECOVERIES:
            return None, self._end(failure)
        self.recoveries += 1
        try:
            with self._ours("refused, and not recovered from", but=(DoesNotFit,)):
                if failure.limit:  # learned for what the upstream tells now: it may have been started anew
                    hold.learned_as = (await self._window(hold.plan.body.model, anew=True)).learned_as
                if await self.parts.conversations.recover(hold, failure):
                    return hold.plan.data, None
        except DoesNotFit as error:
            # By our count it may fit: then the upstream's figures count, not ours, which would contradict each other.
            return None, self._too_large(error) if error.used_tokens > error.limit else self._end(failure)
        return None, None

    async def _window(self, model: str, *, anew: bool = False) -> Window:
        return await self.parts.windows.of(self.dialect, model, self.headers, client=self.client, anew=anew)

    # --- answering ---------------------------------------------------------------------------------------------------

    async def _begin(self, status: int, headers: Headers) -> None:
        self.told["status"] = status
        self._observe()
        own = [(name, value) for name, value in headers if not name.lower().startswith(_OURS)]
        said = report(self.hold, self.window_tokens, self.parts.mode, self.recoveries, self._warning())
        await self.send({"type": "http.response.start", "status": status, "headers": [*own, *said]})

    async def _piece(self, chunk: bytes) -> None:
        if "first_byte_seconds" not in self.told:
            self.told["first_byte_seconds"] = perf_counter() - self.began
        await self.send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def _said(self, refusal: Refusal) -> None:
        await self._begin(refusal.status, list(refusal.headers))
        await self._piece(refusal.body)
        await self.send(_END)

    async def _refuse(self, refusal: Refusal) -> None:
        self.told["outcome"] = "refused"
        await self._said(refusal)

    async def _faulty(self, fault: UpstreamFault) -> None:
        """The upstream broke off: said in words, or by breaking off too where a part of the answer has gone out."""
        self.told["outcome"] = "cut"
        if "status" in self.told:
            self.cut()
            return
        await self._said(refused(self.dialect, 504 if fault.kind == "silence" else 502, str(fault)))

    def _too_large(self, error: DoesNotFit) -> Refusal:
        window_tokens = self.hold.plan.limits.window_tokens if self.hold is not None else self.window_tokens
        return does_not_fit(self.dialect, error, self.body, window_tokens)

    def _end(self, failure: Failure) -> Refusal | None:
        """Our own words for an overflow that nothing cures; None where the upstream's error is to be passed on."""
        if self.hold is None or self.hold.doubted:
            return None
        return still_too_long(self.dialect, failure, self.body, self.hold.plan.tokens, self.window_tokens)

    def _warning(self) -> str:
        return self.warning or (self.hold.warning if self.hold is not None else "")

    # --- telling -----------------------------------------------------------------------------------------------------

    def _observe(self) -> None:
        """Take what the upstream reported, once."""
        hold, watch = self.hold, self.watch
        if hold is None or watch is None or watch.usage is None or "observed" in self.told:
            return
        self.told["observed"] = True
        why = ""
        with self._ours("answered, but not measured"):
            why = hold.observe(watch.usage, watch.stop_reason) if self.parts.mode != "dry-run" else ""
        if why:
            self.told["truncated"] = why
            hold.cached.truncated = why
        if why or hold.doubt:
            self.parts.notice(f"Conversation {hold.session}: {why or hold.doubt}")

    def _tell(self) -> None:
        self._observe()
        told, hold = self.told, self.hold
        told.pop("observed", None)
        changed = hold is not None and hold.plan.changed and self.parts.mode == "normal"
        outcome: Outcome = "folded" if changed else "passed"
        served = Served(
            number=self.number,
            at=self.at,
            method=self.method,
            path=self.path,
            dialect=self.dialect,
            model=self.body.model if self.body is not None else "",
            mode=self.parts.mode,
            window_tokens=self.window_tokens,
            summaries=tuple(self.asks.spent) if self.asks is not None else (),
            summary_model=self.asks.model if self.asks is not None else "",
            recoveries=self.recoveries,
            warning=self._warning(),
            seconds=perf_counter() - self.began,
            sent_bytes=self.sent_bytes,
            received_bytes=self.received_bytes,
            traceparent=header(self.headers, b"traceparent"),
        )
        reported = of_usage(self.watch.usage if self.watch is not None else None)
        is_answered = 200 <= told.get("status", 0) < 300 and (self.watch is None or self.watch.error is None)
        if hold is not None and is_answered and outcome != "refused" and self.parts.mode != "dry-run":
            self.parts.conversations.record_answer(hold, reported.get("input_tokens"))
        self.parts.tell(replace(served, **of_hold(hold), **reported, **{"outcome": outcome, **told}))
