"""Old tool results give way to placeholders."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.property.sessions import BUILDERS, DIALECTS
from tests.reducers.views import (
    LINE,
    applied,
    asks_of,
    call,
    commit_all,
    contents,
    context_of,
    folds_of,
    gave,
    need_of,
    picture,
    result,
    sent,
    text,
    use,
    user,
    view_of,
)

from foldline.engine.presets import POLICIES
from foldline.errors import SummaryError
from foldline.messages import ToolCall
from foldline.reducers.mask import Describe, Mask, ShortenOld, masked, names_important_file, viewed
from foldline.testing import session
from foldline.view.transcript import Fold

LONG = LINE * 12


def results(messages: list[dict[str, str]]) -> list[bool]:
    """Which results are masked."""
    return ["masked" in json.dumps(message) for message in messages[2::2]]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_first_and_the_last_results_stay(dialect: str) -> None:
    view = view_of(session(10, result=LONG, dialect=dialect), dialect)
    shown = applied(Mask(), view)
    assert results(shown) == [False] * 2 + [True] * 3 + [False] * 5


@pytest.mark.parametrize(("first", "last", "hidden"), [(0, 3, 7), (3, 0, 7), (5, 5, 0), (9, 9, 0), (0, 0, 0)])
def test_as_many_stay_as_asked_for(first: int, last: int, hidden: int) -> None:
    assert len(folds_of(Mask(keep_first=first, keep_last=last), view_of(session(10, result=LONG)))) == hidden


def test_all_may_be_masked_where_that_is_wanted() -> None:
    assert len(folds_of(Mask(keep_first=0, keep_last=0, keep_none=True), view_of(session(4, result=LONG)))) == 4


def test_user_turns_are_never_touched() -> None:
    # microsoft/agent-framework#4991: a tool-result strategy removed user turns.
    wires = []
    for n in range(6):
        wires += [user(f"turn {n}"), *session(1, result=LONG)[1:]]
        wires[-1] = {**wires[-1]}
    shown = applied(Mask(keep_first=0, keep_last=1), view_of(wires))
    assert [m["content"] for m in shown if m["role"] == "user"] == [f"turn {n}" for n in range(6)]


def test_a_placeholder_is_never_longer_than_what_it_hides() -> None:
    view = view_of(session(10, result="ok"))
    assert folds_of(Mask(), view) == []
    assert folds_of(Mask(placeholder=viewed), view) == []


def test_masked_results_are_not_masked_again() -> None:
    context = context_of(session(10, result=LONG))
    applied(Mask(), context.view)
    before = sent(context.view)
    assert folds_of(Mask(), context.view) == []
    context.extend(session(11, result=LONG)[-2:])
    assert [fold.start for fold in folds_of(Mask(), context.view)] == [12]
    assert sent(context.view).startswith(before[:-1])


def test_the_boundary_may_move_within_one_message() -> None:
    blocks = [{"type": "tool_use", "id": i, "name": "read", "input": {"i": i}} for i in "abc"]
    found = [{"type": "tool_result", "tool_use_id": i, "content": LONG} for i in "abc"]
    context = context_of(
        [user("go"), {"role": "assistant", "content": blocks}, {"role": "user", "content": found}], "anthropic"
    )
    reducer = Mask(keep_first=0, keep_last=2)
    applied(reducer, context.view)
    context.extend([use("d"), gave("d", LONG)])
    shown = applied(reducer, context.view)
    assert ["masked" in str(block["content"]) for block in shown[2]["content"]] == [True, True, False]


def test_a_masked_result_hides_its_pictures() -> None:
    wires = [user("go")]
    for n in range(3):
        wires += [use(f"c{n}", n=n), gave(f"c{n}", [text(LONG), picture()])]
    shown = applied(Mask(keep_first=0, keep_last=1), view_of(wires, "anthropic"))
    assert json.dumps(shown).count('"image"') == 1


def test_calls_and_their_arguments_stay() -> None:
    shown = applied(Mask(keep_first=0, keep_last=1), view_of(session(6, result=LONG)))
    assert [m for m in shown if m["role"] == "assistant"] == session(6)[1::2]


def test_results_of_protected_tools_stay() -> None:
    wires = [user("go")]
    for n in range(6):
        wires += [call(f"c{n}", name="plan" if n == 2 else "read"), result(f"c{n}", LONG)]
    reducer = Mask(keep_first=0, keep_last=1, protected_tools=frozenset({"plan"}))
    assert results(applied(reducer, view_of(wires))) == [True, True, False, True, True, False]


@pytest.mark.parametrize(
    ("arguments", "important"),
    [
        ('{"path": "README.md"}', True),
        ('{"path": "docs/readme.txt"}', True),
        ('{"command": "cat ./pyproject.toml | head"}', True),
        ('{"path": "src/app.py"}', False),
        ('{"path": "toml_parser.py"}', False),
        ("not json README.md", True),
        ("", False),
    ],
)
def test_files_that_say_what_a_project_is_are_known_by_name(arguments: str, important: bool) -> None:
    assert names_important_file(ToolCall("c", "read", arguments)) is important


def test_placeholders_to_the_letter() -> None:
    assert masked("whatever", 42) == "[result masked — ~42 tokens removed]"
    assert viewed("\n\n  first line \nsecond") == "[Previously viewed: first line]"
    assert len(viewed("x" * 5_000)) < 230


# --- shortening old ones ----------------------------------------------------------------------------------------------


def test_old_results_shrink_to_the_lines_that_matter() -> None:
    lines = "\n".join(f"src/mod_{n}/file_{n}.py: fine" for n in range(300))
    wires = [user("go"), call("a"), result("a", lines), user("what about src/mod_211/file_211.py?")]
    shown = applied(ShortenOld(keep=0.0), view_of(wires))
    assert "src/mod_211/file_211.py" in shown[2]["content"]
    assert len(shown[2]["content"]) < 0.4 * len(lines)


def test_the_newest_share_stays_whole() -> None:
    view = view_of(session(20, result=LONG))
    need = need_of(view, 1_000)
    applied(ShortenOld(keep=0.5), view, need)
    whole = [LONG in json.dumps(m) or m["content"] == LONG for m in view.wires()[0][2::2]]
    assert whole == sorted(whole)
    assert 1 <= sum(whole) <= 4


def test_shortening_again_changes_nothing() -> None:
    view = view_of(session(20, result=LONG))
    applied(ShortenOld(), view, need_of(view, 500))
    assert folds_of(ShortenOld(), view, need_of(view, 500)) == []


def test_what_is_masked_is_not_brought_back() -> None:
    view = view_of(session(12, result=LINE * 60))
    commit_all(view, folds_of(Mask(), view))
    before = sent(view).count("masked")
    commit_all(view, folds_of(ShortenOld(keep=0.0), view))
    assert sent(view).count("masked") == before


def test_protected_tools_are_not_shortened() -> None:
    wires = [user("go"), call("a", name="plan"), result("a", LINE * 100), user("next")]
    assert folds_of(ShortenOld(keep=0.0, protected_tools=frozenset({"plan"})), view_of(wires)) == []


def test_pictures_of_shortened_results_stay() -> None:
    wires = [user("go"), use("a"), gave("a", [text(LINE * 100), picture()]), user("next")]
    assert '"image"' in json.dumps(applied(ShortenOld(keep=0.0), view_of(wires, "anthropic")))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_shortened_sessions_stay_valid(dialect: str) -> None:
    build = BUILDERS[dialect]
    wires = [*build.user("go", False)]
    for n in range(8):
        wires += build.turn([f"a{n}", f"b{n}"], [LINE * 30, "short"], "words", f"thought {n}")
    view = view_of(wires, dialect)
    before = view.estimated_tokens
    applied(ShortenOld(keep=0.0), view)
    assert view.estimated_tokens < 0.6 * before


def test_the_layered_policy_masks_in_place() -> None:
    policy = replace(POLICIES["layered"], guard=())
    context = context_of(session(12, result=LONG), policy=policy)
    request = context.prepare()
    assert results(list(request.messages)).count(True) == 5  # type: ignore[arg-type]


MASK = Mask(keep_first=0, keep_last=1, placeholder=viewed)
SESSION = [
    user("read them"),
    *(m for n in range(3) for m in (call(f"c{n}", arguments=f'{{"n": {n}}}'), result(f"c{n}", LINE * 60))),
    call("c3"),
    result("c3", "ok"),
    call("c4"),
    result("c4", LINE * 60),
]


def test_it_asks_about_each_result_that_the_mask_would_take_and_that_is_large_enough() -> None:
    view = view_of(SESSION)
    assert [(ask.start, ask.stop) for ask in asks_of(Describe(MASK), view)] == [(2, 3), (4, 5), (6, 7)]
    assert asks_of(Describe(MASK, least_tokens=10**6), view) == []


def test_the_question_holds_the_call_and_the_result_and_no_more_than_it_may() -> None:
    ask, *_ = asks_of(Describe(MASK, input_chars=400), view_of(SESSION))
    text = ask.prompt[1]["content"]
    assert text.startswith('call: read {"n": 0}\n<<<result\n')
    body = text.partition("<<<result\n")[2].removesuffix("\nresult>>>")
    assert 300 < len(body) <= 400


def test_what_was_described_is_not_masked_or_described_again() -> None:
    view = view_of(SESSION)
    made = [ask.finish("It has\nlines. ") for ask in asks_of(Describe(MASK), view)]
    commit_all(view, [fold for fold in made if isinstance(fold, Fold)])
    assert contents(view.wires()[0])[2:7:2] == ["[Previously viewed: It has lines.]"] * 3
    assert asks_of(Describe(MASK), view) == []
    assert folds_of(MASK, view) == []


@pytest.mark.parametrize("answer", ["", " \n", "I'm sorry, I can't.", LINE * 61])
def test_an_answer_that_says_nothing_or_too_much_is_rejected(answer: str) -> None:
    ask, *_ = asks_of(Describe(MASK), view_of(SESSION))
    with pytest.raises(SummaryError):
        ask.finish(answer)
