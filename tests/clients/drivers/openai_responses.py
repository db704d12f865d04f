"""openai: a conversation with a tool by Responses.

Arguments: how many turns; "streamed" or "whole".
"""

import sys

from settings import client
from tool import QUESTION, TOOL, read_part

turns, streamed = int(sys.argv[1]), sys.argv[2] == "streamed"
tools = [{"type": "function", "strict": False, **TOOL}]
items = []
said = ""


def asked():
    """The next response; what it holds is kept as it is, reasoning and all."""
    named = {"model": "fake-model", "instructions": "You read logs.", "input": items, "tools": tools, "store": False}
    named |= {"include": ["reasoning.encrypted_content"], "max_output_tokens": 500}
    if streamed:
        with client.responses.stream(**named) as stream:
            return stream.get_final_response()
    return client.responses.create(**named)


for turn in range(turns):
    items.append({"role": "user", "content": QUESTION.format(turn)})
    while True:
        response = asked()
        items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output]
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            break
        for call in calls:
            output = read_part(call.arguments)
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": output})
    said = response.output_text
print(said)
