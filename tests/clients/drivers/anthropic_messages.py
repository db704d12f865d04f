"""anthropic: a conversation with a tool and a moving cache breakpoint.

Arguments: how many turns; "streamed" or "whole".
"""

import sys

from settings import client
from tool import QUESTION, TOOL, read_part

turns, streamed = int(sys.argv[1]), sys.argv[2] == "streamed"
tools = [{"name": TOOL["name"], "description": TOOL["description"], "input_schema": TOOL["parameters"]}]
system = [{"type": "text", "text": "You read logs.", "cache_control": {"type": "ephemeral"}}]
messages = []
said = ""


def marked():
    """The messages with a breakpoint on the last block, as the manual of the API advises."""
    *before, last = messages
    *blocks, block = last["content"]
    return [*before, {**last, "content": [*blocks, {**block, "cache_control": {"type": "ephemeral"}}]}]


def asked():
    """The next message of the model."""
    named = {"model": "fake-model", "system": system, "messages": marked(), "tools": tools, "max_tokens": 500}
    if streamed:
        with client.messages.stream(**named) as stream:
            return stream.get_final_message()
    return client.messages.create(**named)


for turn in range(turns):
    messages.append({"role": "user", "content": [{"type": "text", "text": QUESTION.format(turn)}]})
    while True:
        message = asked()
        content = [block.model_dump(exclude_none=True, exclude={"parsed_output"}) for block in message.content]
        messages.append({"role": "assistant", "content": content})
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            break
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": read_part(call.input)} for call in calls]
        messages.append({"role": "user", "content": results})
    said = message.content[0].text
counted = client.messages.count_tokens(model="fake-model", system=system, messages=messages[:-1], tools=tools)
assert counted.input_tokens > 0
print(said)
