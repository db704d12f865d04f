from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from xml.etree import ElementTree

from foldline.report.growth_page import growth_page, in_words, notes, replies_of
from foldline.store.calls import RecordedCall

FIRST = RecordedCall(
    id=1,
    session_id="s-1",
    purpose="reply",
    model="m",
    created_at=datetime(2026, 11, 28, 9, tzinfo=UTC),
    message_count=2,
    request_bytes=1_234,
    prompt_tokens=1_000,
    cached_tokens=0,
    completion_tokens=50,
    estimated=False,
    seconds=2.0,
    folds=0,
    error="",
)


def calls(count: int, *, fold_every: int = 5) -> list[RecordedCall]:
    return [
        replace(
            FIRST,
            id=number + 1,
            created_at=FIRST.created_at + timedelta(seconds=number),
            prompt_tokens=1_000 + 100 * (number % fold_every),
            folds=int(number > 0 and number % fold_every == 0),
        )
        for number in range(count)
    ]


def drawing(page: str) -> ElementTree.Element:
    found = re.search(r"<svg style.*?</svg>", page, re.DOTALL)
    assert found
    return ElementTree.fromstring(found[0])


def rows(page: str) -> list[str]:
    return re.findall(r'<tr><th scope="row">(\d+)</th>', page)


def test_the_newest_calls_stand_in_the_table_newest_first() -> None:
    page = growth_page(calls(12), newest=3)
    assert rows(page) == ["12", "11", "10"]
    assert "<td>2026-11-28 09:00:11</td>" in page


def test_the_line_falls_where_the_folds_are_marked() -> None:
    chart = drawing(growth_page(calls(12), newest=3))
    (line,) = [each for each in chart.iter("polyline") if each.get("class") == "sent"]
    heights = [float(point.split(",")[1]) for point in line.get("points", "").split()]
    falls = [at for at in range(1, 12) if heights[at] > heights[at - 1]]  # SVG counts downward
    assert falls == [5, 10]
    titles = [group.findtext("title") for group in chart.iter("g") if group.get("class") == "fold"]
    assert titles == ["Before call 6, 1 fold: 1,400 → 1,000 tokens", "Before call 11, 1 fold: 1,400 → 1,000 tokens"]


def test_crowded_folds_become_ticks() -> None:
    chart = drawing(growth_page(calls(600, fold_every=2), newest=3))
    marks = [group for group in chart.iter("g") if group.get("class") == "fold"]
    assert len(marks) == 299
    assert all(group.find("circle") is None for group in marks)


def test_a_single_call_is_a_point() -> None:
    chart = drawing(growth_page(calls(1), newest=20))
    assert [each.get("class") for each in chart.iter("circle")] == ["recorded point", "sent point"]


def test_nothing_that_a_server_or_a_name_says_becomes_markup() -> None:
    hostile = replace(FIRST, session_id="<script>a</script>", purpose="<b>", error="</td><img src=x>")
    page = growth_page([hostile], newest=1)
    tags: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append(tag)

    Tags().feed(page)
    assert {"script", "b", "img"}.isdisjoint(tags)
    assert "&lt;/td&gt;&lt;img src=x&gt;" in page


def test_a_page_needs_nothing_from_elsewhere() -> None:
    page = growth_page(calls(3), newest=3)
    assert "default-src 'none'" in page
    assert re.search(r"https?://|<script|<link|url\(", page) is None


def test_counts_of_our_own_are_marked() -> None:
    page = growth_page([replace(FIRST, estimated=True)], newest=1)
    assert "<td>~1,000</td>" in page
    assert "<td>~50</td>" in page


def test_the_line_is_that_of_replies_and_of_all_calls_where_there_is_none() -> None:
    reply, failed, summary = FIRST, replace(FIRST, id=2, error="500"), replace(FIRST, id=3, purpose="summary")
    assert replies_of([reply, failed, summary]) == [reply]
    assert replies_of([failed, summary]) == [failed]
    assert replies_of([summary]) == [summary]


def test_the_figures_in_words() -> None:
    some = [FIRST, replace(FIRST, cached_tokens=900, folds=2), replace(FIRST, prompt_tokens=0, error="500")]
    assert (
        in_words(some)
        == "3 calls, 2 folds; 2k tokens sent, 45% of them from the cache; at most 1k in one call; 1 failed"
    )


def test_notes_name_purpose_folds_and_failure() -> None:
    assert notes(FIRST) == ""
    assert notes(replace(FIRST, purpose="summary", folds=2, error="429: slow")) == "summary, 2 folds, failed"
