"""openai: a conversation by Responses that asks for compaction, by the client's own types.

Arguments: how many turns; "threshold", "compact" or "trigger"; "streamed" or "whole".
"""

import sys

from settings import client
from tool import QUESTION, TOOL, read_part

turns, kind, streamed = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "streamed"
tools = [{"type": "function", "strict": False, **TOOL}]
items = []
compactions = 0
said = ""


def asked(**more):
    """The next response."""
    named = {"model": "fake-model", "instructions": "You read logs.", "input": items, "tools": tools, "store": False}
    named |= {"max_output_tokens": 500, **more}
    if streamed:
        with client.responses.stream(**named) as stream:
            return stream.get_final_response()
    return client.responses.create(**named)


def compacted():
    """The items that stand for the conversation."""
    if kind == "compact":
        window = client.responses.compact(model="fake-model", input=items, instructions="You read logs.")
        assert window.object == "response.compaction"
        assert window.usage.total_tokens > 0
        return [item.to_dict() for item in window.output]
    response = asked(input=[*items, {"type": "compaction_trigger"}])
    words = [item for item in items if item.get("role") == "user"]
    return [*words, *(item.to_dict() for item in response.output)]


for turn in range(turns):
    items.append({"role": "user", "content": QUESTION.format(turn)})
    more = {"context_management": [{"type": "compaction"}]} if kind == "threshold" else {}
    while True:
        response = asked(**more)
        items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output]
        compactions += sum(item.type == "compaction" for item in response.output)
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            break
        for call in calls:
            output = read_part(call.arguments)
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": output})
    said = response.output_text
    if kind != "threshold" and turn % 2:
        items = compacted()
        assert [item["type"] for item in items if "type" in item].count("compaction") == 1
        compactions += 1
print(f"compactions: {compactions}, cleared: 0")
print(said)
