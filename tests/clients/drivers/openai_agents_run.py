"""openai-agents: an agent with a tool and a session.

Arguments: how many turns; "streamed" or "whole"; "chat" or "responses".
"""

import asyncio
import sys

from agents import Agent, ModelSettings, Runner, SQLiteSession, function_tool
from settings import models
from tool import QUESTION, read_part

turns, streamed, api = int(sys.argv[1]), sys.argv[2] == "streamed", sys.argv[3]


@function_tool(name_override="read_part")
def read(part: int) -> str:
    """Reads a part of the log."""
    return read_part(part)


async def main():
    agent = Agent(
        name="Reader",
        instructions="You read logs.",
        model=models[api],
        model_settings=ModelSettings(max_tokens=500, store=False),
        tools=[read],
    )
    session, said = SQLiteSession("logs"), ""
    for turn in range(turns):
        question = QUESTION.format(turn)
        if streamed:
            result = Runner.run_streamed(agent, question, session=session)
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(agent, question, session=session)
        said = result.final_output
    session.close()
    print(said)


asyncio.run(main())
