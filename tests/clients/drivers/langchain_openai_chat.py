"""langchain-openai: a conversation with a tool.

Arguments: how many turns; "streamed" or "whole"; "chat" or "responses".
"""

import sys

from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from settings import models
from tool import QUESTION, TOOL, read_part

turns, streamed, api = int(sys.argv[1]), sys.argv[2] == "streamed", sys.argv[3]
model = models[api].bind_tools([{"type": "function", "function": TOOL}])
messages = [SystemMessage("You read logs.")]
said = ""


def asked():
    """The next message of the model."""
    if not streamed:
        return model.invoke(messages)
    whole = None
    for chunk in model.stream(messages):
        whole = chunk if whole is None else whole + chunk
    return whole


for turn in range(turns):
    messages.append(HumanMessage(QUESTION.format(turn)))
    while True:
        message = asked()
        messages.append(message)
        if not message.tool_calls:
            break
        messages += [ToolMessage(read_part(call["args"]), tool_call_id=call["id"]) for call in message.tool_calls]
    said = message.text
print(said)
