"""Strands Agents, with its session in files."""

import asyncio
import base64
import json

from parts import part_text
from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models.anthropic import AnthropicModel
from strands.models.openai import OpenAIModel
from strands.models.openai_responses import OpenAIResponsesModel
from strands.session.file_session_manager import FileSessionManager
from strands.types.session import decode_bytes_values, encode_bytes_values

from foldline.adapters.strands import FoldlineStrands, StrandsMessages

KEY = "sk-of-a-test"


@tool
def read_part(part: int) -> str:
    """Reads a part of the log."""
    return part_text(part)


def model_of(api, url):
    if api == "anthropic":
        return AnthropicModel(client_args={"api_key": KEY, "base_url": url}, model_id="log-reader", max_tokens=500)
    kind, cap = (OpenAIModel, "max_tokens") if api == "chat" else (OpenAIResponsesModel, "max_output_tokens")
    return kind(client_args={"api_key": KEY, "base_url": f"{url}/v1"}, model_id="log-reader", params={cap: 500})


class Driver:
    def __init__(self, *, api, url, folder, window):
        self.given = (api, url)
        self.agent = Agent(
            model_of(api, url),
            system_prompt="You read logs.",
            tools=[read_part],
            session_manager=FileSessionManager(session_id="t1", storage_dir=str(folder)),
            conversation_manager=NullConversationManager(),
            callback_handler=None,
        )
        FoldlineStrands(window=window).attach(self.agent)

    def ask(self, words, streamed):
        self.agent.model = model_of(*self.given)  # its client keeps connections of the loop of the turn before
        if streamed:
            return asyncio.run(self.ask_async(words, streamed))
        return str(self.agent(words)).strip()

    async def ask_async(self, words, streamed):
        if not streamed:
            return str(await self.agent.invoke_async(words)).strip()
        async for event in self.agent.stream_async(words):
            result = event.get("result")
        return str(result).strip()

    def history(self):
        return [json.dumps(encode_bytes_values(message), sort_keys=True) for message in self.agent.messages]


# --- the laws of messages ---------------------------------------------------------------------------------------------

OWN_FORMS = True
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ")
IMAGE = {"image": {"format": "png", "source": {"bytes": PNG}}}
PDF = {"document": {"format": "pdf", "name": "a", "source": {"bytes": b"%PDF" * 900}}}
CALL = {"toolUse": {"toolUseId": "c1", "name": "read_part", "input": {"part": 1}}}
SIGNED = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}}
USED = {"usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}}


def result(name, *content, status="success"):
    return {"toolResult": {"toolUseId": name, "status": status, "content": list(content)}}


def samples(folder):
    guarded = {"guardContent": {"text": {"text": "hello", "qualifiers": ["query"]}}}
    linked = {"image": {"format": "png", "source": {"location": {"type": "s3", "uri": "s3://a/b"}}}}
    cited = {"citationsContent": {"content": [{"text": "cited"}], "citations": [{"title": "a"}]}}
    return [
        {"role": "user", "content": [{"text": "hello"}]},
        {
            "role": "user",
            "content": [{"text": "hello"}, IMAGE, PDF, {"cachePoint": {"type": "default"}}, {"text": "!"}],
        },
        {"role": "user", "content": [guarded, linked, {"text": "and"}]},
        {"role": "user", "content": [result("c1", {"text": "part 1"}), result("c2", {"json": {"a": [1, None]}})]},
        {"role": "user", "content": [result("c1", {"text": "a"}, IMAGE, PDF, {"text": "b"}), {"text": "and now"}]},
        {"role": "user", "content": [result("c1", {"text": "no"}, status="error")], "metadata": {"custom": {"a": 1}}},
        {"role": "assistant", "content": [{"text": "it is"}], "metadata": USED},
        {"role": "assistant", "content": [SIGNED, {"text": "reading"}, CALL], "metadata": USED},
        {"role": "assistant", "content": [CALL, {"toolUse": {"toolUseId": "c2", "name": "f", "input": {}}}]},
        {"role": "assistant", "content": [{"reasoningContent": {"redactedContent": b"gAAA"}}, {"text": "so"}]},
        {"role": "assistant", "content": [cited, {"text": "more"}]},
    ]


def translation():
    return StrandsMessages()


def stored(message):
    return decode_bytes_values(json.loads(json.dumps(encode_bytes_values(message))))


def same(one, other):
    return one == other


def text_of(message):
    return json.dumps(encode_bytes_values(message))
