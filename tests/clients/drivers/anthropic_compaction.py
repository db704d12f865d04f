"""anthropic: a conversation that asks for compaction, by the client's own types.

Arguments: how many turns; "threshold", "pause", "demand", "runner" or "clearing"; "streamed" or "whole".
"""

import sys

from anthropic import beta_tool
from settings import client
from tool import QUESTION, TOOL, read_part

turns, kind, streamed = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "streamed"
betas = ["compact-2026-01-12", "compact-2026-09-04", "context-management-2025-06-27"]
tools = [{"name": TOOL["name"], "description": TOOL["description"], "input_schema": TOOL["parameters"]}]
edits = {
    "threshold": [{"type": "compact_20260112"}],
    "pause": [{"type": "compact_20260112", "pause_after_compaction": True}],
    "clearing": [{"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 2}}],
}
messages = []
counts = {"compactions": 0, "cleared": 0}
said = ""


def asked(**more):
    """The next message of the model, or a summary."""
    named = {"model": "fake-model", "system": "You read logs.", "messages": messages, "tools": tools}
    named |= {"max_tokens": 500, "betas": betas, **more}
    if streamed:
        with client.beta.messages.stream(**named) as stream:
            return stream.get_final_message()
    return client.beta.messages.create(**named)


def keep(message):
    """Append what the model said, as the manual does, and count what was done to the context."""
    messages.append({"role": "assistant", "content": [block.to_dict() for block in message.content]})
    counts["compactions"] += sum(block.type == "compaction" for block in message.content)
    if message.usage.iterations:
        assert sum(one.input_tokens for one in message.usage.iterations if one.type == "message") == (
            message.usage.input_tokens
        )
    if message.context_management is not None:
        counts["cleared"] += sum(edit.cleared_tool_uses for edit in message.context_management.applied_edits)


def converse():
    """Ask, run the tool, and go on until the model answers in words."""
    more = {"context_management": {"edits": edits[kind]}} if kind in edits else {}
    while True:
        message = asked(**more)
        keep(message)
        if message.stop_reason == "compaction":
            continue
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            return message.content[-1].text
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": read_part(call.input)} for call in calls]
        messages.append({"role": "user", "content": results})


def read_numbered(part):
    """A part of the log, as the runner calls a function."""
    return read_part(part)


def run():
    """The tool runner of the library, which is told to compact before each third turn of the model."""
    runner = client.beta.messages.tool_runner(
        model="fake-model",
        max_tokens=500,
        betas=betas,
        system="You read logs.",
        tools=[beta_tool(read_numbered, name=TOOL["name"], input_schema=TOOL["parameters"])],
        messages=[{"role": "user", "content": QUESTION.format(0)}],
    )
    for number, message in enumerate(runner):
        counts["compactions"] += message.stop_reason == "compaction"
        if number % 3 == 2 and message.stop_reason == "tool_use":
            runner.compact_before_next_turn()
    return message.content[-1].text


if kind == "runner":
    said = run()
else:
    for turn in range(turns):
        messages.append({"role": "user", "content": QUESTION.format(turn)})
        said = converse()
        if kind == "demand" and turn % 2:
            summary = asked(compaction={"type": "summarize", "instructions": "Keep what is unusual."})
            assert summary.stop_reason == "compaction"
            messages = [{"role": "assistant", "content": [block.to_dict() for block in summary.content]}]
            counts["compactions"] += 1
print("compactions: {compactions}, cleared: {cleared}".format(**counts))
print(said)
