"""Clients that resend everything, in three dialects, and the rules for every request that is sent on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

from foldline.codecs import codec
from foldline.codecs.convert import convert_all
from foldline.conversations.conversation import Conversation
from foldline.conversations.conversation_cache import PlannedRequest
from foldline.conversations.incoming_request import with_valid_markers, without_markers
from foldline.conversations.request_body import FORMS, RequestBody, read_body
from foldline.conversations.request_plan import ConversationSettings, RequestPlan
from foldline.conversations.service import Conversations
from foldline.engine.one_shot import check, count
from foldline.engine.presets import policy
from foldline.errors import InvalidInput
from foldline.recorded.files import read_session
from foldline.view.arrangement import NO_RESULT

__all__ = [
    "EXAMPLES",
    "Client",
    "Wire",
    "array",
    "block_text",
    "body_of",
    "conversations",
    "example",
    "goes_on_from",
    "judged",
    "plan_request",
    "run",
    "sent_messages",
    "session_of",
    "steps",
    "turns",
    "under",
]

Wire = dict[str, Any]

EXAMPLES: Final = sorted((Path(__file__).parents[2] / "examples" / "sessions").glob("*.json.gz"))

WORDS: Final = "the build of module has failed since parse_config was moved to settings.py and the cache kept it "


def under(**changes: Any) -> ConversationSettings:
    """The settings of the conversations of a proxy."""
    fields: dict[str, Any] = {"policy": replace(policy("balanced"), guard=()), "learned": {}}
    return ConversationSettings(**fields | changes)


def conversations(max_bytes: int = 10**9, under_: ConversationSettings | None = None, **more: Any) -> Conversations:
    """All conversations of a proxy."""
    return Conversations(under_ or under(), max_bytes=max_bytes, **more)


def run(work: Callable[[Conversations], Awaitable[None]], **options: Any) -> None:
    """Run `work` with the conversations of a proxy, and close them."""

    async def main() -> None:
        service = conversations(**options)
        try:
            await work(service)
        finally:
            await service.aclose()

    asyncio.run(main())


async def plan_request(
    service: Conversations, body: RequestBody, window_tokens: int | None, **options: Any
) -> PlannedRequest:
    """Plan a request in one step."""
    return await service.plan(service.incoming(body, window_tokens, **options))


def session_of(service: Conversations, planned: PlannedRequest) -> str:
    """The id of the session in the store; "" if there is none."""
    return "" if service._store is None else service._store.store.session_of(planned.cached.conversation)


def body_of(
    dialect: str,
    wires: Sequence[Mapping[str, Any]],
    *,
    write: Callable[[Any], str] = json.dumps,
    **fields: Any,
) -> RequestBody:
    """A request as a client would send it; `write` is its way to write JSON."""
    form = FORMS[dialect]
    sent = {"model": "some-model", **fields, form.messages: list(wires), "x-unknown": {"kept": [1, None]}}
    body = read_body(form, write(sent).encode())
    return with_valid_markers(body) or body  # as the proxy reads it


@cache
def example(path: Path, dialect: str) -> tuple[str, tuple[Wire, ...]]:
    """(system text, messages) of a recorded session in a dialect; "" where the text stands among the messages."""
    read = read_session(path)
    target = codec(dialect)
    messages = convert_all([codec(read.dialect).read(wire) for wire in read.messages], target).messages
    wires = [json.loads(json.dumps(target.write(message))) for message in messages]
    first = wires[0]
    if dialect == "anthropic" and first["role"] == "system":
        return str(first["content"]), tuple(wires[1:])
    return "", tuple(wires)


def steps(wires: Sequence[Mapping[str, Any]]) -> list[int]:
    """The number of messages in each request of a history: one is sent whenever the model has to answer."""
    own = [wire.get("role") in ("user", "tool", "system") or "output" in wire for wire in wires]
    return [at for at in range(1, len(wires) + 1) if own[at - 1] and (at == len(wires) or not own[at])]


def turns(dialect: str, count_: int, *, mark: str = "", words: int = 60) -> list[Wire]:
    """A conversation of some turns, each of the user's words, a call, its result and an answer."""
    out: list[Wire] = []
    for number in range(count_):
        text = f"[{mark}{number}] " + WORDS * max(1, words // 18)
        call, arguments = f"call_{mark}{number}", {"path": f"src/{mark}{number}.py"}
        out += _turn(dialect, number, text, call, arguments)
    return out


def _turn(dialect: str, number: int, text: str, call: str, arguments: Wire) -> list[Wire]:
    asked, result, answer = f"Turn {text}", f"Result {text}", f"Answer {text}"
    if dialect == "anthropic":
        use = {"type": "tool_use", "id": call, "name": "look", "input": arguments}
        return [
            {"role": "user", "content": asked},
            {"role": "assistant", "content": [{"type": "text", "text": "I look."}, use]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": result}]},
            {"role": "assistant", "content": [{"type": "text", "text": answer}]},
        ]
    if dialect == "gemini":
        use = {"functionCall": {"id": call, "name": "look", "args": arguments}, "thoughtSignature": "c2ln"}
        response = {"id": call, "name": "look", "response": {"output": result}}
        return [
            {"role": "user", "parts": [{"text": asked}]},
            {"role": "model", "parts": [{"text": "I look."}, use]},
            {"role": "user", "parts": [{"functionResponse": response}]},
            {"role": "model", "parts": [{"text": answer}]},
        ]
    if dialect == "openai-responses":
        called = {"type": "function_call", "call_id": call, "name": "look", "arguments": json.dumps(arguments)}
        block_text = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": answer}]}
        return [
            {"role": "user", "content": [{"type": "input_text", "text": asked}]},
            called,
            {"type": "function_call_output", "call_id": call, "output": result},
            block_text,
        ]
    function = {"name": "look", "arguments": json.dumps(arguments)}
    return [
        {"role": "user", "content": asked},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call, "content": result},
        {"role": "assistant", "content": answer},
    ]


@lru_cache(maxsize=8)
def _read(dialect: str, data: bytes) -> RequestBody:
    """A request, parsed once and cached."""
    return read_body(FORMS[dialect], data)


def array(data: bytes, dialect: str) -> str:
    """The text of the list of messages in a request."""
    body = _read(dialect, data)
    start, stop = body.spans[body.form.messages]
    return body.text[start:stop]


def sent_messages(data: bytes, dialect: str) -> list[Wire]:
    """The messages in a request."""
    return json.loads(array(data, dialect))  # type: ignore[no-any-return]


def judged(hold: PlannedRequest, *, legal: bool = True) -> None:
    """Check the rules for every request: valid, small enough, and the client's own bytes where not folded."""
    plan = hold.plan
    body, dialect = plan.body, plan.body.dialect
    if not plan.changed:
        assert plan.data == body.raw, "nothing was folded, and it is not as it came"
        assert not plan.folds
    else:
        assert plan.data != body.raw
    sent = _read(dialect, plan.data)
    beside: dict[str, Any] = {"system": sent.system, "tools": sent.tools}
    messages = list(sent.messages)
    # A call that waits while the user speaks is passed on as it came, until the upstream refuses it.
    if plan.folds or (legal and not hold.cached.conversation.mendable):
        assert check(messages, dialect=dialect, **beside) == []
        tokens = count(messages, dialect=dialect, **beside)
        assert tokens <= plan.limits.input_tokens
        assert tokens + (sent.cap_tokens or 0) <= plan.limits.window_tokens
    same = {name: value for name, value in sent.fields.items() if name not in _may_change(body)}
    assert same == {name: value for name, value in body.fields.items() if name not in _may_change(body)}
    _texts_are_the_clients(hold.cached.conversation, plan, sent)


def _may_change(body: RequestBody) -> set[str]:
    return {body.form.messages, body.form.system or "", "thinking", *body.form.caps, body.form.caps_in}


def _texts_are_the_clients(conversation: Conversation, plan: RequestPlan, sent: RequestBody) -> None:
    """Check that messages without a fold are the client's own text."""
    body = plan.body
    if not plan.folds:
        # What every server of the dialect refuses is repaired before it is sent (`mended_at_once`).
        assert conversation.mended or array(plan.data, body.dialect) == array(body.raw, body.dialect)
        return
    if conversation.context.view.repairs:
        return
    there = [sent.item(at) for at in range(len(sent.item_spans))]
    at = 0
    for seq, entry in sorted(conversation.context.view.entries.items()):
        if entry.faults or _covered(conversation, seq):
            continue
        own = body.item(seq)
        if own in there[at:]:
            at = there.index(own, at) + 1
        else:
            assert _but_for_marker(own, there[-1]), f"message {seq} was written anew"


def _but_for_marker(own: str, sent: str) -> bool:
    return block_text([without_markers(json.loads(sent))]) == block_text([without_markers(json.loads(own))])


def block_text(wires: Sequence[Any]) -> str:
    """Messages as text that is the same whether a text is a block or not."""
    blocks = [
        {**wire, "content": [{"type": "text", "text": wire["content"]}]}
        if isinstance(wire.get("content"), str)
        else wire
        for wire in wires
    ]
    return json.dumps(blocks, sort_keys=True)


def _covered(conversation: Conversation, seq: int) -> bool:
    try:
        return bool(conversation.context.explain(seq))
    except InvalidInput:
        return True


def goes_on_from(before: PlannedRequest | None, after: PlannedRequest) -> None:
    """Check that the bytes before the newest turn are those of the previous request, unless there is a new fold."""
    if before is None or after.plan.new_folds or before.plan.folds != after.plan.folds:
        return
    dialect = after.plan.body.dialect
    old, new = array(before.plan.data, dialect), array(after.plan.data, dialect)
    if NO_RESULT in old and old.count(NO_RESULT) > new.count(NO_RESULT):
        return  # a result that came late takes the place of ours
    assert new.startswith(old.rstrip("]\n ")), "the prefix has changed"


@dataclass
class Client:
    """A client that resends everything: its history, and the requests that were sent on for it."""

    dialect: str
    all: Conversations
    window_tokens: int
    fields: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    write: Callable[[Any], str] = json.dumps
    holds: list[PlannedRequest] = field(default_factory=list)
    legal: bool = True

    async def send(self, wires: Sequence[Mapping[str, Any]], **fields: Any) -> PlannedRequest:
        """Send a history, and check the request that results."""
        body = body_of(self.dialect, wires, write=self.write, **{**self.fields, **fields})
        hold = await plan_request(self.all, body, self.window_tokens, name=self.name)
        judged(hold, legal=self.legal)
        self.holds.append(hold)
        return hold

    async def grow(self, wires: Sequence[Mapping[str, Any]], steps: Sequence[int]) -> list[PlannedRequest]:
        """Send each beginning of a history; between folds each request is the previous one and the new messages."""
        out: list[PlannedRequest] = []
        for stop in steps:
            hold = await self.send(wires[:stop])
            goes_on_from(out[-1] if out else None, hold)
            out.append(hold)
        return out
