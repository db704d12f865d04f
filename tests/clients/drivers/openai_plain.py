"""openai: a conversation without tools, for a model that has none.

Arguments: how many turns; "streamed" or "whole"; "chat" or "responses".
"""

import sys

from settings import client
from tool import read_part

turns, streamed, api = int(sys.argv[1]), sys.argv[2] == "streamed", sys.argv[3]
MODEL = "smollm2-135m-instruct"
messages = []


def by_chat():
    """The model's answer to the messages."""
    named = {"model": MODEL, "messages": messages, "max_tokens": 16}
    if streamed:
        chunks = client.chat.completions.create(**named, stream=True)
        said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    else:
        said = client.chat.completions.create(**named).choices[0].message.content
    return [{"role": "assistant", "content": said or "(nothing)"}]


def by_responses():
    """The same, kept as the items that came."""
    named = {"model": MODEL, "input": messages, "max_output_tokens": 16}
    if streamed:
        with client.responses.stream(**named) as stream:
            output = stream.get_final_response().output
    else:
        output = client.responses.create(**named).output
    return [item.model_dump(exclude_none=True) for item in output]


asked = {"chat": by_chat, "responses": by_responses}[api]
for turn in range(1, turns + 1):
    messages.append({"role": "user", "content": f"{read_part(turn)}\nIs anything unusual?"})
    messages += asked()
print(f"{turns} answers")
