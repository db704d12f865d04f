"""What a provider holds for a client (its own summaries, stored items), and what clients put beside a user's words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.remembered import REMEMBERED

from foldline import POLICIES, Context, DoesNotFit, check, count, fit
from foldline.codecs import codec
from foldline.codecs.provider_state import is_provider_summary, refers_to_stored_item
from foldline.testing import ScriptedModel
from foldline.view.user_words import is_injected, speaks

SEALED = "gAAAA" + "x" * 800


def text(n: int, seed: int) -> str:
    return "".join(f"line {i}: name_{seed}_{i * 7919 % 99991} = {i}\n" for i in range(n))


def items(first: list[Any], rounds: int = 12) -> list[Any]:
    out = [*first, {"role": "user", "content": "go on"}]
    for k in range(rounds):
        out += [
            {"type": "function_call", "id": f"fc_{k}", "call_id": f"c{k}", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": f"c{k}", "output": text(60, k)},
        ]
    done = {"role": "assistant", "content": [{"type": "output_text", "text": "Read all.", "annotations": []}]}
    return [*out, done, {"role": "user", "content": "Now fix it."}]


def blocks(first: Any, rounds: int = 10) -> list[Any]:
    out: list[Any] = [
        {"role": "user", "content": "start"},
        {"role": "assistant", "content": [first, {"type": "text", "text": "Going on."}]},
        {"role": "user", "content": "go on"},
    ]
    for k in range(rounds):
        result = {"type": "tool_result", "tool_use_id": f"t{k}", "content": text(60, k)}
        call = {"type": "tool_use", "id": f"t{k}", "name": "read", "input": {}}
        out += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return [*out, {"role": "assistant", "content": "done"}, {"role": "user", "content": "Now fix it."}]


READABLE = {"type": "compaction", "content": "The goal is ZEBRA; the port is 7743. " * 5}
SIGNED = {"type": "compaction", "content": "Still ZEBRA.", "encrypted_content": SEALED}
ITEM = {"type": "compaction", "id": "cmp_1", "encrypted_content": SEALED}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "found it " * 60}
REFERENCE = {"type": "item_reference", "id": "msg_77"}
CASES: dict[str, tuple[str, list[Any], Any]] = {
    "readable": ("anthropic", blocks(READABLE), READABLE),
    "signed": ("anthropic", blocks(SIGNED), SIGNED),
    "encrypted item": ("openai-responses", items([ITEM]), ITEM),
    "reference": ("openai-responses", items([REFERENCE]), REFERENCE),
}


def flat(messages: Any) -> list[Any]:
    return [part for m in messages for part in ([m] if "content" not in m else [m, *m["content"]])]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("policy", POLICIES)
def test_what_the_provider_holds_is_kept_as_long_as_anything_is(policy: str, name: str) -> None:
    dialect, messages, kept = CASES[name]
    for room in (8_000, 4_000, 2_000, 1_000):
        try:
            fitted = fit(messages, max_tokens=room, dialect=dialect, policy=policy, counter=REMEMBERED)
        except DoesNotFit:
            continue
        assert kept in flat(fitted.messages), "untouched"
        assert check(fitted.messages, dialect=dialect) == []


@pytest.mark.parametrize("name", CASES)
def test_a_compaction_that_is_asked_for_leaves_what_the_provider_holds(name: str) -> None:
    dialect, messages, kept = CASES[name]
    context = Context(dialect=dialect, window=60_000, max_output_tokens=1_000)
    context.extend(messages)
    context.compact(summarize=ScriptedModel(["Goal: ZEBRA. Next: mend it."], repeat=True))
    assert kept in flat(context.prepare().messages)


@pytest.mark.parametrize("name", ["readable", "encrypted item"])
def test_what_stands_before_a_summary_of_the_provider_counts_nothing(name: str) -> None:
    dialect, messages, _ = CASES[name]
    before: list[Any] = [{"role": "user", "content": text(900, 3)}, {"role": "assistant", "content": text(900, 4)}]
    alone, whole = count(messages, dialect=dialect), count([*before, *messages], dialect=dialect)
    assert abs(whole - alone) <= 10
    context = Context(dialect=dialect, window=60_000, max_output_tokens=1_000)
    context.extend([*before, *messages])
    request = context.prepare()
    assert abs(request.tokens - alone) <= 40
    assert request.messages[:2] == before, "it is passed on as it came"
    assert not request.folds


def test_of_several_summaries_the_newest_counts() -> None:
    newer = {"type": "compaction", "id": "cmp_2", "encrypted_content": SEALED}
    messages = [*items([ITEM], 6), newer, {"role": "user", "content": "and now?"}]
    newest = count([newer, {"role": "user", "content": "and now?"}], dialect="openai-responses")
    assert count(messages, dialect="openai-responses") == newest
    fitted = fit(messages, max_tokens=newest + 10, dialect="openai-responses")
    assert newer in fitted.messages


def test_a_turn_that_is_left_gives_back_what_its_summary_stood_for() -> None:
    before: list[Any] = [{"role": "user", "content": text(100, 1)}, {"role": "assistant", "content": text(100, 2)}]
    context = Context(dialect="openai-responses", window=60_000, max_output_tokens=1_000)
    context.extend([*before, {"role": "user", "content": "go on"}])
    size = context.prepare().tokens
    context.append(ITEM)
    assert context.prepare().tokens < size / 2
    context.sync([*before, {"role": "user", "content": "go on"}, {"role": "user", "content": "again"}])
    assert context.prepare().tokens >= size


def test_a_failed_summary_of_the_provider_stands_for_nothing() -> None:
    failed = codec("anthropic").read({"role": "assistant", "content": [{"type": "compaction", "content": None}]})
    assert not is_provider_summary(failed)
    assert is_provider_summary(codec("anthropic").read({"role": "assistant", "content": [SIGNED]}))
    assert is_provider_summary(codec("openai-responses").read(ITEM))
    assert refers_to_stored_item(codec("openai-responses").read(REFERENCE))
    assert not refers_to_stored_item(codec("openai-responses").read(ITEM))


# --- reminders --------------------------------------------------------------------------------------------------------

REMINDERS = [
    "<system-reminder>\nThe todo list is empty.\n</system-reminder>",
    "<system-reminder>a</system-reminder>\n<system-reminder>b</system-reminder>",
    "<environment_details>\n# Files\na.py\n</environment_details>",
    '<ide_selection path="a.py">x = 1</ide_selection>',
    "[SYSTEM NOTE] You have not used the todo list.",
    "[System: tool budget 40 %] Go on.",
    "[Reminder] Keep it short.",
]
OWN = [
    "Fix a.py.",
    "<system-reminder>x</system-reminder> and please fix a.py",
    "<div>what is wrong with this?</div>",
    "[urgent] fix a.py",
    "What does <system-reminder> mean?",
    "[systemd](https://x.example) does not start",
]


@pytest.mark.parametrize("words", REMINDERS)
def test_a_text_that_a_client_added_is_not_the_users(words: str) -> None:
    assert is_injected(words)
    assert not speaks(codec("openai-chat").read({"role": "user", "content": words}))


@pytest.mark.parametrize("words", OWN)
def test_a_users_words_about_such_texts_are_theirs(words: str) -> None:
    assert not is_injected(words)
    assert speaks(codec("openai-chat").read({"role": "user", "content": words}))


def nudged(where: str, reminder: str) -> tuple[str, list[Any]]:
    """Thirty rounds of a tool loop after one task, with a reminder in each."""
    task = {"role": "user", "content": "TASK-ZEBRA: migrate the billing database to version 7743."}
    out: list[Any] = [task]
    for k in range(30):
        if where == "anthropic":
            call = {"type": "tool_use", "id": f"t{k}", "name": "Read", "input": {"file_path": f"/src/a{k}.py"}}
            result = {"type": "tool_result", "tool_use_id": f"t{k}", "content": text(60, k)}
            out.append({"role": "assistant", "content": [call]})
            out.append({"role": "user", "content": [result, {"type": "text", "text": reminder}]})
        else:
            function = {"name": "read", "arguments": json.dumps({"path": f"/src/a{k}.py"})}
            call = {"id": f"t{k}", "type": "function", "function": function}
            out.append({"role": "assistant", "content": None, "tool_calls": [call]})
            out.append({"role": "tool", "tool_call_id": f"t{k}", "content": text(60, k)})
            out.append({"role": "user", "content": reminder})
    return where, out


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("where", ["anthropic", "openai-chat"])
@pytest.mark.parametrize("reminder", [REMINDERS[0], REMINDERS[4]], ids=["element", "note"])
def test_the_task_outlives_reminders_beside_results(policy: str, where: str, reminder: str) -> None:
    dialect, messages = nudged(where, reminder)
    for room in (20_000, 8_000, 4_000, 2_000):
        try:
            fitted = fit(messages, max_tokens=room, dialect=dialect, policy=policy, counter=REMEMBERED)
        except DoesNotFit:
            continue
        assert "TASK-ZEBRA" in json.dumps(fitted.messages)
        assert check(fitted.messages, dialect=dialect) == []


def test_a_reminder_stands_for_the_user_where_there_is_nothing_else() -> None:
    context = Context(window=8_000, max_output_tokens=500)
    context.append({"role": "user", "content": REMINDERS[0]})
    assert context.view.newest_user == 0
    context.append({"role": "assistant", "content": "ok"})
    context.append({"role": "user", "content": "Fix a.py."})
    context.append({"role": "user", "content": REMINDERS[4]})
    assert context.view.newest_user == 2


@pytest.mark.parametrize("window", [400, 900, 2_000, 100_000])
@pytest.mark.parametrize("count", [1, 3])
def test_what_answers_a_call_that_only_the_server_has_stays_beside_its_reference(window: int, count: int) -> None:
    # The AI SDK sends a stored call as a reference, and its output in full.
    references = [{"type": "item_reference", "id": f"fc_{n}"} for n in range(count)]
    results = [{**RESULT, "call_id": f"call_{n}", "output": "found it"} for n in range(count)]
    said = [
        {"role": role, "content": f"{role} {n} " + "words and more of them " * 8}
        for n in range(12)
        for role in ("user", "assistant")
    ]
    wires = [
        *said,
        {"role": "user", "content": "look"},
        *references,
        *results,
        *said,
        {"role": "user", "content": "so?"},
    ]
    assert check(wires, dialect="openai-responses") == []
    context = Context(dialect="openai-responses", window=window, max_output_tokens=0)
    for number, wire in enumerate(wires, 1):
        context.append(wire)
        if number % 7 == 0 or number == len(wires):
            sent = context.prepare().messages
            assert check(sent, dialect="openai-responses") == []
    at = sent.index(references[0])
    assert sent[at : at + 2 * count] == [*references, *results]
    context.append(results[0])
    assert context.prepare().messages.count(results[0]) == 1


def test_an_output_without_a_call_or_a_reference_before_it_goes() -> None:
    wires = [{"role": "user", "content": "a"}, RESULT, REFERENCE, {"role": "user", "content": "b"}]
    assert [violation.rule for violation in check(wires, dialect="openai-responses")] == ["result-without-call"]
    out = fit(wires, max_tokens=10_000, dialect="openai-responses")
    assert out.messages == [wires[0], *wires[2:]]


def test_a_signed_summary_at_the_start_stays_the_first_message() -> None:
    """The API wants it there, as a message of the assistant: no words of the user are put before it."""
    block = {"type": "compaction", "content": "So far: nothing.", "signature": "EuYB"}
    context = Context(dialect="anthropic", window=4_000, max_output_tokens=500)
    context.append({"role": "assistant", "content": [block]})
    for number in range(30):
        context.append({"role": "user", "content": f"Question {number}: {'word ' * 60}"})
        context.append({"role": "assistant", "content": f"Answer {number}: {'word ' * 60}"})
    context.append({"role": "user", "content": "And now?"})
    request = context.prepare()
    assert request.folds
    assert request.messages[0] == {"role": "assistant", "content": [block]}
    assert check(request.messages, dialect="anthropic") == []
