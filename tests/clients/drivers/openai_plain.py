"""openai: a conversation without tools, for a model that has none.

Arguments: how many turns; "streamed" or "whole"; "chat" or "responses".
"""

import sys

from settings import client
from tool import read_part

turns, streamed, api = int(sys.argv[1]), sys.argv[2] == "streamed", sys.argv[3]
messages = []


def asked():
    """What the model says to the messages."""
    if api == "responses":
        named = {"model": "local", "input": messages, "max_output_tokens": 16}
        if streamed:
            with client.responses.stream(**named) as stream:
                return stream.get_final_response().output_text
        return client.responses.create(**named).output_text
    named = {"model": "local", "messages": messages, "max_tokens": 16}
    if streamed:
        chunks = client.chat.completions.create(**named, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    return client.chat.completions.create(**named).choices[0].message.content


for turn in range(1, turns + 1):
    messages.append({"role": "user", "content": f"{read_part(turn)}\nIs anything unusual?"})
    messages.append({"role": "assistant", "content": asked() or "(nothing)"})
print(f"{turns} answers")
