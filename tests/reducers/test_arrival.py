"""What a result is shown as on arrival: whole where it fits, repeated lines once, a second read cut elsewhere."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reducers.views import LINE, applied, call, commit_all, folds_of, need_of, result, says, user, view_of

from foldline import POLICIES, Context
from foldline.catalog.models import CACHE_RULES
from foldline.messages import Wire
from foldline.reducers.arrival import RepeatedLines, RepeatNotices, ShortenNew, even_limit, new_lines, pages
from foldline.reducers.mask import Mask
from foldline.reducers.stages import ShortenByRent
from foldline.view.transcript import Fold
from foldline.view.view import View

WINDOW = 20_000


def rows(start: int, stop: int) -> str:
    return "\n".join(f"row_{number} = value_{number} of the table" for number in range(start, stop))


def read(call_id: str, text: str, path: str = "a.py", name: str = "read") -> list[Wire]:
    return [call(call_id, name=name, arguments=f'{{"path": "{path}"}}'), result(call_id, text)]


def shown(view: View) -> list[str]:
    return [message["content"] for message in view.wires()[0] if message["role"] == "tool"]


# --- whole where it fits ----------------------------------------------------------------------------------------------


def test_a_full_window_takes_as_much_of_a_fresh_result_as_an_empty_one() -> None:
    def first_sent(before: int) -> str:
        context = Context(window=8_000, max_output_tokens=0)
        context.append(user("go"))
        for number in range(before):
            context.extend([*read(f"c{number}", rows(number * 100, number * 100 + 60)), says("Read.")])
            context.prepare()
        context.extend(read("last", rows(90_000, 90_100)))
        return str(context.prepare().messages[-1]["content"])

    assert first_sent(0) == first_sent(3) == first_sent(20) == rows(90_000, 90_100)


def test_a_result_above_its_share_keeps_a_share_of_the_rest_and_the_notice_says_how_to_read_on() -> None:
    view = view_of([user("go"), *read("a", rows(0, 2_000))])
    applied(ShortenNew(share=0.1, of_result=0.1), view, need_of(view, window=WINDOW))
    [text] = shown(view)
    assert text.startswith("row_0 =") and "row_1999 =" in text
    assert text.splitlines()[-1].endswith("the same call again shows it in parts]")
    assert view.estimated_tokens < 0.5 * WINDOW


def test_results_that_come_together_share_the_room_and_the_small_ones_stay_whole() -> None:
    wires = [user("go"), call("a", "b", "c"), result("a", rows(0, 900)), result("b", rows(900, 910))]
    view = view_of([*wires, result("c", rows(2_000, 2_900))])
    applied(ShortenNew(share=0.9, of_result=0.5), view, need_of(view, window=WINDOW))
    a, b, c = shown(view)
    assert b == rows(900, 910)
    assert abs(len(a) - len(c)) < 0.2 * len(a)
    assert view.estimated_tokens < 0.6 * WINDOW


@given(st.lists(st.integers(0, 5_000), max_size=12), st.integers(0, 20_000))
def test_an_even_limit_fills_the_room_and_no_more(sizes: list[int], room: int) -> None:
    limit = even_limit(sizes, room)
    assert sum(min(size, limit) for size in sizes) <= room
    if sum(sizes) > room:
        assert sum(min(size, limit + 1) for size in sizes) > room
    else:
        assert limit == max(sizes, default=0)


def test_results_of_sub_agents_and_recalled_originals_stay_whole() -> None:
    view = view_of([user("go"), *read("a", LINE * 4_000, name="spawn_agent"), *read("b", LINE * 4_000, name="recall")])
    need = need_of(view, window=WINDOW)
    assert folds_of(ShortenNew(), view, need) == folds_of(RepeatedLines(), view, need) == []


# --- a second read ----------------------------------------------------------------------------------------------------


def rows_of(text: str) -> set[str]:
    return {line for line in text.splitlines() if line.startswith("row_")}


def test_a_second_read_is_never_cut_the_same_way_also_after_a_fold() -> None:
    context = Context(window=6_000, max_output_tokens=0, policy="cost")
    context.append(user("go"))
    reads: list[set[str]] = []
    for number in range(12):
        context.extend(read(f"r{number}", rows(0, 4_000)))
        reads.append(rows_of(str(context.prepare().messages[-1]["content"])))
        context.append(says("Again."))
        context.extend(
            [*read(f"o{number}", "\n".join(f"other_{number}_{n} is here" for n in range(200)), path=f"o{number}")]
        )
        context.prepare()
        context.append(says("Next."))
    assert any(isinstance(event, Fold) and not event.form for event in context.events)
    for earlier, later in pairwise(reads):
        assert later and later != earlier
    # From the second on it is read in order, part by part.
    assert len(set().union(*reads[1:])) == sum(map(len, reads[1:]))


def test_all_of_a_result_can_be_read_by_the_same_call_and_then_it_begins_anew() -> None:
    policy = replace(POLICIES["cost"], guard=(ShortenNew(share=0.001, of_result=0.1),), always=())
    context = Context(window=100_000, max_output_tokens=0, policy=policy)
    context.append(user("go"))
    seen: list[set[str]] = []
    while len(seen) < 60 and set().union(*seen[1:]) != rows_of(rows(0, 300)):
        context.extend(read(f"r{len(seen)}", rows(0, 300)))
        seen.append(rows_of(str(context.prepare().messages[-1]["content"])))
        context.append(says("Again."))
    assert 3 < len(seen) < 60
    context.extend(read("last", rows(0, 300)))
    assert rows_of(str(context.prepare().messages[-1]["content"])) == seen[1]


@given(st.text(alphabet="ab\n", max_size=300), st.integers(1, 50))
def test_pages_are_the_text_in_order(text: str, chars: int) -> None:
    parts = pages(text, chars)
    assert "".join(text[start:stop] for start, stop in parts) == text
    assert all(stop - start <= chars for start, stop in parts)


def test_a_call_without_arguments_is_not_taken_for_a_second_read() -> None:
    context = Context(window=6_000, max_output_tokens=0, policy="cost")
    context.append(user("go"))
    texts = []
    for number in range(2):
        context.extend([call(f"n{number}", name="next_page"), result(f"n{number}", rows(0, 600))])
        texts.append(rows_of(str(context.prepare().messages[-1]["content"])))
        context.append(says("Next."))
    assert texts[0] == texts[1]


# --- repeated lines ---------------------------------------------------------------------------------------------------


def test_lines_that_stand_just_before_are_sent_once_and_new_ones_with_their_neighbours() -> None:
    changed = rows(0, 100).replace("value_50", "another")
    view = view_of([user("go"), *read("a", rows(0, 100)), says("I edit it."), *read("b", changed, path="b.py")])
    commit_all(view, folds_of(RepeatedLines(), view, need_of(view, fresh=4, window=WINDOW)))
    first, second = shown(view)
    assert first == rows(0, 100)
    assert "row_50 = another of the table" in second and "row_48" in second and "row_52" in second
    assert "row_30 " not in second and "lines as shown above]" in second


def test_a_call_made_again_after_its_result_lost_lines_is_answered_whole() -> None:
    context = Context(window=60_000, max_output_tokens=0)
    context.append(user("go"))
    answers = []
    for number in range(4):
        context.extend(read(f"c{number}", rows(0, 100)))
        answers.append(str(context.prepare().messages[-1]["content"]) == rows(0, 100))
        context.append(says("Hm."))
    assert answers == [True, False, True, False]


def test_lines_far_above_are_not_relied_on() -> None:
    between = [
        wire
        for number in range(12)
        for wire in (*read(f"x{number}", rows(1_000 + number * 100, 1_090 + number * 100)), says("ok"))
    ]
    view = view_of([user("go"), *read("a", rows(0, 100)), says("ok"), *between, *read("b", rows(0, 100), path="b.py")])
    fresh = len(view.entries) - 1
    assert folds_of(RepeatedLines(share=0.1), view, need_of(view, fresh=fresh, window=WINDOW)) == []


@pytest.mark.parametrize("policy", ["balanced", "economical", "cost", "quality"])
@pytest.mark.parametrize("window", [3_000, 4_500])
def test_no_notice_points_to_lines_that_a_fold_has_taken(policy: str, window: int) -> None:
    context = Context(window=window, max_output_tokens=0, policy=policy)
    context.append(user("go"))
    corrected = 0
    for number in range(40):
        base = number // 20 * 200
        context.extend(
            [*read(f"c{number}", rows(base + number % 20, base + 60), path=f"{number}.py"), says("ok " * 40)]
        )
        request = context.prepare()
        shown_so_far: set[str] = set()
        for message in request.messages:
            text = str(message.get("content") or "")
            if message["role"] == "tool" and "lines as shown above]" in text:
                whole = next(
                    wire for wire in sent_wires(context) if wire.get("tool_call_id") == message["tool_call_id"]
                )
                assert rows_of(whole["content"]) <= rows_of(text) | shown_so_far
            corrected += "lines cut]" in text
            shown_so_far |= rows_of(text)
    assert corrected or (policy, window) != ("balanced", 4_500)
    assert any(isinstance(event, Fold) and not event.form for event in context.events)


def test_a_line_that_a_tool_wrote_like_a_notice_is_left_as_it_is() -> None:
    imitation = "[37 lines as shown above]"
    view = view_of(
        [user("go"), *read("a", rows(0, 100)), says("ok"), *read("b", f"{rows(0, 100)}\n{imitation}\nend", "b.py")]
    )
    commit_all(view, folds_of(RepeatedLines(), view, need_of(view, fresh=4, window=WINDOW)))
    applied(Mask(keep_first=0, keep_last=1), view)
    commit_all(view, folds_of(RepeatNotices(), view, need_of(view)))
    text = shown(view)[-1]
    assert "lines cut]" in text and imitation in text


def test_a_repeat_too_large_for_the_tail_is_left_to_the_cut() -> None:
    view = view_of([user("go"), *read("a", rows(0, 100)), says("ok"), *read("b", rows(0, 2_000), path="b.py")])
    need = need_of(view, fresh=4, window=WINDOW)
    assert folds_of(RepeatedLines(), view, need) == []
    commit_all(view, folds_of(ShortenNew(), view, need))
    assert view.estimated_tokens < 0.6 * WINDOW


def test_a_part_stays_a_part_when_it_is_shortened_by_rent() -> None:
    context = Context(window=40_000, max_output_tokens=0, policy="economical")
    context.append(user("go"))
    for number in range(3):
        context.extend([*read(f"r{number}", rows(0, 4_000)), says("Again.")])
        context.prepare()
    view = context.view
    need = replace(need_of(view), cache_rule=CACHE_RULES["none"], requests=50)
    for _ in range(30):
        context.append(says("ok"))
    commit_all(view, folds_of(ShortenByRent(), view, need))
    third = rows_of(shown(view)[2])
    assert third and "row_0 = value_0 of the table" not in third


def sent_wires(context: Context) -> list[Wire]:
    return [entry.recorded for entry in context.view.entries.values()]


@given(st.lists(st.sampled_from(["alpha line", "beta line", "gamma line", "", "}"]), max_size=40), st.integers(0, 3))
def test_no_line_is_lost_that_does_not_stand_above(lines: list[str], context: int) -> None:
    above = {"alpha line", "beta line"}
    out = new_lines("\n".join(lines), above, context).splitlines()
    assert set(lines) - set(out) <= above | {"", "}"}
    skipped = sum(int(line[1:].split()[0]) for line in out if line.endswith("lines as shown above]"))
    assert (
        len(lines) == skipped + sum(not line.endswith("lines as shown above]") for line in out)
        or not lines
        or lines[-1] == ""
    )
