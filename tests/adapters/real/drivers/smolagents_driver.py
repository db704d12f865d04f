"""smolagents: an agent that calls tools, and one that writes code. It has no store: its steps are pickled."""

import asyncio
import json
import pickle
import sys
from contextlib import redirect_stdout

from parts import part_text
from PIL import Image
from smolagents import CodeAgent, LogLevel, OpenAIModel, ToolCallingAgent, tool
from smolagents.models import ChatMessage, MessageRole

from foldline.adapters.smolagents import FoldlineAgentModel, StepMessages, step_messages


@tool
def read_part(part: int) -> str:
    """Reads a part of the log.

    Args:
        part: Its number.
    """
    return part_text(part)


class Driver:
    def __init__(self, *, api, url, folder, window):
        # Its own retries wait for minutes, also after an overflow whose figures have "429" in them.
        inner = OpenAIModel("log-reader", api_base=f"{url}/v1", api_key="sk-of-a-test", retry=False)
        self.model = FoldlineAgentModel(inner, conversation="t1" if api == "code" else None, window=window)
        kind = CodeAgent if api == "code" else ToolCallingAgent
        self.made = lambda streamed: kind(
            tools=[read_part], model=self.model, verbosity_level=LogLevel.OFF, max_steps=5, stream_outputs=streamed
        )
        self.path = folder / "steps.pickle"
        self.stored = []

    def ask(self, words, streamed):
        with redirect_stdout(sys.stderr):  # what it shows of a stream
            return self.asked(words, streamed)

    def asked(self, words, streamed):
        agent = self.made(streamed)
        if self.path.exists():
            agent.memory.steps = pickle.loads(self.path.read_bytes())
        if streamed:
            *_, last = agent.run(words, stream=True, reset=False)
            answer = last.output
        else:
            answer = agent.run(words, reset=False)
        self.path.write_bytes(pickle.dumps(agent.memory.steps))
        self.stored = [json.dumps(step, default=str) for step in agent.memory.get_succinct_steps()]
        return answer

    async def ask_async(self, words, streamed):
        # smolagents is sync; its own guide for servers runs an agent in a thread.
        return await asyncio.to_thread(self.ask, words, streamed)

    def history(self):
        return self.stored


# --- the laws of messages ---------------------------------------------------------------------------------------------


def said(role, *blocks):
    return ChatMessage(
        role=role, content=[{"type": "text", "text": one} if isinstance(one, str) else one for one in blocks]
    )


def call(*arguments, name="read_part"):
    return [
        {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": one}}
        for number, one in enumerate(arguments)
    ]


def samples(folder):
    image = {"type": "image", "image": Image.new("RGB", (8, 8), "red")}
    observed = said(MessageRole.TOOL_RESPONSE, "Observation:\npart 1")
    turns = [
        said(MessageRole.SYSTEM, "Be brief."),
        said(MessageRole.USER, "New task:\nhello"),
        said(MessageRole.USER, "New task:\nlook", image, image),
        ChatMessage(role=MessageRole.USER, content="plain"),
        said(MessageRole.ASSISTANT, "Reading."),
        said(MessageRole.TOOL_CALL, f"Calling tools:\n{call({'part': 1})}"),
        observed,
        said(MessageRole.TOOL_CALL, f"Calling tools:\n{call({'part': 1}, {'part': 2})}"),
        said(MessageRole.USER, image),
        observed,
        said(MessageRole.TOOL_CALL, f"Calling tools:\n{call('print(1)', name='python_interpreter')}"),
        said(MessageRole.TOOL_RESPONSE, "Call id: c0\nError:\nno such file"),
        said(MessageRole.TOOL_CALL, f"Calling tools:\n{call({'a': 1})}"),
        said(MessageRole.ASSISTANT, "no observation"),
        said(MessageRole.TOOL_RESPONSE, "Error:\nwithout a call"),
        said(MessageRole.TOOL_CALL, "written by somebody"),
        observed,
    ]
    return step_messages(turns)


def translation():
    return StepMessages()


def stored(message):
    return pickle.loads(pickle.dumps(message))


def same(one, other):
    return one == other


def text_of(message):
    content = message.message.content
    return content if isinstance(content, str) else "\n".join(block.get("text", "") for block in content)
