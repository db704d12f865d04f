"""What passes for a summary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline import Context, SummaryError
from foldline.reducers.acceptance import accepted
from foldline.testing import ScriptedModel

GOOD = "Goal: mend the parser. Done: read a.py. Next: run the tests."
THOUGHT = "The user wants the parser mended. First I list what was read, then what failed."

THINKING = {
    "think": ("<think>", "</think>"),
    "thinking": ("<thinking>", "</thinking>"),
    "capitals and an attribute": ('<Reasoning effort="high">', "</Reasoning>"),
    "brackets": ("[THINK]", "[/THINK]"),
    "triangles": ("◁think▷", "◁/think▷"),
    "special tokens": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "other special tokens": ("<|begin_of_thought|>", "<|end_of_thought|>"),
    "a name space": ("<seed:think>", "</seed:think>"),
    "unused tokens": ("<unused94>thought\n", "<unused95>"),
    "channels": ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
}


@pytest.mark.parametrize(("begin", "end"), THINKING.values(), ids=THINKING)
def test_thinking_before_a_summary_is_taken_out(begin: str, end: str) -> None:
    assert accepted(f"{begin}{THOUGHT}{end}\n\n{GOOD}") == GOOD
    assert accepted(f"\n{begin}\n{THOUGHT}\n{end}{begin}again{end} {GOOD}") == GOOD


@pytest.mark.parametrize(("begin", "end"), THINKING.values(), ids=THINKING)
def test_thinking_alone_is_no_summary(begin: str, end: str) -> None:
    for reply in (f"{begin}{THOUGHT}", f"{begin}{THOUGHT}{end}", f"{begin}{THOUGHT}\n{end}\n  ", begin):
        with pytest.raises(SummaryError):
            accepted(reply)


def test_thinking_whose_beginning_stood_in_the_prompt_is_taken_out() -> None:
    assert accepted(f"{THOUGHT}\n</think>\n\n{GOOD}") == GOOD
    assert accepted(f"analysis{THOUGHT}assistantfinal{GOOD}") == GOOD
    with pytest.raises(SummaryError):
        accepted(f"{THOUGHT}\n</think>")


CALLS = [
    '<tool_call>{"name": "read_file", "arguments": {"path": "a.py"}}</tool_call>',
    '<tool_call>\n{"name": "read_file", "arguments": {"path": "a',
    "<function=read_file><parameter=path>a.py</parameter></function>",
    '<function_calls>\n<invoke name="read_file">\n<parameter name="p">a.py</parameter>\n</invoke>\n</function_calls>',
    '<invoke name="read_file"><parameter name="path">a.py</parameter></invoke>',
    '[TOOL_CALLS][{"name": "read_file", "arguments": {}}]',
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read_file",
    '<|python_tag|>read_file.call(path="a.py")',
    "<|channel|>commentary to=functions.read_file <|constrain|>json<|message|>{}",
    '{"name": "read_file", "arguments": {"path": "a.py"}}',
    '{"name": "read_file", "arguments": {"path": "a.py", "text": "cut off he',
    '[{"name": "read_file", "parameters": {"path": "a.py"}}]',
    '{"tool_calls": [{"function": {"name": "read_file", "arguments": "{}"}}]}',
    '{"action": "read_file", "action_input": {"path": "a.py"}}',
    '```json\n{"tool": "read_file", "args": {"path": "a.py"}}\n```',
    '```tool_code\nread_file(path="a.py")\n```',
    'read_file(path="a.py")',
    'functions.read_file:0 {"path": "a.py"}',
    'Let me look first.\n<tool_call>{"name": "read_file", "arguments": {}}</tool_call>',
]


@pytest.mark.parametrize("reply", CALLS)
def test_a_call_written_as_text_is_no_summary(reply: str) -> None:
    with pytest.raises(SummaryError):
        accepted(reply)
    with pytest.raises(SummaryError):
        accepted(f"<think>{THOUGHT}</think>\n{reply}")


def test_a_call_behind_a_summary_is_taken_out() -> None:
    summary = f"{GOOD}\n" * 6
    assert accepted(f"{summary}\n{CALLS[0]}") == summary.strip()


NOTHING = [
    "",
    " \n",
    "\u200b\u200b\ufeff\u2060",
    "...",
    "—",
    "```",
    "```markdown\n```",
    "👍",
    "(no content)",
    "No content.",
    "[no response generated]",
    "<empty>",
    "**null**",
    "undefined",
    "N/A",
    "OK.",
    "Done!",
    "无",
    "（なし）",
    "{}",
    "[]",
    "<summary></summary>",
    "<|im_end|>",
    "</s>",
    "## Goal:\n- Done:\n- Next:",
    "42",
]


@pytest.mark.parametrize("reply", NOTHING)
def test_what_says_nothing_in_words_is_no_summary(reply: str) -> None:
    with pytest.raises(SummaryError):
        accepted(reply)


REAL = [
    GOOD,
    "修复解析器。已读取 a.py。下一步:运行测试。",
    "目標：修正解析器",
    "المحلل يحتاج إلى إصلاح. التالي: تشغيل الاختبارات.",
    "पार्सर ठीक करना है। अगला: परीक्षण चलाना।",
    "ፓርሰሩን አስተካክል።",
    "Ziel: den Parser richten. Offen: Tests.",
    "Goal: strip `<think>` tags.\nDone: the regex `<think>.*?</think>` works.\nNext: the unclosed `<think>` case.",
    "Fixed: replies that end in `</think>`\nNext: docs.",
    "The chat template writes <think> before the answer and </think> after it; we now drop both. Next: tests.",
    'Goal: log calls.\n```json\n{"name": "read_file", "arguments": {}}\n```\nNext: the parser.',
    "Goal: parse\n```\n<tool_call>\n{}\n</tool_call>\n```\nNext: the stream.",
    "The model sent <tool_call> as text; mended in parse.py.",
    '{"goal": "mend the parser", "done": ["read a.py"], "next": "run the tests"}',
    "```markdown\n# Goal\nMend the parser.\n```",
    "Nothing was done yet; the user wants a parser.",
    "No summary was asked for, but: the port is 7743.",
    "Analysis of the logs: the disk is full (see /var/log).",
    "[Analysis] The disk is full. [Plan] Free 2 GB.",
    "Done: all tests pass. No content was lost.",
    "- Goal: mend (all) parsers\n- Next:\n  - a.py",
    "ok, so the user wants the port to be 7743",
]


@pytest.mark.parametrize("reply", REAL)
def test_a_real_summary_is_taken_as_it_is(reply: str) -> None:
    assert accepted(f"\n{reply}\n") == reply


@given(st.text(max_size=300))
def test_any_reply_is_taken_or_rejected(reply: str) -> None:
    try:
        assert accepted(reply)
    except SummaryError as error:
        assert error.reason


def talk() -> Context:
    context = Context(window=16_000, max_output_tokens=1_000)
    lines = "".join(f"line {n}: name_{n * 7919 % 99991} = {n}\n" for n in range(12))
    for turn in range(8):
        context.append({"role": "user", "content": f"q{turn} {lines}"})
        context.append({"role": "assistant", "content": f"a{turn} {lines}"})
    context.append({"role": "user", "content": "go"})
    return context


@pytest.mark.parametrize("reply", [f"<think>{THOUGHT}", CALLS[0], "(no content)", "\u200b"])
def test_the_view_stays_as_it_was_when_the_reply_is_no_summary(reply: str) -> None:
    context = talk()
    before = context.view.shown()
    with pytest.raises(SummaryError):
        context.compact(summarize=ScriptedModel([reply], repeat=True))
    assert context.view.shown() == before


def test_the_summary_is_shown_without_the_thinking_before_it() -> None:
    context = talk()
    context.compact(summarize=ScriptedModel([f"<think>{THOUGHT}</think>{GOOD}"], repeat=True))
    assert context.prepare().messages[0]["content"].endswith(GOOD)


@pytest.mark.parametrize(
    "reply",
    [
        "## Goal\n## Progress\n## Next steps",
        "## Goal\n[None]\n\n## Next\n- TODO\n- n/a.",
        "Understood.",
        "Got it, I will summarise the conversation.",
        "Sure! Let me now write a summary of what happened:",
    ],
)
def test_headings_and_promises_alone_are_no_summary(reply: str) -> None:
    with pytest.raises(SummaryError):
        accepted(reply)
    assert accepted(f"{reply}\n{GOOD}").endswith(GOOD)


def test_a_heading_that_is_a_sentence_is_a_summary() -> None:
    text = "# The user wants the parser mended"
    assert accepted(text) == text
