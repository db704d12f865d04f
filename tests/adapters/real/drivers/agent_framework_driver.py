"""Agent Framework, with its session in a file."""

import asyncio
import json

from agent_framework import Agent, AgentSession, Content, Message, tool
from agent_framework_anthropic import AnthropicClient
from agent_framework_openai import OpenAIChatClient, OpenAIChatCompletionClient
from anthropic import AsyncAnthropic
from parts import part_text

from foldline.adapters.agent_framework import ContentMessages, FoldlineChatMiddleware


@tool(approval_mode="never_require")
def read_part(part: int) -> str:
    """Reads a part of the log."""
    return part_text(part)


def client_of(api, url):
    if api == "anthropic":
        return AnthropicClient(
            model="log-reader", anthropic_client=AsyncAnthropic(base_url=url, api_key="sk-of-a-test")
        )
    kind = OpenAIChatClient if api == "responses" else OpenAIChatCompletionClient
    return kind(model="log-reader", base_url=f"{url}/v1", api_key="sk-of-a-test")


class Driver:
    def __init__(self, *, api, url, folder, window):
        self.agent = Agent(
            client=client_of(api, url),
            instructions="You read logs.",
            tools=[read_part],
            default_options={"max_tokens": 500} | ({"store": False} if api == "responses" else {}),
            middleware=[FoldlineChatMiddleware(window=window)],
        )
        self.path = folder / "session.json"
        self.session = (
            AgentSession.from_dict(json.loads(self.path.read_text())) if self.path.exists() else AgentSession()
        )
        self.loop = asyncio.new_event_loop()

    def ask(self, words, streamed):
        return self.loop.run_until_complete(self.ask_async(words, streamed))

    async def ask_async(self, words, streamed):
        if streamed:
            stream = self.agent.run(words, session=self.session, stream=True)
            async for _ in stream:
                pass
            answer = await stream.get_final_response()
        else:
            answer = await self.agent.run(words, session=self.session)
        self.path.write_text(json.dumps(self.session.to_dict()))
        return answer.messages[-1].text

    def history(self):
        messages = self.session.state["in_memory"]["messages"]
        return [message.to_json() for message in messages]


# --- the laws of messages ---------------------------------------------------------------------------------------------

PNG = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
OWN_FORMS = True


def samples(folder):
    image = Content.from_uri(PNG, media_type="image/png")
    pdf = Content.from_uri("data:application/pdf;base64," + "QUJD" * 1_000, media_type="application/pdf")
    call = Content.from_function_call("c1", "read_part", arguments='{"part": 1}')
    thought = Content.from_text_reasoning(text="hm", protected_data="sig")
    usage = Content.from_usage({"input_token_count": 9, "output_token_count": 2})
    group = {"_group": {"id": "g1", "kind": "user"}, "_excluded": False}
    code = Content.from_code_interpreter_tool_call(call_id="i1", inputs=[Content.from_text("print(1)")])
    blocks = [image, pdf, Content.from_hosted_file("file_1"), code, Content.from_error(message="refused")]
    return [
        Message("system", ["Be brief."]),
        Message("user", ["hello"], author_name="ann", message_id="m1", additional_properties=group),
        Message("user", ["one", "two", image]),
        Message("assistant", ["it is", usage], message_id="m2"),
        Message("assistant", [thought, "reading", call]),
        Message("assistant", [Content.from_function_call("c2", "read_part", arguments={"part": 1}), "after"]),
        Message("assistant", [usage]),
        Message("tool", [Content.from_function_result("c1", result="part 1")]),
        Message("tool", [Content.from_function_result("c1", result=[Content.from_text("a picture"), image])]),
        Message("tool", [Content.from_function_result("c2", result={"a": 1}, exception="no such file")]),
        *(Message(role, [block, "hi"]) for role in ("user", "assistant", "tool") for block in blocks),
        *(Message("tool", [Content.from_function_result("c3", result=[block])]) for block in blocks),
    ]


def translation():
    return ContentMessages()


def stored(message):
    return Message.from_json(message.to_json())


def same(one, other):
    return type(one) is type(other) and one.to_json() == other.to_json()


def text_of(message):
    results = [content.result for content in message.contents if content.type == "function_result"]
    return "\n".join([message.text, *map(str, results)])
