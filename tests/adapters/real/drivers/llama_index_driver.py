"""LlamaIndex: its agent, and the loop of its LLM in a program that is not async; with its memory in SQLite."""

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import (
    CachePoint,
    ChatMessage,
    DocumentBlock,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.memory import Memory
from llama_index.core.tools import FunctionTool
from llama_index.llms.anthropic import Anthropic
from llama_index.llms.openai import OpenAIResponses
from llama_index.llms.openai_like import OpenAILike
from parts import part_text

from foldline.adapters.llama_index import BlockMessages, FoldlineLLM

SYSTEM = "You read logs."


def read_part(part: int) -> str:
    """Reads a part of the log."""
    return part_text(part)


TOOL = FunctionTool.from_defaults(read_part)


def llm_of(api, url):
    if api == "anthropic":
        return Anthropic("claude-sonnet-4-0", base_url=url, api_key="sk-of-a-test", max_tokens=500)
    if api == "responses":
        return OpenAIResponses("gpt-4o", api_base=f"{url}/v1", api_key="sk-of-a-test", max_output_tokens=500)
    return OpenAILike(
        "log-reader",
        api_base=f"{url}/v1",
        api_key="sk-of-a-test",
        is_chat_model=True,
        is_function_calling_model=True,
        additional_kwargs={"stream_options": {"include_usage": True}},
    )


class Driver:
    def __init__(self, *, api, url, folder, window):
        # One of the ways is by name, the others by content.
        self.llm = FoldlineLLM(llm_of(api, url), conversation="t1" if api == "chat" else None, window=window)
        store = f"sqlite+aiosqlite:///{folder / 'memory.sqlite'}"
        # A memory that leaves nothing out: what the model is sent is decided for each call.
        self.memory = Memory.from_defaults("t1", token_limit=10_000_000, async_database_uri=store)
        self.stored = []

    def ask(self, words, streamed):
        self.memory.put(ChatMessage(role="user", content=words))
        while True:
            asked = [ChatMessage(role="system", content=SYSTEM), *self.memory.get()]
            if streamed:
                *_, answer = self.llm.stream_chat_with_tools([TOOL], chat_history=asked, allow_parallel_tool_calls=True)
            else:
                answer = self.llm.chat_with_tools([TOOL], chat_history=asked, allow_parallel_tool_calls=True)
            self.memory.put(answer.message)
            calls = self.llm.get_tool_calls_from_response(answer, error_on_no_tool_call=False)
            for call in calls:
                read = str(TOOL(**call.tool_kwargs))
                given = {"tool_call_id": call.tool_id}
                self.memory.put(ChatMessage(role="tool", content=read, additional_kwargs=given))
            if not calls:
                self.stored = [message.model_dump_json() for message in self.memory.get_all()]
                return answer.message.content

    async def ask_async(self, words, streamed):
        agent = FunctionAgent(llm=self.llm, tools=[TOOL], system_prompt=SYSTEM, streaming=streamed)
        answer = await agent.run(user_msg=words, memory=self.memory)
        self.stored = [message.model_dump_json() for message in await self.memory.aget_all()]
        return answer.response.content

    def history(self):
        return self.stored


# --- the laws of messages ---------------------------------------------------------------------------------------------

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(64))
OWN_FORMS = True


def samples(folder):
    image = ImageBlock(image=PNG, image_mimetype="image/png")
    linked = ImageBlock(url="https://example.org/a.png")
    document = DocumentBlock(data=b"%PDF-1.4 " + b"x" * 3_000, document_mimetype="application/pdf")
    call = ToolCallBlock(tool_call_id="c1", tool_name="read_part", tool_kwargs={"part": 1})
    written = ToolCallBlock(tool_call_id="c2", tool_name="read_part", tool_kwargs='{"part": 1}')
    thought = ThinkingBlock(content="hm", additional_information={"signature": "sig"})
    left = {"id": "c1", "type": "function", "function": {"name": "read_part", "arguments": '{"part": 1}'}}
    cached = CachePoint(cache_control={"type": "ephemeral"})
    answered = {"tool_call_id": "c1"}
    blocks = [image, linked, document]
    return [
        ChatMessage(role="system", content="Be brief."),
        ChatMessage(role="user", content="hello"),
        ChatMessage(role="user", blocks=[TextBlock(text="one"), cached, TextBlock(text="two"), image]),
        ChatMessage(role="assistant", content="it is"),
        ChatMessage(role="assistant", blocks=[thought, TextBlock(text="reading"), call]),
        ChatMessage(role="assistant", blocks=[call, written]),
        ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [left]}),
        ChatMessage(role="assistant", blocks=[TextBlock(text=""), written], additional_kwargs={"tool_calls": [left]}),
        ChatMessage(role="tool", content="part 1", additional_kwargs=answered),
        ChatMessage(role="tool", blocks=[TextBlock(text="a picture"), image], additional_kwargs=answered),
        ChatMessage(role="tool", content="of no call"),
        *(
            ChatMessage(role=role, blocks=[block, TextBlock(text="hi")], additional_kwargs=answered)
            for role in (MessageRole.USER, MessageRole.ASSISTANT, MessageRole.TOOL)
            for block in blocks
        ),
    ]


def translation():
    return BlockMessages()


def stored(message):
    return ChatMessage.model_validate_json(message.model_dump_json())


def same(one, other):
    return type(one) is type(other) and one.model_dump() == other.model_dump()


def text_of(message):
    return message.content or ""
