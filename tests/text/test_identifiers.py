"""The names in a text: what a later step needs to find again."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.recorded.files import read_session
from foldline.replay import MeasuredSession
from foldline.text import identifiers as module
from foldline.text.identifiers import ALARM, names, names_of_each

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "sessions").glob("*.json.gz"))


def in_one_pass(text: str) -> set[str]:
    """The names as one pass of the pattern over the whole text finds them."""
    found = (name.strip(".-/") for name in re.findall(module._NAME, text))
    return {name for name in found if len(name) >= 5 or (name and name[0] > "\u3000")}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("see src/foldline/view/view.py, please", "src/foldline/view/view.py"),
        ("at ./build/out.log.", "build/out.log"),
        ("raised foldline.errors.DoesNotFit here", "foldline.errors.DoesNotFit"),
        ("the parse_config function", "parse_config"),
        ("ticket OPS-4471 is open", "OPS-4471"),
        ("commit deadbeef42 broke it", "deadbeef42"),
        ("a ValueError came", "ValueError"),
        ("call getUserName", "getUserName"),
        ("port 54321 is taken", "54321"),
        ("booking K7Q2ZD", "K7Q2ZD"),
        ("他在管理上下文", "他在管理上下"),
    ],
)
def test_finds_what_can_be_looked_up_again(text: str, name: str) -> None:
    assert name in names(text)


@pytest.mark.parametrize("text", ["", "the quick brown fox", "a.b", "it is 7 or 42", "… — !"])
def test_ordinary_words_are_no_names(text: str) -> None:
    assert names(text) == set()


def test_edge_punctuation_is_no_part_of_a_name() -> None:
    assert names("(src/app.py).") == {"src/app.py"}


def test_only_the_beginning_of_endless_data_is_looked_at() -> None:
    assert names("x" * 30_000 + " src/late.py") == set()


@pytest.mark.parametrize(
    "line", ["Error: no such file", "tests FAILED", "Traceback (most recent call last)", "access denied"]
)
def test_says_which_lines_are_about_something_gone_wrong(line: str) -> None:
    assert ALARM.search(line)


@pytest.mark.parametrize("line", ["all is well", "terrors of the night", "no problem"])
def test_does_not_take_other_lines_for_alarms(line: str) -> None:
    assert not ALARM.search(line)


@given(st.text("aZ09 ./-_~@\n・的䷀é:(", max_size=80))
def test_the_names_of_a_text_are_those_of_its_words(text: str) -> None:
    assert names(text) == in_one_pass(text)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_names_in_recorded_sessions_are_those_of_one_pass(path: Path) -> None:
    recording = MeasuredSession(read_session(path))
    read = map(recording.codec.read, recording.session.messages)
    texts = [text for message in read for result in message.results for text in (result.text[:20_000],)]
    assert [names(text) for text in texts] == [in_one_pass(text) for text in texts]


@pytest.mark.parametrize(
    "word", ["error", "exception", "traceback", "failure", "fatal", "panic", "denied", "not found"]
)
@pytest.mark.parametrize("written", [str.lower, str.upper, str.title])
def test_words_of_alarm_are_known_in_any_case(word: str, written: Callable[[str], str]) -> None:
    assert ALARM.search(f"it: {written(word)}!")


def test_a_long_text_does_not_outlive_its_session() -> None:
    """A whole result in memory for the life of a process would be a leak, and another client's words."""

    class Whole(str):
        """A text whose end can be seen."""

    def look() -> weakref.ref[Whole]:
        text = Whole("see src/app/x.py line " * 500)
        assert names(text) == {"src/app/x.py"}
        return weakref.ref(text)

    assert look()() is None


@given(st.lists(st.text(alphabet=st.sampled_from("aB3_./-~@ \t\xa0é上の—\ud83d\x85"), max_size=40), max_size=8))
def test_the_names_of_lines_found_together_are_those_of_each(lines: list[str]) -> None:
    assert names_of_each(lines) == [names(line) for line in lines]


def test_as_many_runs_are_remembered_as_were_promised_however_many_come() -> None:
    known = module._NamesOfRuns()
    for number in range(5 * module._RUNS):
        assert known[f"file_{number}"] == {f"file_{number}"}
    assert len(known) + len(known._old) <= 2 * module._RUNS
