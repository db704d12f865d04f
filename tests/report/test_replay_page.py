from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline.errors import Part
from foldline.replay import NONE, Mark, Replay, Turn
from foldline.report.chart import chart, fold_text
from foldline.report.replay_page import replay_page

VOID = frozenset({"meta", "br", "hr", "img", "input", "link"})
FOLD = Mark(3, 9, "mask", "trigger 85 % reached", 12_345, 678)


def replayed(session: str = "s", policy: str = "balanced", *turns: dict[str, Any], limit: int = 100) -> Replay:
    made = tuple(
        Turn(**{"index": n, "messages": 2 * n + 2, "recorded_tokens": 40 * n + 40, **turn})
        for n, turn in enumerate(turns)
    )
    return Replay(
        session=session,
        policy=policy,
        dialect="openai-chat",
        window=limit,
        limit_tokens=limit,
        counter="estimate",
        recorded_tokens=made[-1].recorded_tokens if made else 0,
        turns=made,
    )


GROWING = ({"tokens": 40}, {"tokens": 80, "cost_tokens": 50.0}, {"tokens": 60, "folds": (FOLD,), "prefix_broken": True})
WHOLE = ({"tokens": 40}, {"tokens": 80, "cost_tokens": 90.0}, {"tokens": 120, "over_budget": True})
PAIR = (replayed("s", NONE, *WHOLE), replayed("s", "balanced", *GROWING))
OTHER = (replayed("t", NONE, *WHOLE), replayed("t", "balanced", *GROWING))


class Outline(HTMLParser):
    """Checks that elements nest, and collects what tests inspect."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.append((self.open[-1], data))

    def named(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]


def test_the_page_is_self_contained() -> None:
    outline = Outline(replay_page(PAIR, prices="anthropic"))
    assert {tag for tag, _ in outline.elements} & {"script", "link", "img", "iframe", "object", "use", "image"} == set()
    attributes = [name for _, given in outline.elements for name in given]
    assert not any(name.startswith("on") or name in {"src", "href", "xlink:href"} for name in attributes)
    assert "url(" not in replay_page(PAIR)
    policy = [given["content"] for given in outline.named("meta") if given.get("http-equiv")]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_the_figures_come_before_the_charts() -> None:
    text = replay_page((*PAIR, *OTHER))
    assert text.index("<table") < text.index('role="img"')
    section = text[text.index("<section") :]
    assert section.index("<table") < section.index('role="img"')


def test_the_figures_of_an_only_session_stand_there_once() -> None:
    assert replay_page(PAIR).count("<caption>") == 1
    assert replay_page((*PAIR, *OTHER)).count("<caption>") == 3


def test_no_management_is_the_first_row() -> None:
    assert PAIR[1].policy == "balanced"
    outline = Outline(replay_page((PAIR[1], PAIR[0])))
    assert [text for text in outline.text("th") if text in {NONE, "balanced"}] == [NONE, "balanced"]


def test_every_chart_has_a_title_and_a_description() -> None:
    outline = Outline(replay_page(PAIR))
    drawn = [given for given in outline.named("svg") if given.get("role") == "img"]
    assert drawn
    identifiers = [given["id"] for _, given in outline.elements if "id" in given]
    assert len(identifiers) == len(set(identifiers))
    for svg in drawn:
        assert set(svg["aria-labelledby"].split()) <= set(identifiers)
    assert "3 requests: from 40 to 60 tokens, at most 80; limit 100." in " ".join(outline.text("desc"))


def test_tables_can_be_reached_with_the_keyboard_and_have_headings() -> None:
    outline = Outline(replay_page(PAIR))
    scrolling = [given for given in outline.named("div") if given.get("class") == "scroll"]
    assert all(given["tabindex"] == "0" and given["aria-label"] for given in scrolling)
    assert all(given.get("scope") in {"col", "row"} for given in outline.named("th"))


def test_folds_are_marked_and_listed_with_their_reason_and_saving() -> None:
    text = replay_page(PAIR)
    assert text.count('<g class="fold"><title>') == 1
    line = "mask, messages 3 to 8: 12,345 → 678 tokens (trigger 85 % reached)"
    assert fold_text(FOLD) == line
    assert f"Before request 3, 1 fold:\n{line}</title>" in text
    assert f'<td>3</td><td class="text">{line}</td>' in text


def test_a_policy_without_folds_is_named_and_not_drawn() -> None:
    text = replay_page((*PAIR, replayed("s", "confirm", *WHOLE)))
    assert "Nothing to fold under confirm." in text
    assert "Context size under confirm" not in text


def test_a_session_that_never_folds_says_so() -> None:
    assert "Nothing to fold under any policy." in replay_page((PAIR[0], replayed("s", "confirm", *WHOLE)))


def test_no_management_alone_is_drawn() -> None:
    assert "Context size under none" in replay_page(PAIR[:1])


def test_refused_requests_are_marked_with_their_parts() -> None:
    refused = {"refused": (Part("system text", 5_000, 0),)}
    text = replay_page((PAIR[0], replayed("s", "cost", {"tokens": 40}, refused, {"tokens": 50})))
    assert "Request 2 does not fit: system text (message 0): 5,000 tokens" in text
    assert text.count('class="sent point"') == 2, "the line is broken where nothing was sent"
    assert '<td class="bad">1</td>' in text


def test_nothing_replayed_is_a_page_too() -> None:
    assert "Nothing was replayed." in Outline(replay_page([])).text("p")


HOSTILE = "</title><script>alert(1)</script>\"'&\x00\ud800"


def test_text_of_a_session_cannot_become_markup() -> None:
    mark = Mark(0, 1, HOSTILE, HOSTILE, 10, 5)
    turns = ({"tokens": 5, "folds": (mark,)}, {"refused": (Part(HOSTILE, 5),)})
    text = replay_page([replayed(HOSTILE, HOSTILE, *turns)], prices=HOSTILE)
    text.encode()
    assert "<script" not in text
    assert "\x00" not in text
    outline = Outline(text)
    assert "script" not in {tag for tag, _ in outline.elements}


def coordinates(text: str) -> Iterator[tuple[float, float]]:
    for points in re.findall(r' points="([^"]*)"', text):
        for pair in points.split():
            x, y = pair.split(",")
            yield float(x), float(y)


sizes = st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7), st.booleans()), min_size=1, max_size=30)


@costly
@given(sizes, st.integers(1, 10**7))
def test_a_chart_stays_inside_its_frame(given_turns: list[tuple[int, int, bool]], limit: int) -> None:
    turns = tuple(
        {"recorded_tokens": recorded, "refused": (Part("tools", 1),)}
        if refused
        else {"tokens": tokens, "recorded_tokens": recorded, "folds": (FOLD,)}
        for recorded, tokens, refused in given_turns
    )
    drawn = chart(replayed("s", "p", *turns, limit=limit), identifier="x")
    Outline(drawn)
    for x, y in coordinates(drawn):
        assert 0 <= x <= 360
        assert 0 <= y <= 172


@pytest.mark.parametrize("limit", [50, 10_000])
def test_the_limit_is_drawn_or_named(limit: int) -> None:
    drawn = chart(replayed("s", "p", *GROWING, limit=limit), identifier="x")
    assert ('class="limit"' in drawn) is (limit == 50)
    assert ("limit 10k, above" in drawn) is (limit == 10_000)
