"""Pydantic AI, with its messages stored as JSON by its own adapter."""

import json

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from parts import part_text
from pydantic_ai import Agent, ModelMessagesTypeAdapter
from pydantic_ai.capabilities import ModelFallback
from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    CompactionPart,
    DocumentUrl,
    FilePart,
    ImageUrl,
    InstructionBaselinePart,
    InstructionDeltaPart,
    InstructionPart,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    RetryFeedbackPart,
    RetryInfo,
    SpeechPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolAvailabilityDeltaPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from foldline.adapters.pydantic_ai import FoldlineCapability, PydanticMessages


def read_part(part: int) -> str:
    """Reads a part of the log."""
    return part_text(part)


async def read_events(context, events):
    async for _ in events:
        pass


def model_of(api, url):
    if api == "anthropic":
        client = AsyncAnthropic(base_url=url, api_key="sk-of-a-test", max_retries=0)
        return AnthropicModel("log-reader", provider=AnthropicProvider(anthropic_client=client))
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-of-a-test", max_retries=0)
    kind = OpenAIResponsesModel if api == "responses" else OpenAIChatModel
    return kind("log-reader", provider=OpenAIProvider(openai_client=client))


async def asked_in_vain(messages, info):
    raise AssertionError("an overflow went to another model")
    yield


NO_OTHER = FunctionModel(stream_function=asked_in_vain)


class Driver:
    def __init__(self, *, api, url, folder, window):
        self.path = folder / "messages.json"
        self.messages = ModelMessagesTypeAdapter.validate_json(self.path.read_bytes()) if self.path.exists() else []
        self.agent = Agent(
            model_of(api, url),
            instructions="You read logs.",
            tools=[read_part],
            model_settings={"max_tokens": 500},
            capabilities=[FoldlineCapability(window=window), ModelFallback(NO_OTHER)],
        )

    def ask(self, words, streamed):
        return self.noted(self.agent.run_sync(words, **self.run(streamed)))

    async def ask_async(self, words, streamed):
        return self.noted(await self.agent.run(words, **self.run(streamed)))

    def run(self, streamed):
        # Not `run_stream`, which ends at the first words, before the calls that follow them.
        return {"message_history": self.messages, "event_stream_handler": read_events if streamed else None}

    def noted(self, result):
        self.messages = result.all_messages()
        self.path.write_bytes(ModelMessagesTypeAdapter.dump_json(self.messages))
        return result.output

    def history(self):
        return [json.dumps(message) for message in ModelMessagesTypeAdapter.dump_python(self.messages, mode="json")]


# --- the laws of messages ---------------------------------------------------------------------------------------------

OWN_FORMS = True
PNG = BinaryContent(b"\x89PNG" * 20, media_type="image/png")
PDF = BinaryContent(b"%PDF" * 900, media_type="application/pdf")
CALL = ToolCallPart("read_part", {"part": 1}, "c1")
SIGNED = {"provider_name": "anthropic"}


def samples(folder):
    block = InstructionPart(content="Be brief.")
    return [
        ModelRequest([SystemPromptPart("Be brief."), UserPromptPart("hello")], instructions="Be brief.", run_id="r1"),
        ModelRequest([UserPromptPart(["hello", PNG, TextContent("again", metadata=1), CachePoint(), PDF])]),
        ModelRequest([UserPromptPart([ImageUrl("https://example.org/a.png"), DocumentUrl("https://example.org/a")])]),
        ModelRequest([ToolReturnPart("read_part", "part 1", "c1"), ToolReturnPart("f", {"a": [1, None]}, "c2")]),
        ModelRequest([UserPromptPart("and"), ToolReturnPart("f", "no", "c1", outcome="failed", metadata={"a": 1})]),
        ModelRequest([ToolReturnPart("f", ["a picture", PNG, {"a": 1}], "c1"), UserPromptPart("next")]),
        ModelRequest([RetryFeedbackPart("not JSON", retry=RetryInfo(cause="model_retry"))]),
        ModelRequest([CompactionPart("what was before"), UserPromptPart("hello")]),
        ModelRequest([InstructionBaselinePart(instructions=[block]), UserPromptPart("hello")]),
        ModelRequest([InstructionDeltaPart(id=None, content="Be long."), UserPromptPart("hello")]),
        ModelRequest([ToolAvailabilityDeltaPart(tools_added=["f"]), UserPromptPart("hello")]),
        ModelRequest([SpeechPart(speaker="user", transcript="hello")]),
        ModelResponse([TextPart("it is", id="msg_1", provider_name="openai")], model_name="m"),
        ModelResponse([ThinkingPart("hm", signature="sig", **SIGNED), TextPart("reading"), CALL]),
        ModelResponse([CALL, ToolCallPart("f", '{"a": 1}', "c2", id="fc_1", provider_name="openai")]),
        ModelResponse([ToolCallPart("f", '{"a', "c1"), TextPart("cut")], finish_reason="length"),
        ModelResponse([CompactionPart("what was before", **SIGNED), TextPart("it is"), CALL]),
        ModelResponse([CompactionPart(None, provider_name="openai", provider_details={"encrypted_content": "gAAA"})]),
        ModelResponse([FilePart(PNG), TextPart("a picture"), SpeechPart(speaker="assistant", transcript="hi")]),
        ModelResponse(
            [
                NativeToolCallPart("web_search", {"query": "a"}, "w1", provider_name="openai"),
                NativeToolReturnPart("web_search", {"found": 1}, "w1", provider_name="openai"),
                TextPart("found"),
                TextPart("more"),
            ]
        ),
    ]


def translation():
    return PydanticMessages()


def stored(message):
    (again,) = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json([message]))
    return again


def same(one, other):
    return type(one) is type(other) and one == other


def text_of(message):
    return ModelMessagesTypeAdapter.dump_json([message]).decode()
