"""Runs in the environment of a framework: one conversation through its adapter, and the laws of its messages.

usage: scenario.py DRIVER API WAY SIDE URL WINDOW TURNS FOLDER

DRIVER_driver is a module beside this one, API an interface that it can use, WAY "whole" or "streamed", SIDE "sync" or
"async". WINDOW is what the adapter is told, 0 for nothing. After half of the turns everything is made anew, from what
the framework has stored in FOLDER. Prints one line of JSON.

A driver has, for a framework:

    class Driver(api, url, folder, window)
        ask(words, streamed) -> str             a turn: the agent runs its tools and answers
        ask_async(words, streamed)              the same, awaited
        history() -> list[str]                  the stored history of the framework, each message as JSON text
    samples(folder) -> list                     messages of every kind that the framework has
    translation()                               the `Translation` of the adapter
    stored(message) -> object                   a message as the framework gives it back after it was stored
    same(one, other) -> bool                    whether two messages are equal in everything
    text_of(message) -> str                     what it says
    OWN_FORMS = True                    if the framework has forms of its own for each provider; else left out
"""

import asyncio
import copy
import json
import sys
from importlib import import_module
from pathlib import Path

from foldline.codecs import codec

QUESTION = "Read the next three parts of the log, number {} of my questions. Is anything unusual?"
SHORT = "[shortened by the test]"


def main() -> None:
    name, api, way, side, url, window, turns, folder = sys.argv[1:]
    module = import_module(f"{name}_driver")

    def driver():
        return module.Driver(api=api, url=url, folder=Path(folder), window=int(window) or None)

    asked = Asked(streamed=way == "streamed")
    if side == "async":
        asyncio.run(asked.all_async(driver, int(turns)))
    else:
        asked.all(driver, int(turns))
    laws = check_translation(module, Path(folder))
    print(json.dumps({"answers": asked.answers, "history": asked.history, "laws": laws}))


class Asked:
    """The turns of a conversation. The history that the framework stores only grows, whatever the model was sent."""

    def __init__(self, *, streamed):
        self.streamed = streamed
        self.answers = []
        self.history = []

    def all(self, driver, turns):
        for numbers in (range(turns // 2), range(turns // 2, turns)):
            made = driver()
            for number in numbers:
                self.note(made, made.ask(QUESTION.format(number), self.streamed))

    async def all_async(self, driver, turns):
        for numbers in (range(turns // 2), range(turns // 2, turns)):
            made = driver()
            for number in numbers:
                self.note(made, await made.ask_async(QUESTION.format(number), self.streamed))

    def note(self, driver, answer):
        before, self.history = self.history, driver.history()
        assert self.history[: len(before)] == before, "the history of the framework was changed"
        self.answers.append(answer)


def check_translation(module, folder):
    """The laws that a translation keeps for the messages of its framework; how many messages were looked at."""
    translation = module.translation()
    samples = module.samples(folder)
    writer = codec(translation.dialect)
    for sample in samples:
        given = copy.deepcopy(sample)
        wires = list(translation.read(sample))
        # Storing and loading changes nothing that is read: else each resumed conversation would be another one.
        assert list(translation.read(module.stored(sample))) == wires, ("stored", sample)
        assert json.loads(json.dumps(wires)) == wires, ("json", sample)
        if not wires:
            continue
        # What is not different comes back equal.
        (again,) = translation.write(wires, sample)
        assert module.same(again, sample), ("same", sample, again)
        shortened = [short(wire) for wire in wires]
        if shortened != wires:
            (other,) = translation.write(shortened, sample)
            assert SHORT in module.text_of(other), ("shortened", sample, other)
            assert list(translation.read(other)) == shortened, ("read again", sample, other)
        if getattr(module, "OWN_FORMS", False):
            # What a rule of the dialect would change of a message is the framework's business: it goes out as it is.
            mended = [writer.write(writer.sanitize(writer.read(wire)).message or writer.read(wire)) for wire in wires]
            if [wire.get("tool_calls") for wire in mended] == [wire.get("tool_calls") for wire in wires]:
                (again,) = translation.write(mended, sample)
                assert module.same(again, sample), ("mended", sample, again)
        emptied = [emptier(wire) for wire in wires]
        if emptied != wires:
            (other,) = translation.write(emptied, sample)
            assert list(translation.read(other)) == emptied, ("arguments", sample, other)
        # And the framework's own object is never touched.
        assert module.same(given, sample), ("touched", sample)
    # Foldline's own messages say what they are to say.
    for role, words in (("user", "a digest"), ("assistant", "Understood.")):
        (made,) = translation.write([writer.write(writer.note(words, role=role))], None)
        assert module.text_of(made).count(words) == 1, ("made", words, made)
        (read,) = translation.read(made)
        assert writer.read(read).role == role, ("role", role, made)
    return len(samples)


def emptier(wire):
    """A message whose calls have other arguments, as a reducer leaves them."""
    if isinstance(wire.get("arguments"), str):
        return {**wire, "arguments": '{"part": 7}'}
    calls = [
        {**call, "function": {**call["function"], "arguments": '{"part": 7}'}} for call in wire.get("tool_calls") or ()
    ]
    return {**wire, "tool_calls": calls} if calls else wire


def short(wire):
    """A message whose text is shortened, in the place that its dialect has for it."""
    for field in ("content", "output"):
        if isinstance(wire.get(field), str) and wire[field]:
            return {**wire, field: SHORT}
        if isinstance(wire.get(field), list):
            blocks = [
                {**block, "text": SHORT} if isinstance(block, dict) and isinstance(block.get("text"), str) else block
                for block in wire[field]
            ]
            return {**wire, field: blocks}
    return wire


if __name__ == "__main__":
    main()
