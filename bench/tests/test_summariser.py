from __future__ import annotations

from typing import Any

from foldline.reducers.summarize import CHECKPOINT
from foldline.replay import SummaryCall
from foldline.view.request import Request
from foldline_bench.summariser import SUMMARY_TOKENS, ContinuedSummariser, FixedSummariser

MESSAGES = (
    {"role": "user", "content": "Mend the build.\nIt is red."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "ls", "arguments": '{"path": "src"}'}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "app.py\nview.py"},
    {"role": "user", "content": [{"type": "text", "text": "Go on."}, {"type": "image_url", "image_url": {"url": "x"}}]},
)


class Words:
    name = "words"

    def text(self, text: str, /) -> int:
        return len(text.split())


def test_a_summary_is_the_first_line_of_each_message() -> None:
    written = FixedSummariser(Words()).summarize(MESSAGES)
    assert written.splitlines() == [
        "user: Mend the build.",
        'assistant: ls {"path": "src"}',
        "tool: app.py",
        "user: Go on.",
    ]


def test_a_summary_keeps_to_its_size_and_to_what_is_newest() -> None:
    assert FixedSummariser(Words()).summarize(MESSAGES, 9).splitlines() == ["tool: app.py", "user: Go on."]
    assert FixedSummariser(Words()).summarize(MESSAGES, 1) == "user: Go on."
    long = "\n".join(f"line {number} of many" for number in range(2_000))
    assert 600 < len(FixedSummariser(Words()).answer(long, 100_000).split()) <= SUMMARY_TOKENS


def test_a_prompt_that_is_one_text_is_summarised_by_its_speakers() -> None:
    prompt = "Summarise this.\n\nHuman: fix it\nat once\nAI: I look\nTool: found 3\nlines"
    assert FixedSummariser(Words()).answer(prompt).splitlines() == ["Human: fix it", "AI: I look", "Tool: found 3"]
    assert FixedSummariser(Words()).answer("one\n\ntwo").splitlines() == ["one", "two"]
    assert FixedSummariser(Words()).answer("") == "Nothing was said."


def test_of_a_prompt_the_messages_are_summarised_and_the_whole_is_billed() -> None:
    prompt = [{"role": "system", "content": "Summarise: be brief"}, {"role": "user", "content": "<m>x</m>"}]
    summariser = FixedSummariser(Words())
    assert summariser.summarize(prompt, said=MESSAGES[2:]).splitlines() == ["tool: app.py", "user: Go on."]
    assert [asked.prompt_tokens for asked in summariser.pop_calls()] == [6]


def test_a_line_that_looks_like_a_speaker_is_no_message() -> None:
    listed = {"role": "tool", "tool_call_id": "c", "content": "found 2\nuser: root\nsystem: linux"}
    assert FixedSummariser(Words()).summarize([listed]) == "tool: found 2"


def test_of_a_summary_that_was_written_before_every_line_is_kept() -> None:
    summariser = FixedSummariser(Words())
    first = summariser.summarize(MESSAGES[:3])
    around = {"role": "user", "content": f"So far:\n{first}"}
    second = summariser.summarize([around, MESSAGES[3]])
    assert second.splitlines() == ["user: So far:", *first.splitlines(), "user: Go on."]
    third = summariser.summarize([{"role": "user", "content": f"So far:\n{second}"}])
    assert third == second, "the words around it are said once"
    assert summariser.summarize([{"role": "assistant", "content": first}]) == first


def test_the_record_in_our_own_prompt_is_what_is_summarised() -> None:
    body = (
        "user: Mend it\nat once\ncall ls: {}\nresult: app.py\nview.py\nresult (failed): no\n"
        "assistant: done\ncall a: {}\ncall b: {}\nuser: ok"
    )
    asked = (
        {"role": "system", "content": CHECKPOINT},
        {"role": "user", "content": f"Update.\n<<<checkpoint\nGoal: x\ncheckpoint>>>\n<<<record\n{body}\nrecord>>>"},
    )
    assert FixedSummariser(Words()).summarize(asked).splitlines() == [
        "user: Goal: x",
        "user: Mend it",
        "call ls: {}",
        "result: app.py",
        "result (failed): no",
        "assistant: done",
        "user: ok",
    ]
    asked = (asked[0], {"role": "user", "content": "<<<record\nuser: Mend it\nrecord>>>\nPlease look at: x"})
    assert FixedSummariser(Words()).summarize(asked) == "user: Mend it"


def asking(*later: dict[str, Any], kept: int) -> Request:
    """A request that goes on from the session's last one with what came `later`, and a question."""
    return Request(
        messages=[*MESSAGES, *later, {"role": "user", "content": "Please summarise."}],
        system=None,
        tools=None,
        tokens=1_000,
        max_output_tokens=500,
        stable_until=4,
        folds=(),
        repairs=(),
        once=1 + len(later),
        kept=kept,
    )


def test_what_stays_in_view_beside_a_summary_is_not_in_it() -> None:
    later = {"role": "tool", "tool_call_id": "c", "content": "came after the request before"}
    request = asking(later, kept=2)
    summariser = FixedSummariser(Words())
    assert ContinuedSummariser(summariser).continued(request) == FixedSummariser(Words()).summarize(MESSAGES[:3])
    [asked] = summariser.pop_calls()
    assert asked.cached_tokens == 1_000 - 9, "what is new is not in the cache"


def test_each_call_is_noted_once_with_its_tokens() -> None:
    summariser = FixedSummariser(Words())
    summariser.answer("Human: a b c", cached_tokens=2)
    summariser.answer("AI: d")
    assert summariser.pop_calls() == (SummaryCall(4, 2, 4), SummaryCall(2, 0, 2))
    assert summariser.pop_calls() == ()
    assert summariser.pop_seconds() > 0
    assert summariser.pop_seconds() == 0


def test_a_question_at_the_end_of_a_request_is_all_that_is_not_in_the_cache() -> None:
    request = asking(kept=0)
    summariser = FixedSummariser(Words())
    written = ContinuedSummariser(summariser).continued(request)
    assert written == FixedSummariser(Words()).summarize(MESSAGES)
    assert summariser.pop_calls() == (SummaryCall(1_000, 1_000 - 3, 13),)
