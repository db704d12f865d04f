"""Compaction for Anthropic Messages: `context_management`, `compaction`, and blocks that were made here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from foldline.codecs import codec
from foldline.conversations.compaction.clearing import cleared
from foldline.conversations.compaction.edits import CompactAt, Edits, OnDemand, read_edits, read_on_demand
from foldline.conversations.compaction.expansion import Expanded
from foldline.conversations.compaction.messages_blocks import block_of, expand_blocks
from foldline.conversations.compaction.refusals import CompactionRefused
from foldline.doors.proxy.compaction.answer_edits import CountEdit, MessageEdit
from foldline.doors.proxy.compaction.asked import Asked
from foldline.doors.proxy.compaction.whole_answers import message_answer
from foldline.messages import Json, Wire

__all__ = ["serve_messages"]

_BY_DIGEST: Final = "the summary is a digest: {}"


async def serve_messages(asked: Asked) -> None:
    """Serve a request of Messages. Raises CompactionRefused, and InvalidInput for messages that cannot be read."""
    body, counting = asked.body, asked.exchange.counting
    edits = read_edits(body.fields)
    on_demand = None if counting else read_on_demand(body.fields)
    expanded = expand_blocks(body.messages, asked.parts.key, asked.client, native=False)
    if expanded.signed and edits.compact is not None:
        reason = "`compact_20260112` cannot run on a request that carries a signed `compaction` block"
        raise CompactionRefused(reason, place="context_management.edits")
    if on_demand is not None:
        await _summarised(asked, expanded, on_demand)
        return
    tokens = await asked.counted(expanded.messages) if _counts(asked, edits) else 0
    shown, applied = cleared(expanded.messages, edits, tokens, asked.tokens_of, most_tokens=asked.most_tokens)
    saved = sum(int(str(edit["cleared_input_tokens"])) for edit in applied)
    if counting:
        before = saved + sum(map(asked.tokens_of, expanded.dropped))
        await asked.go_on(shown, CountEdit(before, asked.counted_tokens - saved) if edits.asked else None)
        return
    # Thinking that goes with its whole message shifts what follows.
    at = {id(wire): place for place, wire in enumerate(shown)}
    kept = frozenset(at[id(wire)] for n, wire in enumerate(expanded.messages) if n in expanded.summaries)
    now = replace(expanded, messages=shown, summaries=kept)
    done: list[Json] = list(applied)
    sent = asked.counted_tokens - saved
    if (
        edits.compact is not None
        and tokens
        and tokens * sent >= asked.due(edits.compact.trigger) * asked.counted_tokens
    ):
        await _compacted(asked, now, edits.compact, done)
        return
    edit = MessageEdit(done, iterations=edits.compact is not None, sent_tokens=sent) if edits.asked else None
    await asked.go_on(shown, edit, sent_tokens=sent)


def _counts(asked: Asked, edits: Edits) -> bool:
    """Whether the tokens of a request are to be counted: most are far below what triggers an edit."""
    uses, compact = edits.tool_uses, edits.compact
    if (asked.exchange.counting and edits.asked) or (uses is not None and uses.counts_uses):
        return True
    triggers = [] if uses is None else [uses.trigger]
    triggers += [] if compact is None else [compact.trigger]
    return bool(triggers) and asked.may_have(asked.due(min(triggers)))


async def _compacted(asked: Asked, expanded: Expanded, edit: CompactAt, applied: list[Json]) -> None:
    """Compact at a threshold: the block is the first of the answer, and the reply follows it, or not."""
    found = await asked.condensed(expanded, instructions=edit.instructions)
    if found is None:  # nothing is left to fold: the request goes on as it is
        await asked.go_on(expanded.messages, MessageEdit(applied, iterations=True))
        return
    block = block_of(asked.parts.key, asked.client, found, on_demand=False)
    warning = _BY_DIGEST.format(found.failure) if found.failure else ""
    if edit.pause:
        answer = asked.denied() or message_answer(asked.body, block, asked.usages, applied)
        await asked.answer(answer, warning=warning)
        return
    # The messages that the next request will have in place of the block: the prompt stays the same, and cached.
    holder: Wire = {"role": "assistant", "content": [block]}
    shown = expand_blocks([holder], asked.parts.key, asked.client, native=False).messages
    await asked.go_on(shown, MessageEdit(applied, block, asked.usages, iterations=True), warning=warning)


async def _summarised(asked: Asked, expanded: Expanded, on_demand: OnDemand) -> None:
    """Answer a request for a summary with a signed block."""
    _check_finished(expanded.messages)
    found = await asked.summarised(expanded, instructions=on_demand.instructions)
    block = block_of(asked.parts.key, asked.client, found, on_demand=True)
    warning = _BY_DIGEST.format(found.failure) if found.failure else ""
    await asked.answer(asked.denied() or message_answer(asked.body, block, asked.usages, None), warning=warning)


def _check_finished(messages: Sequence[Wire]) -> None:
    reader = codec("anthropic")
    read = [reader.read(wire) for wire in messages]
    if not any(message.parts and message.role in ("user", "assistant") for message in read):
        reason = "there is nothing to summarize"
        raise CompactionRefused(reason, place="messages", code="compaction_nothing_to_summarize")
    if read[-1].role == "assistant" and read[-1].calls:
        reason = "the last assistant turn ends in a tool call without a result: send its results first"
        raise CompactionRefused(reason, place=f"messages.{len(messages) - 1}", code="compaction_incomplete_turn")
