"""A call through an adapter: it fits, its usage comes back, and an overflow is retried before anybody sees it."""

from __future__ import annotations

import asyncio
import copy
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.adapters.toy import Note, ToyTranslation, note, notes
from tests.property.depth import dear
from tests.property.sessions import legal
from tests.serving import serve

from foldline.adapters.adapter import Adapter
from foldline.adapters.model_call import AdapterSettings, ModelCall, ShownCall
from foldline.adapters.streams import StreamEvents
from foldline.engine.events import ContextEvent, LimitLearned
from foldline.errors import DoesNotFit, InvalidInput
from foldline.messages import Json, Wire
from foldline.testing import FakeProvider, FakeReply
from foldline.view.transcript import active

WINDOW_TOKENS = 3_000
TOY = ToyTranslation()


class Toy:
    """The toy framework with an adapter, against a fake provider: each call is one request over a real connection."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.url = f"{url}/v1/chat/completions"
        self.adapter: Adapter[Note] = Adapter(TOY, AdapterSettings(**settings))  # type: ignore[typeddict-item]
        self.sent: list[ShownCall[Note]] = []

    def body(self, shown: ShownCall[Note], *, streamed: bool = False) -> dict[str, Json]:
        self.sent.append(shown)
        wires = [wire for message in shown.messages for wire in TOY.read(message)]
        system = [] if shown.system is None else [{"role": "system", "content": shown.system}]
        body: dict[str, Json] = {"model": "m", "messages": [*system, *wires], "stream": streamed}
        if streamed:
            body["stream_options"] = {"include_usage": True}
        if shown.max_output_tokens is not None:
            body["max_tokens"] = shown.max_output_tokens
        return body

    def ask(self, messages: Sequence[Note], **call: Any) -> Json:
        with httpx.Client(timeout=30) as client:

            def send(shown: ShownCall[Note]) -> Json:
                return client.post(self.url, json=self.body(shown)).raise_for_status().json()

            return self.adapter.call(ModelCall(messages=messages, model="m", **call), send, usage_of)

    async def ask_async(self, messages: Sequence[Note], **call: Any) -> Json:
        async with httpx.AsyncClient(timeout=30) as client:

            async def send(shown: ShownCall[Note]) -> Json:
                return (await client.post(self.url, json=self.body(shown))).raise_for_status().json()

            return await self.adapter.call_async(ModelCall(messages=messages, model="m", **call), send, usage_of)

    def stream(self, messages: Sequence[Note], **call: Any) -> list[Json]:
        def send(shown: ShownCall[Note]) -> Any:
            with httpx.stream("POST", self.url, json=self.body(shown, streamed=True), timeout=30) as response:
                if response.is_error:
                    response.read()
                    response.raise_for_status()
                for line in response.iter_lines():
                    if line.startswith("data: {"):
                        yield json.loads(line[6:])

        return list(self.adapter.stream(ModelCall(messages=messages, model="m", **call), send, EVENTS))

    async def stream_async(self, messages: Sequence[Note], **call: Any) -> list[Json]:
        async def send(shown: ShownCall[Note]) -> Any:
            async with (
                httpx.AsyncClient(timeout=30) as client,
                client.stream("POST", self.url, json=self.body(shown, streamed=True)) as response,
            ):
                if response.is_error:
                    await response.aread()
                    response.raise_for_status()
                async for line in response.aiter_lines():
                    if line.startswith("data: {"):
                        yield json.loads(line[6:])

        events: AsyncIterator[Json] = self.adapter.stream_async(
            ModelCall(messages=messages, model="m", **call), send, EVENTS
        )
        return [event async for event in events]


def usage_of(answer: Json) -> object | None:
    found: object | None = answer.get("usage")
    return found


EVENTS: StreamEvents[Json] = StreamEvents(
    begins=lambda event: any(choice["delta"].get("content") for choice in event.get("choices") or ()),
    usage_of=usage_of,
    failure_in=lambda event: event if "error" in event else None,
)

ASKED: dict[str, Callable[[Toy, Sequence[Note]], object]] = {
    "whole": lambda toy, messages: toy.ask(messages),
    "whole-async": lambda toy, messages: asyncio.run(toy.ask_async(messages)),
    "streamed": lambda toy, messages: toy.stream(messages),
    "streamed-async": lambda toy, messages: asyncio.run(toy.stream_async(messages)),
}
ways = pytest.mark.parametrize("way", ASKED)


@contextmanager
def provided(script: Any = None, **settings: Any) -> Iterator[tuple[FakeProvider, str]]:
    server = FakeProvider(script, repeat=True, **{"window_tokens": WINDOW_TOKENS, **settings})
    with serve(server) as served:
        yield server, served.url


@ways
@pytest.mark.parametrize("told", [WINDOW_TOKENS, 4 * WINDOW_TOKENS])
def test_a_growing_history_is_sent_as_it_fits_and_is_never_touched(way: str, told: int) -> None:
    with provided() as (server, url):
        toy = Toy(url, window=told)
        history: list[Note] = []
        for turn in range(1, 24):
            grown = notes(turn)
            history += grown[len(history) :]
            before, objects = copy.deepcopy(history), list(map(id, history))
            ASKED[way](toy, history)
            assert history == before
            assert list(map(id, history)) == objects
    assert server.served == 23
    assert server.refusals["overflow"] <= (told > WINDOW_TOKENS)
    # What is shown whole is the framework's own object, and there is some of it in every request.
    own = set(map(id, history))
    assert all(any(id(message) in own for message in shown.messages) for shown in toy.sent)
    assert toy.sent[-1].messages[0] is history[0]
    assert toy.sent[-1].messages[-1] is history[-1]
    assert len(toy.sent[-1].messages) < len(history)


@dear
@given(legal("openai-chat", 14), st.integers(400, 3_000), st.sampled_from((1, 3)))
def test_whatever_fits_at_all_is_answered_and_the_history_stays(wires: list[Wire], window: int, wrong: int) -> None:
    """Histories of every kind, in memory: a server that counts, and knows its own window."""
    history = [note(wire) for wire in wires if isinstance(wire.get("content"), str | None)]
    before = copy.deepcopy(history)
    adapter: Adapter[Note] = Adapter(TOY, {"window": wrong * window, "max_output_tokens": 0})
    server = FakeProvider(window_tokens=window, repeat=True)

    async def ask() -> None:
        transport = httpx.ASGITransport(server)
        async with httpx.AsyncClient(transport=transport, base_url="http://fake") as client:

            async def send(shown: ShownCall[Note]) -> Json:
                messages = [wire for message in shown.messages for wire in TOY.read(message)]
                response = await client.post("/v1/chat/completions", json={"model": "m", "messages": messages})
                return response.raise_for_status().json()

            for end in range(1, len(history) + 1):
                call = ModelCall(messages=history[:end], key="t", model="m")
                try:
                    await adapter.call_async(call, send, usage_of)
                except DoesNotFit as no:
                    assert no.floor_tokens > no.limit

    asyncio.run(ask())
    assert history == before
    assert set(server.refusals) <= {"overflow"}


@ways
def test_usage_comes_back_and_corrects_the_next_request(way: str) -> None:
    """A server that counts half as much again: only its reports say so."""

    def reply(body: Any) -> FakeReply:
        return FakeReply("fine", input_tokens=int(len(json.dumps(body["messages"])) / 2))

    with provided(reply, window_tokens=10**6) as (_, url):
        toy = Toy(url, window=10**6)
        for turn in (4, 5, 6):
            ASKED[way](toy, notes(turn))
        context = toy.adapter.context()
        assert context is not None
        assert context.view.tokens > 1.3 * context.view.estimated_tokens


def test_a_report_that_cannot_be_read_costs_nothing() -> None:
    with provided() as (_, url):
        toy = Toy(url, window=WINDOW_TOKENS)
        call: ModelCall[Note] = ModelCall(messages=notes(1))
        answer = toy.adapter.call(call, lambda shown: "fine", lambda answer: {"input_tokens": "many"})
        assert answer == "fine"


@ways
@pytest.mark.parametrize("status", [401, 500])
def test_an_error_that_sending_less_cannot_help_comes_out_as_it_is_and_once(way: str, status: int) -> None:
    with provided(FakeReply(status=status)) as (_, url):
        toy = Toy(url, window=WINDOW_TOKENS)
        with pytest.raises(httpx.HTTPStatusError):
            ASKED[way](toy, notes(2))
        assert len(toy.sent) == 1


@ways
def test_what_cannot_be_made_to_fit_says_so(way: str) -> None:
    with provided(window_tokens=300) as (server, url):
        toy = Toy(url, window=300)
        with pytest.raises(DoesNotFit):
            ASKED[way](toy, [Note("user", "one question of many words " * 400)])
        assert server.served == 0


@pytest.mark.parametrize("way", ["streamed", "streamed-async"])
def test_a_stream_that_is_refused_inside_is_begun_again_and_nothing_of_the_first_is_seen(way: str) -> None:
    replies = [FakeReply("never seen", fails="overflow", after_events=1), FakeReply("the answer")]
    with provided(replies) as (server, url):
        toy = Toy(url, window=WINDOW_TOKENS)
        events: Any = ASKED[way](toy, notes(8))
        text = "".join(choice["delta"].get("content") or "" for e in events for choice in e.get("choices") or ())
        assert text == "the answer"
    assert not any("error" in event for event in events)
    assert server.served == 1
    assert toy.sent[1].tokens < toy.sent[0].tokens


@pytest.mark.parametrize("way", ["streamed", "streamed-async"])
def test_a_stream_that_breaks_after_it_began_is_not_begun_again(way: str) -> None:
    with provided(FakeReply("half of an answer", fails="broken")) as (_, url):
        toy = Toy(url, window=WINDOW_TOKENS)
        with pytest.raises(httpx.HTTPError):
            ASKED[way](toy, notes(2))
        assert len(toy.sent) == 1


def test_a_window_that_was_told_wrong_leaves_no_more_room_for_the_reply_than_the_true_one() -> None:
    """Else half of the true window would be kept for it, and the newest results would not fit."""
    rooms = []
    for told in (WINDOW_TOKENS, 8 * WINDOW_TOKENS):
        with provided() as (_, url):
            toy = Toy(url, window=told)
            toy.ask(notes(20), key="t")
            context = toy.adapter.context("t")
            assert context is not None
            rooms.append(context.limits)
    assert rooms[0] == rooms[1]


def test_a_window_that_was_learned_holds_for_other_conversations() -> None:
    learned: list[ContextEvent] = []
    with provided() as (server, url):
        toy = Toy(url, window=10 * WINDOW_TOKENS, on_event=learned.append)
        toy.ask(notes(20), key="one")
        assert server.refusals["overflow"] == 1
        toy.ask(notes(20), key="two")
        assert server.refusals["overflow"] == 1
    assert [event.limit for event in learned if isinstance(event, LimitLearned)] == [WINDOW_TOKENS]


def test_a_cap_that_would_not_fit_beside_the_input_is_lowered_and_one_that_fits_is_left() -> None:
    with provided() as (_, url):
        toy = Toy(url, window=WINDOW_TOKENS)
        toy.ask(notes(1), max_output_tokens=100)
        assert toy.sent[-1].max_output_tokens is None
        toy.ask(notes(1), max_output_tokens=10 * WINDOW_TOKENS)
        cap = toy.sent[-1].max_output_tokens
        assert cap is not None
        assert cap + toy.sent[-1].tokens <= WINDOW_TOKENS


def test_another_model_has_another_window_in_the_same_conversation() -> None:
    adapter: Adapter[Note] = Adapter(TOY, {})
    sizes = []
    for model, window in (("large", 100_000), ("small", 2_000), ("large", 100_000)):
        call = ModelCall(messages=notes(20), key="t", model=model, window=window)
        adapter.call(call, lambda shown: sizes.append(shown.tokens), lambda answer: None)
        context = adapter.context("t")
        assert context is not None
        assert context.limits.window_tokens == window
    assert sizes[0] > 2_000 > sizes[1]


def test_system_text_and_tools_count_and_system_text_is_given_back() -> None:
    adapter: Adapter[Note] = Adapter(TOY, {"window": 50_000})
    sizes = []
    for system, tools in ((None, None), ("Be brief. " * 100, None), (None, [{"name": "f", "description": "x " * 500}])):
        call = ModelCall(messages=notes(2), system=system, tools=tools)

        def send(shown: ShownCall[Note], system: str | None = system) -> None:
            assert shown.system == system
            sizes.append(shown.tokens)

        adapter.call(call, send, lambda answer: None)
    assert all(later > sizes[0] + 100 for later in sizes[1:])


def test_a_resumed_conversation_is_read_from_the_history_that_the_framework_stored() -> None:
    with provided() as (server, url):
        Toy(url, window=WINDOW_TOKENS).ask(notes(10), key="t")
        again = Toy(url, window=WINDOW_TOKENS)
        again.ask(notes(25), key="t")
        assert not server.refusals
        context = again.adapter.context("t")
        assert context is not None
        assert context.event_count > 50


def test_a_long_history_is_read_beside_the_event_loop() -> None:
    """Others share the loop: what they wait for is not the reading of thousands of messages."""
    with provided(window_tokens=20_000) as (_, url):
        toy, longest = Toy(url, window=20_000), 0.0

        async def ticking() -> None:
            nonlocal longest
            while True:
                before = time.monotonic()
                await asyncio.sleep(0.001)
                longest = max(longest, time.monotonic() - before)

        async def ask() -> float:
            ticks = asyncio.create_task(ticking())
            before = time.monotonic()
            await toy.ask_async(notes(600), key="t")
            ticks.cancel()
            return time.monotonic() - before

        whole = asyncio.run(ask())
    assert longest < whole / 2


def test_a_call_that_is_cancelled_leaves_a_conversation_that_goes_on() -> None:
    with provided() as (server, url):
        toy = Toy(url, window=WINDOW_TOKENS)

        async def ask() -> None:
            for turns in (200, 201, 202):
                call = asyncio.create_task(toy.ask_async(notes(turns), key="t"))
                await asyncio.sleep(0.01)
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
            await toy.ask_async(notes(203), key="t")

        asyncio.run(ask())
    assert not server.refusals
    context = toy.adapter.context("t")
    assert context is not None
    assert len(active(context.events)) == len([wire for message in notes(203) for wire in TOY.read(message)])


def test_calls_of_many_threads_do_not_disturb_one_another() -> None:
    with provided() as (server, url):
        toy = Toy(url, window=WINDOW_TOKENS)

        def conversation(name: int) -> None:
            for turn in range(1, 12, 2):
                toy.ask([Note("user", f"I am number {name}."), *notes(turn)[1:]], key=name % 3)

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(conversation, range(6)))
        assert server.served == 36
        assert not server.refusals
        for shown in toy.sent:
            assert sum("I am number" in message.text for message in shown.messages) <= 1


def test_a_summary_is_written_by_whichever_function_the_side_has() -> None:
    asked: list[str] = []

    def summarize(messages: list[dict[str, str]], max_output_tokens: int) -> str:
        asked.append("sync")
        return "Goal: read the files."

    async def summarize_async(messages: list[dict[str, str]], max_output_tokens: int) -> str:
        asked.append("async")
        return "Goal: read the files."

    async def sent(shown: ShownCall[Note]) -> None:
        assert shown.messages

    for settings, expected in (
        ({"summarize": summarize}, ("sync", "sync")),
        ({"summarize": summarize, "summarize_async": summarize_async}, ("sync", "async")),
        ({"summarize_async": summarize_async}, ("", "async")),
    ):
        adapter: Adapter[Note] = Adapter(TOY, {"window": 3_000, "policy": "balanced", **settings})  # type: ignore[typeddict-item]
        asked.clear()
        adapter.call(ModelCall(messages=notes(40), key=1), lambda shown: None, lambda answer: None)
        assert set(asked) == {*expected[:1]} - {""}
        asked.clear()
        call: ModelCall[Note] = ModelCall(messages=notes(40), key=2)
        asyncio.run(adapter.call_async(call, sent, lambda answer: None))
        assert set(asked) == {expected[1]}


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"windows": 5}, "windows"),
        ({"window": 0}, "window"),
        ({"policy": "none of them"}, "policy"),
        ({"facts": "port 80"}, "facts"),
        ({"summarize": "yes"}, "summarize"),
        ({"most_conversations": 0}, "most_conversations"),
    ],
)
def test_a_wrong_setting_is_named_when_the_adapter_is_made(settings: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidInput, match=place):
        Adapter(TOY, settings)  # type: ignore[arg-type]


class Unwritable(ToyTranslation):
    """Fails, in the words of a provider, when a folded message is to be written."""

    def write(self, wires: Sequence[Wire], original: Note | None, /) -> Sequence[Note]:
        raise RuntimeError("This model's maximum context length is 2000 tokens, however you requested 9000 tokens")


def test_what_a_translation_raises_is_no_refusal_and_teaches_no_window() -> None:
    learned: list[ContextEvent] = []
    adapter: Adapter[Note] = Adapter(Unwritable(), AdapterSettings(window=WINDOW_TOKENS, on_event=learned.append))
    sent: list[ShownCall[Note]] = []
    with pytest.raises(RuntimeError, match="maximum context length"):
        adapter.call(ModelCall(messages=notes(30), model="m"), sent.append, lambda answer: None)
    assert sent == []
    assert not any(isinstance(event, LimitLearned) for event in learned)
