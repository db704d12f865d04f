"""openai: a conversation with a tool by Chat Completions.

Arguments: how many turns; "streamed" or "whole".
"""

import sys

from settings import client
from tool import QUESTION, TOOL, read_part

turns, streamed = int(sys.argv[1]), sys.argv[2] == "streamed"
tools = [{"type": "function", "function": TOOL}]
messages = [{"role": "system", "content": "You read logs."}]
said = ""


def asked():
    """The next message of the model."""
    named = {"model": "fake-model", "messages": messages, "tools": tools, "max_completion_tokens": 500}
    if streamed:
        with client.chat.completions.stream(**named) as stream:
            return stream.get_final_completion().choices[0].message
    return client.chat.completions.create(**named).choices[0].message


for turn in range(turns):
    messages.append({"role": "user", "content": QUESTION.format(turn)})
    while (message := asked()).tool_calls:
        messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
        for call in message.tool_calls:
            content = read_part(call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
    messages.append({"role": "assistant", "content": message.content})
    said = message.content
print(said)
