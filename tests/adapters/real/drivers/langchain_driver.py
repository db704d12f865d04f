"""LangChain's `create_agent` on LangGraph, with a checkpoint in SQLite."""

import asyncio
import json
from contextlib import asynccontextmanager, contextmanager

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.load import dumps, loads
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from parts import part_text

from foldline.adapters.langchain import FoldlineMiddleware, LangChainMessages

THREAD = {"configurable": {"thread_id": "t1"}, "recursion_limit": 50}
SYSTEM = "You read logs."


@tool
def read_part(part: int) -> str:
    """Reads a part of the log."""
    return part_text(part)


def model_of(api, url):
    if api == "anthropic":
        return ChatAnthropic(model="log-reader", base_url=url, api_key="sk-of-a-test", max_tokens=500)
    responses = api == "responses"
    return ChatOpenAI(
        model="log-reader", base_url=f"{url}/v1", api_key="sk-of-a-test", use_responses_api=responses, stream_usage=True
    )


class Driver:
    def __init__(self, *, api, url, folder, window):
        self.model = model_of(api, url)
        self.path = str(folder / "checkpoints.sqlite")
        self.middleware = self.made_middleware(window)
        self.stored = []

    def made_middleware(self, window):
        return FoldlineMiddleware(window=window)

    def agent(self, saver):
        return create_agent(
            self.model, tools=[read_part], system_prompt=SYSTEM, middleware=[self.middleware], checkpointer=saver
        )

    @contextmanager
    def running(self):
        with SqliteSaver.from_conn_string(self.path) as saver:
            yield self.agent(saver)

    @asynccontextmanager
    async def running_async(self):
        async with AsyncSqliteSaver.from_conn_string(self.path) as saver:
            yield self.agent(saver)

    def ask(self, words, streamed):
        asked = {"messages": [HumanMessage(words)]}
        with self.running() as agent:
            if streamed:
                for _ in agent.stream(asked, THREAD, stream_mode="messages"):
                    pass
            else:
                agent.invoke(asked, THREAD)
            return self.noted(agent.get_state(THREAD))

    async def ask_async(self, words, streamed):
        asked = {"messages": [HumanMessage(words)]}
        async with self.running_async() as agent:
            if streamed:
                async for _ in agent.astream(asked, THREAD, stream_mode="messages"):
                    await asyncio.sleep(0)
            else:
                await agent.ainvoke(asked, THREAD)
            return self.noted(await agent.aget_state(THREAD))

    def noted(self, state):
        messages = state.values["messages"]
        self.stored = [message.model_dump_json() for message in messages]
        return messages[-1].text

    def history(self):
        return self.stored


# --- the laws of messages ---------------------------------------------------------------------------------------------

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
DATA = "QUJD" * 1_000
# Blocks of LangChain and of several providers' integrations.
BLOCKS = [
    {"text": "without a type"},
    {"json": {"a": 1}},
    {"type": "text", "text": "cited", "citations": [{"type": "char_location"}]},
    {"type": "file", "base64": DATA, "mime_type": "application/pdf"},
    {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{DATA}", "filename": "a.pdf"}},
    {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": DATA}},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
    {"type": "image", "base64": DATA, "mime_type": "image/heic"},
    {"type": "image", "url": "https://example.org/a.png"},
    {"type": "image", "file_id": "file_1"},
    {"type": "media", "mime_type": "image/png", "data": PNG},
    {"type": "audio", "base64": DATA, "mime_type": "audio/wav"},
    {"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}},
    {"type": "reasoning", "reasoning": "hm", "extras": {"signature": "sig"}},
    {"type": "server_tool_call", "name": "web_search", "args": {}, "id": "w1"},
    {"type": "server_tool_result", "tool_call_id": "w1", "output": "found"},
    {"type": "non_standard", "value": {"x": [1, 2]}},
    {"image": {"format": "png", "source": {"bytes": DATA}}},
]
OWN_FORMS = True
CALL = {"name": "read_part", "args": {"part": 1}, "id": "c1", "type": "tool_call"}


def samples(folder):
    thinking = [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "reading", "citations": [{"type": "page_location"}]},
        {"type": "tool_use", "id": "c1", "name": "read_part", "input": {"part": 1}},
    ]
    responses = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {"type": "text", "text": "reading", "id": "msg_1", "annotations": []},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read_part", "arguments": '{"part": 1}'},
    ]
    image = {"type": "image", "base64": PNG, "mime_type": "image/png"}
    usage = {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11}
    return [
        SystemMessage("Be brief.", id="s"),
        HumanMessage("hello", id="h", name="ann"),
        HumanMessage(["hello", {"type": "text", "text": "again"}, image], id="i"),
        HumanMessage([{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}], id="u"),
        AIMessage("it is", id="a", usage_metadata=usage, response_metadata={"finish_reason": "stop"}),
        AIMessage("", id="c", tool_calls=[CALL], additional_kwargs={"reasoning_content": "hm"}),
        AIMessage(thinking, id="t", tool_calls=[CALL]),
        AIMessage(responses, id="r", tool_calls=[CALL]),
        AIMessage(
            "cut",
            id="b",
            invalid_tool_calls=[
                {"name": "f", "args": '{"a', "id": "c2", "error": "no JSON", "type": "invalid_tool_call"}
            ],
        ),
        ToolMessage("part 1", tool_call_id="c1", id="o", artifact=[1], status="error"),
        ToolMessage([{"type": "text", "text": "a picture"}, image], tool_call_id="c1", id="p"),
        RemoveMessage("x"),
        *(HumanMessage([block, "hi"], id=f"hb{n}") for n, block in enumerate(BLOCKS)),
        *(AIMessage([block, {"type": "text", "text": "hi"}], id=f"ab{n}") for n, block in enumerate(BLOCKS)),
        *(ToolMessage([block, "hi"], tool_call_id="c1", id=f"tb{n}") for n, block in enumerate(BLOCKS)),
    ]


def translation():
    return LangChainMessages()


def stored(message):
    return loads(dumps(message), allowed_objects="core")


def same(one, other):
    return type(one) is type(other) and json.loads(one.model_dump_json()) == json.loads(other.model_dump_json())


def text_of(message):
    return message.text
