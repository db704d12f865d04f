"""Google's ADK, with its sessions in SQLite."""

import asyncio

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.google_llm import Gemini
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import Client, types
from parts import part_text

from foldline.adapters.google_adk import FoldlineLlm, PartContents, session_name

APP = {"app_name": "reader", "user_id": "ann"}


def read_part(part: int) -> str:
    """Reads a part of the log."""
    return part_text(part)


class Model(Gemini):
    """Gemini at the fake, with a key of its own."""

    @property
    def api_client(self):
        return Client(api_key="key-of-a-test", http_options=types.HttpOptions(base_url=self.base_url))


class Driver:
    def __init__(self, *, api, url, folder, window):
        self.agent = LlmAgent(
            name="reader",
            model=FoldlineLlm(Model(model="log-reader", base_url=url), window=window),
            instruction="You read logs.",
            tools=[read_part],
            # One of the two ways is by name, the other by content.
            before_model_callback=session_name if api == "gemini" else None,
        )
        self.path = str(folder / "sessions.sqlite")
        self.loop = asyncio.new_event_loop()
        self.stored = []

    def ask(self, words, streamed):
        return self.loop.run_until_complete(self.ask_async(words, streamed))

    async def ask_async(self, words, streamed):
        sessions = SqliteSessionService(self.path)
        if await sessions.get_session(session_id="t1", **APP) is None:
            await sessions.create_session(session_id="t1", **APP)
        runner = Runner(agent=self.agent, app_name="reader", session_service=sessions)
        config = RunConfig(streaming_mode=StreamingMode.SSE if streamed else StreamingMode.NONE)
        asked = types.UserContent(words)
        answer = ""
        async for event in runner.run_async(user_id="ann", session_id="t1", new_message=asked, run_config=config):
            if event.is_final_response() and event.content:
                answer = event.content.parts[0].text or answer
        session = await sessions.get_session(session_id="t1", **APP)
        self.stored = [event.model_dump_json(exclude_none=True) for event in session.events]
        return answer

    def history(self):
        return self.stored


# --- the laws of messages ---------------------------------------------------------------------------------------------

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


def samples(folder):
    part = types.Part
    call = part(function_call=types.FunctionCall(id="c1", name="read_part", args={"part": 1}))
    signed = part(function_call=types.FunctionCall(name="read_part", args={"part": 2}), thought_signature=PNG)
    answer = part.from_function_response(name="read_part", response={"result": "part 1"})
    return [
        types.Content(role="user", parts=[part(text="hello")]),
        types.Content(parts=[part(text="without a role")]),
        types.Content(role="user", parts=[part(text="look"), part.from_bytes(data=PNG, mime_type="image/png")]),
        types.Content(role="user", parts=[part.from_uri(file_uri="gs://a/b.pdf", mime_type="application/pdf")]),
        types.Content(role="model", parts=[part(text="it is")]),
        types.Content(role="model", parts=[part(text="hm", thought=True), part(text="reading"), call, signed]),
        types.Content(role="model", parts=[part(text="it is", thought_signature=PNG)]),
        types.Content(role="user", parts=[answer, answer]),
        types.Content(role="model", parts=[part.from_executable_code(code="print(1)", language="PYTHON")]),
        types.Content(role="model", parts=[]),
    ]


def translation():
    return PartContents()


def stored(message):
    return types.Content.model_validate_json(message.model_dump_json())


def same(one, other):
    return one == other


def text_of(message):
    return message.model_dump_json()
