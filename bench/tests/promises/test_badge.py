"""The badge says how many promises are kept, in a file for shields.io and in a picture."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from foldline.errors import InvalidInput
from foldline_bench.promises.badge import badge_files, badge_json, badge_svg
from foldline_bench.promises.suite import ConformanceReport, PromiseRow, Status


def report_of(*statuses: Status, partial: bool = False) -> ConformanceReport:
    rows = [PromiseRow(f"p{number}", "a promise", status) for number, status in enumerate(statuses)]
    return ConformanceReport("<t>", "class", ("gemini",), (4_000,), 0, "0.1.0", 0.0, rows, partial=partial)


@pytest.mark.parametrize(
    ("statuses", "message", "colour"),
    [
        (("passed", "passed", "not applicable"), "2 of 2 promises", "brightgreen"),
        (("passed", "passed", "passed", "failed"), "3 of 4 promises", "yellow"),
        (("passed", "failed"), "1 of 2 promises", "red"),
        (("not applicable",), "0 of 0 promises", "lightgrey"),
    ],
)
def test_a_badge_has_the_words_and_the_colour_of_its_report(
    statuses: tuple[Status, ...], message: str, colour: str
) -> None:
    badge = json.loads(badge_json(report_of(*statuses)))
    assert badge == {"schemaVersion": 1, "label": "foldline conformance", "message": message, "color": colour}
    picture = ElementTree.fromstring(badge_svg(report_of(*statuses)))
    assert [element.text for element in picture.iter() if element.tag.endswith("}text")] == [badge["label"], message]
    assert int(picture.attrib["width"]) == sum(
        int(e.attrib["width"]) for e in picture.iter() if e.tag.endswith("}rect")
    )


def test_a_run_that_was_stopped_is_no_result() -> None:
    badge = json.loads(badge_json(report_of("passed", "not run", partial=True)))
    assert (badge["message"], badge["color"]) == ("1 of 1 promises (stopped)", "lightgrey")


def test_a_name_without_an_ending_makes_both_files() -> None:
    assert badge_files("a/b") == ("a/b.json", "a/b.svg")
    assert badge_files("b.svg") == ("b.svg",)
    with pytest.raises(InvalidInput, match=r"--badge: ends in \.json or \.svg"):
        badge_files("b.png")
