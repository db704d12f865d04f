"""pydantic-ai: an agent with a tool.

Arguments: how many turns; "streamed" or "whole"; "chat" or "responses".
"""

import asyncio
import sys

from pydantic_ai import Agent
from settings import models
from tool import QUESTION, read_part

turns, streamed, api = int(sys.argv[1]), sys.argv[2] == "streamed", sys.argv[3]
agent = Agent(models[api], instructions="You read logs.", model_settings={"max_tokens": 500})


@agent.tool_plain(name="read_part")
def read(part: int) -> str:
    """Reads a part of the log."""
    return read_part(part)


async def seen(_, events):
    """Given to a run, this makes it ask for streams."""
    async for _ in events:
        pass


async def main():
    history, said = [], ""
    for turn in range(turns):
        question = QUESTION.format(turn)
        result = await agent.run(question, message_history=history, event_stream_handler=seen if streamed else None)
        history, said = result.all_messages(), result.output
    print(said)


asyncio.run(main())
