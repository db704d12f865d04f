"""anthropic: a conversation without tools, for a model that has none.

Arguments: how many turns; "streamed" or "whole".
"""

import sys

from settings import client
from tool import read_part

turns, streamed = int(sys.argv[1]), sys.argv[2] == "streamed"
messages = []


def asked():
    """What the model says to the messages."""
    named = {"model": "smollm2-135m-instruct", "messages": messages, "max_tokens": 16}
    if streamed:
        with client.messages.stream(**named) as stream:
            return stream.get_final_message()
    return client.messages.create(**named)


for turn in range(1, turns + 1):
    messages.append({"role": "user", "content": f"{read_part(turn)}\nIs anything unusual?"})
    said = "".join(block.text for block in asked().content if block.type == "text")
    messages.append({"role": "assistant", "content": said.strip() or "(nothing)"})
print(f"{turns} answers")
