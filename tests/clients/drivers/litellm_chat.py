"""litellm: a conversation with a tool.

Arguments: how many turns; "streamed" or "whole"; "openai" or "anthropic".
"""

import sys

import litellm
from settings import settings
from tool import QUESTION, TOOL, read_part

turns, streamed, house = int(sys.argv[1]), sys.argv[2] == "streamed", sys.argv[3]
tools = [{"type": "function", "function": TOOL}]
messages = [{"role": "system", "content": "You read logs."}]
said = ""
litellm.suppress_debug_info = True  # it wonders at a model that it has no price of


def asked():
    """The next message of the model."""
    named = {**settings[house], "messages": messages, "tools": tools, "max_tokens": 500, "num_retries": 0}
    if not streamed:
        return litellm.completion(**named).choices[0].message
    chunks = list(litellm.completion(**named, stream=True))
    return litellm.stream_chunk_builder(chunks, messages=messages).choices[0].message


for turn in range(turns):
    messages.append({"role": "user", "content": QUESTION.format(turn)})
    while (message := asked()).tool_calls:
        messages.append(message.model_dump())
        for call in message.tool_calls:
            content = read_part(call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
    messages.append({"role": "assistant", "content": message.content})
    said = message.content
print(said)
