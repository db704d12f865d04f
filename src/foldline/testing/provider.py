"""A model server for tests: it speaks every dialect, enforces its rules, and answers from a script."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from foldline.codecs.dialect import DIALECTS, ROWS, dialect_named
from foldline.testing.asgi import (
    EventGate,
    Exchange,
    Receive,
    Scope,
    Send,
    await_gate,
    lifespan,
    read_body,
    send_body,
    send_events,
)
from foldline.testing.forms.base import EPOCH, Counts, FakeTurn, Form, form_of, output_counts, refuse_status
from foldline.testing.judge import AcceptedRequest, Requirements, judge, key_fault, parsed
from foldline.testing.script import Body, FakeReply, FakeRequest, Gate, Refusal, Refused, Scripts, Steps
from foldline.testing.token_counts import Cached, PromptCache, count_body

__all__ = ["FakeProvider"]

_FORMS: Final[Mapping[str, Form]] = {dialect: form_of(dialect) for dialect in DIALECTS}
_CHAT, _ANTHROPIC = _FORMS["openai-chat"], _FORMS["anthropic"]  # their lists of models are served too
_MODELS: Final = "/v1/models"
_PROPS: Final = "/props"
_NAMELESS: Final = "fake-model"  # the model of a fake without `models`, which accepts every name
_RELEASED: Final = "2026-01-01T00:00:00Z"
# The page of nginx: clients must cope with an error that is no JSON.
_BAD_GATEWAY: Final = "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"


class FakeProvider:
    """An ASGI application that answers as OpenAI, Anthropic, Google and llama.cpp do, and refuses what they refuse.

    POST /v1/chat/completions, /v1/responses, /v1/messages, /v1/messages/count_tokens,
    /v1beta/models/{model}:generateContent, :streamGenerateContent and :countTokens; GET /v1/models, /props. `script`
    is a reply (a FakeReply or its text) for every request, a function of the request's body, or an iterable of these,
    used one by one; with `repeat` the last one answers from then on, else a further request is refused (400). A single
    text or reply answers everything; so does no script, with "ok".

    A request must keep the rules of `foldline.check` and fit `window_tokens`, as counted by `count` (body -> tokens),
    and respect `models`, `api_key`, `max_output_tokens` and `max_request_bytes` if they are set. `usage=False` reports
    no usage. `max_images` replaces the number that the provider accepts. With `alternates` the chat template requires
    one system message and then alternating roles, as those of Mistral and Gemma do. `tells_window=False` hides the
    window, as hosted servers do. Cached tokens: see `PromptCache`.

    `requests` are the last `keep` accepted requests, `refused` the last `keep` refused ones (those of the script are in
    `faults`, counted by fault). The counts cover everything: `served` whole replies, `refusals` by kind, `disconnected`
    clients, `counted` calls of count_tokens; `input_tokens`, `cached_tokens`, `written_tokens` and `output_tokens` are
    sums over accepted requests, `largest_tokens` is the largest request. Memory is bounded for any number of requests.
    Cost of a request: O(its size).

    A real server (uvicorn) streams piece by piece. `httpx.ASGITransport` delivers a reply once it is whole, and raises
    a broken connection ("no_answer", "broken") as ConnectionResetError.
    """

    def __init__(
        self,
        script: Scripts = None,
        *,
        window_tokens: int = 128_000,
        count: Callable[[Body], int] = count_body,
        models: Collection[str] | None = None,
        api_key: str | None = None,
        max_output_tokens: int | None = None,
        max_request_bytes: int | None = None,
        max_images: int | None = None,
        alternates: bool = False,
        usage: bool = True,
        tells_window: bool = True,
        repeat: bool = False,
        keep: int = 20,
    ) -> None:
        self._required = Requirements(window_tokens, count, models, api_key, max_output_tokens, max_images, alternates)
        self._max_request_bytes = max_request_bytes
        self._usage, self._tells_window = usage, tells_window
        self._steps = Steps(script, repeat=repeat)
        self._cache = PromptCache()
        self._number = 0
        self.requests: deque[FakeRequest] = deque(maxlen=keep)
        self.refused: deque[Refused] = deque(maxlen=keep)
        self.refusals: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.served = self.disconnected = self.counted = 0
        self.input_tokens = self.cached_tokens = self.written_tokens = self.output_tokens = self.largest_tokens = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, by ASGI 3."""
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"FakeProvider speaks HTTP, not {scope['type']}")
        # Numbers instead of clocks and chance: two runs of a test have the same ids and the same bytes.
        self._number += 1
        at = Exchange.of(scope, self._number, receive, send)
        try:
            data = await read_body(receive, self._max_request_bytes)
        except ConnectionResetError:
            self.disconnected += 1
            return
        route = _route(at.path)
        if at.path in {_MODELS, _PROPS} or (at.path.startswith(f"{_MODELS}/") and route is None):
            await self._describe(at)
        elif route is None or at.method != "POST":
            await self._no_route(at, 404 if route is None else 405)
        else:
            await self._accept(at, *route, data)

    # --- accepting a request ------------------------------------------------------------------------------------

    async def _accept(self, at: Exchange, form: Form, counting: bool, data: bytes | None) -> None:
        if data is None:
            await self._refuse(at, form, form.refuse_bytes(self._max_request_bytes or 0))
            return
        body = key_fault(form, at.headers, self._required) or parsed(form, data)
        if isinstance(body, Refusal):
            await self._refuse(at, form, body)
            return
        accepted = judge(form, body, self._required, path=at.path, counting=counting)
        if isinstance(accepted, Refusal):
            await self._refuse(at, form, accepted)
        elif counting:
            self.counted += 1
            await send_body(at, 200, {form.count_field: accepted.tokens})
        else:
            await self._reply(at, form, body, accepted)

    async def _refuse(self, at: Exchange, form: Form, refusal: Refusal) -> None:
        self.refusals[refusal.kind] += 1
        self.refused.append(Refused(refusal.status, refusal.kind, refusal.message))
        await send_body(at, refusal.status, form.error(refusal, at.number))

    async def _no_route(self, at: Exchange, status: int) -> None:
        kind, code = ("route", None) if status == 404 else ("method", "method_not_supported")
        message = (
            f"Invalid URL ({at.method} {at.path})"
            if status == 404
            else f"Invalid method for URL ({at.method} {at.path})"
        )
        # Both houses share /v1, and a client of Anthropic reads only errors in its own form.
        form: Form = _ANTHROPIC if at.path.startswith("/v1/messages") else _CHAT
        await self._refuse(at, form, Refusal(status, kind, message, code))

    async def _describe(self, at: Exchange) -> None:
        """Answer GET /v1/models, one of them, or /props."""
        anthropic = "anthropic-version" in at.headers
        form: Form = _ANTHROPIC if anthropic else _CHAT
        window = self._required.window_tokens if self._tells_window else None
        names = (_NAMELESS,) if self._required.models is None else tuple(self._required.models)
        # Hosted servers have no /props; a client that probes for llama.cpp must go on to the next.
        if at.method != "GET" or (at.path == _PROPS and window is None):
            await self._no_route(at, 405 if at.method != "GET" else 404)
            return
        if at.path == _PROPS and window is not None:
            await send_body(at, 200, _props(window, names[0] if names else _NAMELESS))
            return
        refusal = key_fault(form, at.headers, self._required)
        name = at.path.removeprefix(_MODELS).removeprefix("/")
        if refusal is None and name and self._required.models is not None and name not in names:
            refusal = form.refuse_model(name)
        if refusal is not None:
            await self._refuse(at, form, refusal)
        elif name:
            await send_body(at, 200, _model_card(name, window, anthropic=anthropic))
        else:
            await send_body(at, 200, _model_list(names, window, anthropic=anthropic))

    # --- answering it -------------------------------------------------------------------------------------------

    async def _reply(self, at: Exchange, form: Form, body: Body, accepted: AcceptedRequest) -> None:
        reply = self._steps.reply(body)
        # A visible refusal instead of an exception: behind HTTP a test would see a 500 and no reason.
        if reply is None:
            message = (
                f"FakeProvider was asked {self._steps.taken + 1} times, its script has {self._steps.taken} replies"
            )
            await self._refuse(at, form, Refusal(400, "script-exhausted", message))
            return
        if reply.status is not None:
            # Recorded, since the request was valid, but it reads and writes no cache: no model has seen it.
            self._record(at, form, body, accepted.tokens, Cached())
            await self._scripted_refusal(at, form, reply, reply.status)
            return
        # Only Anthropic caches by markers; all others find common beginnings by themselves.
        by = self._cache.by_breakpoint if dialect_named(form.dialect).cache_markers else self._cache.by_prefix
        cached = by(body, accepted.tokens)
        self._record(at, form, body, accepted.tokens, cached)
        turn = self._turn(at, reply, body, accepted, cached)
        if reply.fails is not None:
            self.faults[reply.fails] += 1
        # An exception ends the connection: ASGI has no message for it.
        if reply.fails == "no_answer":
            raise ConnectionResetError("the script ends the connection without an answer")
        stayed = await (self._streamed if accepted.prompt.streamed else self._whole)(at, form, turn)
        if not stayed:
            self.disconnected += 1
            return
        if reply.fails == "broken":
            raise ConnectionResetError("the script breaks the connection")
        # Whole replies alone: a test that counts them counts what a client can use.
        self.served += reply.fails is None

    def _record(self, at: Exchange, form: Form, body: Body, tokens: int, cached: Cached) -> None:
        self.input_tokens += tokens
        self.cached_tokens += cached.read_tokens
        self.written_tokens += cached.written_tokens
        self.largest_tokens = max(self.largest_tokens, tokens)
        self.requests.append(
            FakeRequest(
                dialect=form.dialect,
                path=at.path,
                headers=at.headers,
                body=body,
                input_tokens=tokens,
                cached_tokens=cached.read_tokens,
                written_tokens=cached.written_tokens,
            )
        )

    def _turn(self, at: Exchange, reply: FakeReply, body: Body, accepted: AcceptedRequest, cached: Cached) -> FakeTurn:
        output, reasoning = output_counts(reply)
        output = output if reply.output_tokens is None else reply.output_tokens
        self.output_tokens += output
        counts = Counts(accepted.tokens, cached.read_tokens, cached.written_tokens, output, reasoning)
        if reply.input_tokens is not None:  # a server that cut the prompt reports no cache
            counts = Counts(reply.input_tokens, 0, 0, output, reasoning)
        return FakeTurn(
            reply=reply,
            body=body,
            model=accepted.prompt.model,
            number=at.number,
            counts=counts if self._usage else None,
        )

    async def _scripted_refusal(self, at: Exchange, form: Form, reply: FakeReply, status: int) -> None:
        self.faults[str(status)] += 1
        refusal = refuse_status(form, reply, status)
        seconds = reply.retry_after_seconds
        headers = {} if seconds is None else {"retry-after": f"{seconds:g}"}
        if status == 502 and reply.message is None:  # a gateway in front answers with a page of its own
            await send_body(at, status, _BAD_GATEWAY, headers)
            return
        await send_body(at, status, form.error(refusal, at.number), headers)

    def _inside(self, form: Form, reply: FakeReply) -> Refusal:
        """Return the error inside a reply with status 200."""
        if reply.fails == "overflow":
            window = self._required.window_tokens
            return form.refuse_prompt(window + 1, window)
        return refuse_status(form, reply, form.fault_status)

    async def _whole(self, at: Exchange, form: Form, turn: FakeTurn) -> bool:
        reply = turn.reply
        gate = reply.gate
        if gate is not None and not await await_gate(at, _held(gate, -1)):
            return False
        if reply.fails in {"error", "overflow"}:
            await send_body(at, 200, form.error(self._inside(form, reply), at.number))
        else:
            cut = reply.fails in {"broken", "unfinished"}
            await send_body(at, 200, form.whole(turn), cut=cut, ends=reply.fails != "broken")
        return True

    async def _streamed(self, at: Exchange, form: Form, turn: FakeTurn) -> bool:
        reply, stream = turn.reply, form.stream(turn)
        events = [*stream.opening, *stream.content, *stream.closing]
        if reply.fails is not None:
            # By default all content has arrived, the case that clients most easily take for a whole reply.
            begun = len(stream.opening) + len(stream.content)
            # Cut before the error is added, so that it comes last, as from a real server.
            events = events[: begun if reply.after_events is None else reply.after_events]
        if reply.fails in {"error", "overflow"}:
            events.append(form.error_event(self._inside(form, reply), turn))
        frames = (form.frame(event, number) for number, event in enumerate(events))
        held = None if reply.gate is None else _held(reply.gate, stream.first_piece)
        return await send_events(at, frames, gate_of=held, ends=reply.fails != "broken")


def _route(path: str) -> tuple[Form, bool] | None:
    """Return the form that serves a path and whether the path only counts; None for an unknown path."""
    for row in ROWS.values():
        for known in row.paths:
            found = known.ending.search(path)
            prefix = path[: found.start()] if found else ""
            # Clients put the version of their base URL in front, which is /v1 with most of them; Vertex AI the project.
            if prefix in ("/v1", f"/{row.version}") or prefix.startswith("/v1/projects/"):
                return _FORMS[row.name], known.counting
    return None


def _model_card(name: str, window_tokens: int | None, *, anthropic: bool) -> Mapping[str, Any]:
    """Return one model; its window is `max_model_len` (vLLM) or `max_input_tokens` (Anthropic), if it is named."""
    if anthropic:
        card: dict[str, Any] = {"type": "model", "id": name, "display_name": name, "created_at": _RELEASED}
        return card if window_tokens is None else card | {"max_input_tokens": window_tokens}
    card = {"id": name, "object": "model", "created": EPOCH, "owned_by": "foldline"}
    return card if window_tokens is None else card | {"max_model_len": window_tokens}


def _model_list(names: Collection[str], window_tokens: int | None, *, anthropic: bool) -> Mapping[str, Any]:
    """Return all models in the form of OpenAI or of Anthropic."""
    cards = [_model_card(name, window_tokens, anthropic=anthropic) for name in names]
    if not anthropic:
        return {"object": "list", "data": cards}
    ends = {"first_id": cards[0]["id"], "last_id": cards[-1]["id"]} if cards else {"first_id": None, "last_id": None}
    return {"data": cards, "has_more": False, **ends}


def _props(window_tokens: int, model: str) -> Mapping[str, Any]:
    """Return what clients read of the /props of llama.cpp's server."""
    return {
        "default_generation_settings": {"id": 0, "n_ctx": window_tokens, "params": {}},
        "total_slots": 1,
        "model_alias": model,
        "model_path": f"{model}.gguf",
    }


def _held(gate: Gate, first_piece: int) -> EventGate:
    """Return the awaitable of each event; an asyncio.Event delays those after number `first_piece`."""
    if isinstance(gate, asyncio.Event):
        return lambda number: asyncio.sleep(0) if number <= first_piece else gate.wait()
    return gate
