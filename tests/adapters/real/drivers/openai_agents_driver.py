"""openai-agents, with its session in SQLite."""

import asyncio
import json

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from agents.models.fake_id import FAKE_RESPONSES_ID
from openai import AsyncOpenAI
from parts import part_text

from foldline.adapters.openai_agents import AgentItems, FoldlineModel, conversation

set_tracing_disabled(True)
NAMED = RunConfig(call_model_input_filter=conversation("t1"))


@function_tool
def read_part(part: int) -> str:
    """Reads a part of the log."""
    return part_text(part)


class Driver:
    def __init__(self, *, api, url, folder, window):
        client = AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-of-a-test")
        kind = OpenAIResponsesModel if api.startswith("responses") else OpenAIChatCompletionsModel
        self.model = FoldlineModel(kind("log-reader", client), window=window)
        self.agent = Agent(
            name="Reader",
            instructions="You read logs.",
            model=self.model,
            model_settings=ModelSettings(max_tokens=500, store=False, include_usage=True),
            tools=[read_part],
        )
        self.session = SQLiteSession("t1", folder / "sessions.sqlite")
        # One of the two ways is by name, the other by content.
        self.config = NAMED if api == "chat" else None
        self.loop = asyncio.new_event_loop()
        self.stored = []

    def ask(self, words, streamed):
        return self.loop.run_until_complete(self.ask_async(words, streamed))

    async def ask_async(self, words, streamed):
        if streamed:
            result = Runner.run_streamed(self.agent, words, session=self.session, run_config=self.config)
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(self.agent, words, session=self.session, run_config=self.config)
        self.stored = [json.dumps(item, sort_keys=True) for item in await self.session.get_items()]
        return result.final_output

    def history(self):
        return self.stored


# --- the laws of messages ---------------------------------------------------------------------------------------------


def samples(folder):
    return [
        {"role": "user", "content": "hello"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "it is", "annotations": []}],
        },
        {
            "type": "message",
            "id": FAKE_RESPONSES_ID,
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "it is", "annotations": []}],
        },
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read_part", "arguments": '{"part": 1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "part 1"},
    ]


def translation():
    return AgentItems()


def stored(message):
    return json.loads(json.dumps(message))


def same(one, other):
    return one == other


def text_of(message):
    return json.dumps(message)
