"""What sounds like something to hold on, and what does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldline
from foldline.text.instructions import DURABLE, by_sentence, durability, gist, replaces, sentences


@pytest.mark.parametrize(
    "sentence",
    [
        "Never write to the production database.",
        "You must not commit without running the linter.",
        "From now on answer in German.",
        "When you rename a file, update the index too.",
        "Before you deploy, ask Mira.",
        "I prefer tabs over spaces.",
        "I'd like short answers, not essays.",
        "No emojis in commit messages.",
        "The staging host is db-7.internal.",
        "Important: the key is rotated on Mondays",
        "The next step is to migrate the users table.",
        "The deadline moved to 2027-03-01.",
        "Keep the bundle under 200 kB, at most 210 kB.",
        "请始终用中文回答。",
        "不要修改配置文件。",
    ],
)
def test_rules_wishes_goals_and_facts_are_known(sentence: str) -> None:
    assert durability(sentence) >= DURABLE


@pytest.mark.parametrize(
    "sentence",
    [
        "Thanks, that looks good.",
        "Let me have a look.",
        "Hmm, interesting.",
        "We talked about the weather in the valley.",
        "Hello!",
        "好的，谢谢。",
        "x" * 5_000,
        "never " * 500,
    ],
)
def test_small_talk_and_data_are_not(sentence: str) -> None:
    assert durability(sentence) < DURABLE


def test_a_clearer_rule_counts_more() -> None:
    assert durability("For the rest of this session, never open that folder.") > durability("Please open that folder.")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("For the rest of this session. don't open it.", ["For the rest of this session. don't open it."]),
        ("Use v1.2. Then stop.", ["Use v1.2.", "Then stop."]),
        ('End with "Anything else?" Always.', ['End with "Anything else?"', "Always."]),
        ("a line\n\n another line ", ["a line", "another line"]),
        ("不要打开。好的！", ["不要打开。", "好的！"]),
        ("", []),
    ],
)
def test_sentences_end_at_stops_and_lines(text: str, found: list[str]) -> None:
    assert list(sentences(text)) == found


@given(st.text(max_size=300))
def test_sentences_lose_nothing_but_blanks(text: str) -> None:
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


def test_of_a_long_text_the_sentences_at_its_ends_are_found_and_the_rest_stays_as_it_is() -> None:
    pasted = "\n".join(f"row {number} of the table" for number in range(80_000))
    text = f"Never delete backups. Use port 4711.\n{pasted}\nAlways ask first.   Then go."
    found = sentences(text)
    assert found[:3] == ("Never delete backups.", "Use port 4711.", "row 0 of the table")
    assert found[-2:] == ("Always ask first.", "Then go.")
    assert len(found) < 8_000
    assert set(found) <= set(by_sentence(text).split("\n"))
    assert by_sentence(text).split() == text.split()


def test_a_long_text_without_an_end_has_no_sentences() -> None:
    assert sentences("word " * 100_000) == ()
    assert by_sentence("word " * 100_000).split() == ["word"] * 100_000


def test_two_sentences_that_differ_by_a_value_have_one_gist() -> None:
    assert gist("The cap is $400 until 2027-01-02.") == gist("The cap is  $950 until 2028-11-30.")
    assert gist("Never touch the file notes_5.toml.") != gist("Never touch the file notes_6.toml.")
    assert gist("The project budget is $5.") != gist("The travel budget is $5.")


def test_a_value_is_replaced_by_a_later_one_and_an_order_by_none() -> None:
    assert replaces("The cap is $950.") and replaces("Update: never deploy before 11:00.")
    assert not replaces("Never delete account 1003.")
    assert not replaces("You must keep port 8443 open.")


def test_orders_that_differ_by_a_number_all_stay() -> None:
    rules = [f"Never delete account {number}." for number in (1001, 1002, 1003)]
    said = " ".join(["The import takes long today."] * 60 + rules + ["The report was fine."] * 60)
    history = [{"role": "user", "content": said}]
    for turn in range(60):
        history.append({"role": "assistant", "content": f"Step {turn}: " + "looked at it " * 30})
        history.append({"role": "user", "content": f"Go on with {turn}."})
    text = str(foldline.fit(history, max_tokens=3_000).messages)
    assert [rule in text for rule in rules] == [True] * 3
