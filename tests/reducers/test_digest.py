"""A span without a model."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.joints import unjoined
from tests.property.sessions import BUILDERS, DIALECTS
from tests.reducers.views import (
    LINE,
    answered_loop,
    applied,
    asks_of,
    call,
    commit_all,
    context_of,
    folds_of,
    gave,
    need_of,
    result,
    says,
    sent,
    text,
    tool_loop,
    use,
    user,
    view_of,
)

from foldline.messages import Wire
from foldline.reducers.base import span_fold
from foldline.reducers.digest import Digest, FallbackDigest, digest_message
from foldline.reducers.summarize import Summarize
from foldline.testing import session
from foldline.text.identifiers import names
from foldline.view.transcript import Fold
from foldline.view.view import View


def digest_of(wires: Sequence[object], limit: int = 300, dialect: str = "openai-chat") -> str:
    view = view_of(wires, dialect)
    return digest_message(view, 0, len(wires) - 1, limit).text


@pytest.mark.parametrize("limit", [60, 100, 200, 400, 800])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_digest_is_of_about_the_size_it_is_given(limit: int, dialect: str) -> None:
    build = BUILDERS[dialect]
    wires = [*session(30, result=LINE * 12, dialect=dialect), *build.user("next", False)]
    view = view_of(wires, dialect)
    assert view.count(digest_message(view, 0, len(wires) - 1, limit)) <= 1.05 * limit + 8


def test_user_texts_stay_verbatim_as_long_as_they_take_half() -> None:
    out = digest_of([user("the port is 40412, never 8080"), *session(8, result=LINE * 12)[1:], user("next")])
    assert "User: the port is 40412, never 8080" in out


def test_a_huge_user_text_does_not_crowd_out_the_small_ones() -> None:
    wires = [user("pasted log line\n" * 4_000), says("I see"), user("port 40412 please"), says("ok"), user("next")]
    out = digest_of(wires)
    assert "port 40412 please" in out
    assert "pasted log line" in out


RULE = "Before you run a command, show me what you are about to do."
CHAT = "We talked about the weather in the valley and how the old mill looked that day, and so on and on. "


def chat(*words: str, rounds: int = 40) -> list[Wire]:
    """A chat of long user messages, with `words` at its beginning, and a last question."""
    out: list[Wire] = []
    for n in range(rounds):
        out += [user("\n".join([*(words if n == 0 else ()), f"{n}: {CHAT * 2}"])), says(f"I see, {CHAT}")]
    return [*out, user("next")]


@pytest.mark.parametrize("rule", [RULE, "From now on, answer in French only.", "不要打开机密文件夹里的任何文件。"])
def test_what_a_user_laid_down_stays_word_for_word_where_the_rest_cannot(rule: str) -> None:
    out = digest_of(chat(rule), 300)
    assert rule in out
    assert "\n+ 1: We talked" not in out, "the message after it is left out"


def test_a_rule_outlives_digests_of_digests() -> None:
    context = context_of(chat(RULE, rounds=10))
    for _ in range(12):
        commit_all(context.view, folds_of(Digest(), context.view, need_of(context.view, 400)))
        assert RULE in sent(context.view)
        context.extend([says("fine"), *chat(rounds=6)])


def test_a_rule_outlives_a_digest_that_was_written_down_and_read_again() -> None:
    first = context_of(chat(RULE, rounds=10))
    digest = digest_message(first.view, 0, 20, 300).text
    again = context_of([user("go " * 400), says("ok"), *chat(rounds=10)])
    note = again.view.codec.note(digest, kind="digest")
    commit_all(again.view, [Fold(start=0, stop=2, shown=(note,), tokens=300, reducer="digest", reason="read again")])
    assert RULE in digest_message(again.view, 0, 20, 200).text


def test_of_a_value_that_changed_the_newest_is_told() -> None:
    out = digest_of(
        [
            *chat(rounds=20)[:-1],
            user("The budget cap is $400."),
            says("Noted."),
            user("The budget cap is $900."),
            *chat(rounds=20)[1:],
        ],
        250,
    )
    assert "The budget cap is $900." in out
    assert "$400" not in out


def test_what_was_said_again_in_the_same_words_is_told_once() -> None:
    wires: list[object] = []
    for n in range(30):
        wires += [user("Please go on with the plan."), says("I go on."), user(f"Note {n}: port {4000 + n}"), says("ok")]
    out = digest_of([*wires, user("next")], 900)
    assert out.count("Please go on with the plan.") == 1
    assert out.count("port ") == 30


def test_user_words_may_take_what_the_agent_leaves() -> None:
    wires: list[object] = []
    for n in range(40):
        wires += [user(f"Fact {n}: the port of host number {n} is {4000 + n}."), says("Noted.")]
    out = digest_of([*wires, user("next")], 700)
    assert len([n for n in range(40) if f"is {4000 + n}." in out]) > 25, "more than half of the digest"


def test_several_messages_of_a_user_are_marked_once() -> None:
    out = digest_of([user("the port is 40412"), user("the host is db-7"), says("ok"), user("next")])
    assert "User: the port is 40412\n+ the host is db-7\n" in out


def test_calls_and_what_came_of_them_are_told() -> None:
    out = digest_of(
        [user("go"), call("a", arguments='{"path": "src/a.py"}'), result("a", "42 tests passed"), user("n")]
    )
    assert '- read {"path": "src/a.py"}' in out
    assert "gave: 42 tests passed" in out


def test_failures_are_told_as_such() -> None:
    wires: list[object] = [user("go"), use("a"), gave("a", "no such file", is_error=True), user("next")]
    assert "failed: no such file" in digest_of(wires, dialect="anthropic")
    assert "failed: Traceback" in digest_of([user("go"), call("a"), result("a", "Traceback (most recent"), user("n")])


@pytest.mark.parametrize("limit", [120, 250, 400, 700])
def test_where_not_all_can_be_told_the_newest_are(limit: int) -> None:
    out = digest_of(list(answered_loop(60)), limit)
    told = [n for n in range(60) if f"Step {n}." in out]
    assert told == list(range(60 - len(told), 60)), "the old ones are left out, not those after them"
    assert f"({60 - len(told)} left out)" in out
    assert told


def test_what_was_asked_for_is_found_in_long_results() -> None:
    lines = "\n".join(f"src/mod_{n}/file_{n}.py: fine" for n in range(400))
    wires = [user("what about src/mod_211/file_211.py?"), call("a"), result("a", lines), says("ok"), user("next")]
    assert "src/mod_211/file_211.py: fine" in digest_of(wires, 200)


def test_hidden_messages_do_not_stand_in_a_digest() -> None:
    context = context_of([user("go")])
    context.append(user("a secret"), agent_visible=False)
    context.extend([says("ok " * 100), user("next")])
    assert "secret" not in digest_message(context.view, 0, 3, 300).text


def test_thinking_is_told_only_where_nothing_was_said() -> None:
    thought = {"type": "thinking", "thinking": "quietly pondering", "signature": "s"}
    wires: list[object] = [
        user("go"),
        {"role": "assistant", "content": [thought, text("I will look.")]},
        user("and?"),
        {"role": "assistant", "content": [{**thought, "thinking": "it is the cache"}]},
        user("next"),
    ]
    out = digest_of(wires, dialect="anthropic")
    assert "I will look." in out
    assert "quietly pondering" not in out
    assert "it is the cache" in out


def test_it_says_that_it_is_no_instruction() -> None:
    # NousResearch/hermes-agent#11475: an old request in a summary was answered again.
    assert "not instructions" in digest_of(list(answered_loop(3)))


def test_pictures_and_documents_are_named() -> None:
    wires: list[object] = [*BUILDERS["openai-chat"].user("look at this", True), says("ok"), user("next")]
    assert "[image]" in digest_of(wires)


def test_a_later_digest_keeps_what_the_earlier_one_told_of_users() -> None:
    context = context_of([user("the port is 40412"), *session(10, result=LINE * 12)[1:], says("done"), user("next")])
    commit_all(context.view, folds_of(Digest(), context.view, need_of(context.view, 300)))
    context.extend([*session(10, result=LINE * 12)[1:], says("done"), user("and now?")])
    commit_all(context.view, folds_of(Digest(), context.view, need_of(context.view, 300)))
    assert "the port is 40412" in sent(context.view)
    assert sent(context.view).count("Digest of") == 1


def told(view: View, stop: int, limit: int) -> list[str]:
    """The lines of the digest of all before `stop`, which takes their place where it is shorter."""
    shown = digest_message(view, 0, stop, limit)
    fold = span_fold(view, 0, stop, (shown,), reducer="digest", reason="", requested=False)
    if fold is not None:
        commit_all(view, [fold])
    return lines_of(shown.text)


def lines_of(digest: str) -> list[str]:
    """What a digest tells: its lines behind the heading."""
    return [line for line in digest.split("\n")[1:] if not line.endswith(" left out)")]


RESULTS = st.lists(
    st.tuples(st.sampled_from(["ERROR at src/a.py:17 in parse_it", "def f_one():", "ok"]), st.integers(0, 90))
)


@given(RESULTS, st.integers(120, 1_200), st.integers(0, 400))
def test_digests_in_a_row_lose_nothing_where_there_is_room(
    results: list[tuple[str, int]], limit: int, more: int
) -> None:
    wires = [user("Never touch src/old.py. Port 40412.")]
    for n, (line, count) in enumerate(results):
        found = "\n".join([f"src/file_{n}.py", *(f"{line} {n} {at} value_{at}" for at in range(count))])
        wires += [call(f"c{n}", arguments=json.dumps({"path": f"src/file_{n}.py"})), result(f"c{n}", found)]
    view = view_of([*wires, says("done"), user("next")])
    first = told(view, len(wires) + 1, limit)
    taken = any(tile.fold for tile in view.tiles)
    for room in (limit, limit + more, limit + 2 * more):
        later = told(view, len(wires) + 1, room)
        # A digest that would be no shorter took no place: the next one reads the messages, and may tell more of them.
        assert later == first if taken else names("\n".join(first)) <= names("\n".join(later))


@pytest.mark.parametrize("limit", range(160, 1_000, 40))
def test_a_digest_that_names_fill_up_is_within_its_size(limit: int) -> None:
    view = view_of([*tool_loop(60), says("done"), user("next")])
    shown = digest_message(view, 0, len(tool_loop(60)) + 1, limit)
    assert 0.85 * limit < view.count(shown) <= limit


def test_names_of_lines_that_do_not_fit_stand_in_their_gap() -> None:
    rows = [f'{{"sha": "{n:07x}fade{n:029x}", "message": "{"a change of no name " * 6}"}}' for n in range(20)]
    view = view_of([user("go"), call("a"), result("a", "\n".join(rows)), says("Seen."), user("next")])
    shown = digest_message(view, 0, 4, 300).text
    whole = [row for row in rows if row in shown]
    alone = [row for row in rows if row not in shown and row[9:49] in shown]
    assert whole
    assert len(alone) >= 3
    assert all("User" not in line for line in shown.split("\n") if line.startswith("…"))


def test_the_first_words_of_the_agent_stay_though_they_name_nothing() -> None:
    said = "We go on with the second way, since it is simpler.\n" + "\n".join(
        f"See src/file_{n}.py" for n in range(200)
    )
    view = view_of([user("go"), says(said), user("next")])
    assert "We go on with the second way" in digest_message(view, 0, 2, 300).text


def test_what_the_first_digest_kept_outlives_three_more_with_large_results_between() -> None:
    context = context_of([*tool_loop(12), says("done"), user("go on")])
    view, stop = context.view, len(tool_loop(12)) + 1
    first = told(view, stop, 500)
    for n in range(3):
        found = "\n".join(f"src/file_{n}_{at}.py is new" for at in range(400))
        context.extend([call(f"n{n}", name="find"), result(f"n{n}", found), says(f"Round {n}."), user(f"go on {n}")])
        stop += 4
        later = told(view, stop, 700 + 200 * n)
        assert set(first) <= set(later)
        assert any(line.startswith(f"src/file_{n}_") for line in later), "the new has its share"


def test_names_that_stand_behind_a_digest_are_not_told_again() -> None:
    paths = [f"src/module_{n}/handler_{n}.py" for n in range(40)]
    wires = [user("go"), call("a"), result("a", "\n".join(paths)), says("Seen."), user("Now the rest.")]
    stop = len(wires) - 1
    alone = digest_message(view_of(wires), 0, stop, 120).text
    shown = [path for path in paths if path in alone]
    again = digest_message(view_of([*wires, call("b"), result("b", "\n".join(paths[1:-1:2]))]), 0, stop, 120).text
    between = [path for path in paths[1:-1] if path in again]
    assert shown[1:-1]
    assert len(between) >= len(shown) - 2
    assert all(path in paths[2::2] for path in between)


def test_it_lands_at_its_target_and_keeps_the_newest() -> None:
    view = view_of(answered_loop(40))
    need = need_of(view, 800)
    shown = applied(Digest(), view, need)
    assert view.estimated_tokens <= 800
    assert shown[-1] == user("next")
    assert view.estimated_tokens > 400, "it takes no more than it has to"


def test_without_need_it_does_nothing() -> None:
    view = view_of(answered_loop())
    assert folds_of(Digest(), view, need_of(view, 10**6)) == []


def test_small_spans_are_left_alone() -> None:
    view = view_of([user("hi"), says("ho"), user("next")])
    assert folds_of(Digest(), view, need_of(view, 1)) == []


def test_each_span_between_protected_parts_gets_its_own() -> None:
    context = context_of(answered_loop(30))
    context.pin(21)
    folds = folds_of(Digest(keep=0.0), context.view, need_of(context.view, 200))
    assert [(fold.start, fold.stop) for fold in folds] == [(0, 21), (23, 62)]
    commit_all(context.view, folds)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_words_beside_a_result_stay_in_every_dialect(dialect: str) -> None:
    build = BUILDERS[dialect]
    wires = [*build.user("go", False), *build.turn(["a"], [LINE * 40], "w" * 5, None)]
    view = view_of(wires, dialect)
    shown = applied(Digest(keep=0.0), view, need_of(view, 60))
    if dialect == "anthropic":
        assert "and mind this" in json.dumps(shown[-1])
        assert "tool_result" not in json.dumps(shown[-1])


def test_texts_of_any_script_are_told_in_whole_characters() -> None:
    for words in ("上下文窗口管理" * 300, "👩‍👩‍👧‍👦" * 300, "größer " * 500):
        for limit in range(60, 90):
            assert digest_of([user(words), says("ok"), user("next")], limit).encode("utf-8")


TALK = [turn for n in range(20) for turn in (user(f"Question {n}? " * 20), says(f"Answer {n}. " * 20))]


@pytest.mark.parametrize("keep", [2, 5, 12])
def test_it_takes_what_summarize_would_take(keep: int) -> None:
    view, summarize = view_of(TALK), Summarize(keep_messages=keep)
    asked = [(ask.start, ask.stop) for ask in asks_of(summarize, view)]
    assert [(fold.start, fold.stop) for fold in folds_of(FallbackDigest(summarize), view)] == asked
    assert unjoined(applied(FallbackDigest(summarize), view))[1:] == TALK[-keep:]


def test_a_digest_is_not_digested_again() -> None:
    view, reducer = view_of(TALK), FallbackDigest(Summarize(keep_messages=2))
    applied(reducer, view)
    assert folds_of(reducer, view) == []


def test_a_digest_has_the_room_that_the_target_leaves() -> None:
    view = view_of(TALK)
    reducer = FallbackDigest(Summarize(keep_messages=2))
    wide = need_of(view, view.estimated_tokens)
    narrow = need_of(view, view.estimated_tokens // 4)
    (large,), (small,) = folds_of(reducer, view, wide), folds_of(reducer, view, narrow)
    assert small.tokens < large.tokens <= 0.45 * view.estimated_tokens
    assert view.estimated_tokens - view.between(0, view.index(small.stop)) + small.tokens <= narrow.target_tokens
