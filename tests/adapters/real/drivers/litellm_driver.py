"""LiteLLM: its SDK in place of its functions, its callbacks, and its proxy. The history is the program's own list.

APIs: "chat" and "anthropic" call `completion` and `acompletion` of the adapter, "hook" calls `litellm.acompletion` with
the callback, "proxy" asks a LiteLLM proxy with the callback, by the SDK of OpenAI.
"""

import asyncio
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched

import litellm
from openai import AsyncOpenAI, OpenAI
from parts import part_text

from foldline.adapters.litellm import FoldlineLiteLLM, LiteLLMMessages

TOOL = {
    "type": "function",
    "function": {
        "name": "read_part",
        "description": "Reads a part of the log.",
        "parameters": {"type": "object", "properties": {"part": {"type": "integer"}}, "required": ["part"]},
    },
}
KEY = f"sk-{secrets.token_hex(32)}"  # the proxy takes no weaker one


class Driver:
    def __init__(self, *, api, url, folder, window):
        self.api = api
        self.path = folder / "messages.json"
        self.messages = json.loads(self.path.read_text()) if self.path.exists() else []
        self.given = {"tools": [TOOL], "max_tokens": 500}
        if api == "proxy":
            self.client_url = proxy(folder, url, window)
            return
        self.folding = FoldlineLiteLLM(window=window)
        litellm.callbacks = [self.folding] if api == "hook" else []
        openai = {"model": "openai/log-reader", "api_base": f"{url}/v1"}
        self.given |= {"model": "anthropic/log-reader", "api_base": url} if api == "anthropic" else openai
        self.given |= {"api_key": KEY, "max_retries": 0}

    def ask(self, words, streamed):
        if self.api == "hook":  # no callback is called by the sync function
            return asyncio.run(self.ask_async(words, streamed))
        self.say({"role": "user", "content": words})
        while True:
            answer = self.complete() if not streamed else built(list(self.complete(stream=True, **USAGE)))
            if not self.heard(answer):
                return answer.choices[0].message.content

    async def ask_async(self, words, streamed):
        self.say({"role": "user", "content": words})
        while True:
            if streamed:
                answer = built([chunk async for chunk in await self.complete_async(stream=True, **USAGE)])
            else:
                answer = await self.complete_async()
            if not self.heard(answer):
                return answer.choices[0].message.content

    def complete(self, **more):
        if self.api == "proxy":
            client = OpenAI(base_url=self.client_url, api_key=KEY, max_retries=0)
            return client.chat.completions.create(model="log-reader", messages=self.messages, **self.given, **more)
        return self.folding.completion(messages=self.messages, **self.given, **more)

    async def complete_async(self, **more):
        if self.api == "proxy":
            client = AsyncOpenAI(base_url=self.client_url, api_key=KEY, max_retries=0)
            return await client.chat.completions.create(
                model="log-reader", messages=self.messages, **self.given, **more
            )
        function = litellm.acompletion if self.api == "hook" else self.folding.acompletion
        return await function(messages=self.messages, **self.given, **more)

    def heard(self, answer):
        message = answer.choices[0].message
        self.say(message if isinstance(message, litellm.Message) else message.model_dump(exclude_none=True))
        calls = message.tool_calls or ()
        for call in calls:
            text = part_text(json.loads(call.function.arguments)["part"])
            self.say({"role": "tool", "tool_call_id": call.id, "content": text})
        return bool(calls)

    def say(self, message):
        self.messages.append(message)
        self.path.write_text(json.dumps(self.messages, default=lambda value: value.model_dump()))

    def history(self):
        return [json.dumps(stored(message), sort_keys=True) for message in self.messages]


USAGE = {"stream_options": {"include_usage": True}}


def built(chunks):
    chunks = [litellm.ModelResponseStream(**chunk.model_dump()) for chunk in chunks]
    return litellm.stream_chunk_builder(chunks)


# --- the proxy --------------------------------------------------------------------------------------------------------

PROXIES = {}


def proxy(folder, url, window):
    """A LiteLLM proxy with the callback: the one process of this program goes on after half of the turns."""
    if folder in PROXIES:
        return PROXIES[folder]
    (folder / "folding.py").write_text(
        f"from foldline.adapters.litellm import FoldlineLiteLLM\n\nfolding = FoldlineLiteLLM(window={window})\n"
    )
    params = {"model": "openai/log-reader", "api_base": f"{url}/v1", "api_key": KEY, "max_retries": 0}
    settings = {
        "model_list": [{"model_name": "log-reader", "litellm_params": params}],
        "litellm_settings": {"callbacks": ["folding.folding"]},
        "general_settings": {"master_key": KEY},
    }
    (folder / "config.yaml").write_text(json.dumps(settings))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = str(Path(sys.executable).parent / "litellm")
    command = [program, "--config", str(folder / "config.yaml"), "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "proxy.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "NO_COLOR": "1"})
    STARTED.append(process)
    for _ in range(240):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=5).read()
            break
        except OSError:
            assert process.poll() is None, (folder / "proxy.log").read_text()[-4_000:]
            time.sleep(0.5)
    PROXIES[folder] = f"http://127.0.0.1:{port}/v1"
    return PROXIES[folder]


class Started(list):
    def __del__(self):
        for process in self:
            process.kill()


STARTED = Started()

# --- the laws of messages ---------------------------------------------------------------------------------------------

CALL = {"id": "c1", "type": "function", "function": {"name": "read_part", "arguments": '{"part": 1}'}}


def samples(folder):
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    thinking = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hello", "name": "ann"},
        {"role": "user", "content": [{"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}, image]},
        {"role": "assistant", "content": None, "tool_calls": [CALL], "function_call": None},
        {"role": "assistant", "content": "reading", "tool_calls": [CALL], "thinking_blocks": [thinking]},
        litellm.Message(content="it is", role="assistant"),
        litellm.Message(content=None, role="assistant", tool_calls=[CALL]),
        litellm.Message(content="it is", role="assistant", reasoning_content="hm", thinking_blocks=[thinking]),
        {"role": "tool", "tool_call_id": "c1", "content": "part 1"},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "part 1"}]},
    ]


def translation():
    return LiteLLMMessages()


def stored(message):
    return message.model_dump() if isinstance(message, litellm.Message) else json.loads(json.dumps(message))


def same(one, other):
    (first,), (second,) = (LiteLLMMessages().read(each) for each in (one, other))
    return first == second


def text_of(message):
    return json.dumps(stored(message))
