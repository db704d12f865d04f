from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bench.tests.page.results import budget, result, session, system_run
from tests.report.test_replay_page import HOSTILE, Outline

from foldline_bench.page.document import bench_page
from foldline_bench.values import BudgetResult

if TYPE_CHECKING:
    from playwright.sync_api import Browser

crowd = pytest.mark.xdist_group("crowd of the bench page")  # one worker alone works out the figures of twenty systems


def text_of(page: str) -> str:
    return " ".join(" ".join(words for _, words in Outline(page).texts).split())


def spots(page: str) -> dict[str, set[str]]:
    """The kinds of each point in the charts of cost against recall, by name."""
    found = re.findall(r'<g class="spot ([a-z ]+)"><title>\d+\. (.*?): cost', page)
    return {name: set(kinds.split()) for kinds, name in found}


def test_the_page_needs_nothing_beside_itself() -> None:
    page = bench_page(result())
    outline = Outline(page)
    assert {tag for tag, _ in outline.elements} & {"script", "link", "img", "iframe", "object", "use", "image"} == set()
    assert re.search(r"https?://|url\(", page) is None
    identifiers = [given["id"] for _, given in outline.elements if "id" in given]
    assert len(identifiers) == len(set(identifiers))


def test_only_what_is_sound_is_on_the_front_and_the_stair_joins_it() -> None:
    page = bench_page(result())
    kinds = spots(page)
    assert kinds["balanced"] == {"front", "own"}
    assert kinds["dear"] == {"front"}
    assert kinds["peer 0"] == {"sound"}
    assert kinds["careless"] == {"wrong"}
    (stair,) = re.findall(r'<path class="stair" d="([^"]*)"', page)
    assert stair.count("H") == 1


def test_the_others_are_named_with_what_is_wrong() -> None:
    words = text_of(bench_page(result()))
    assert (
        "careless 0.10 0.95 10.0% refused by every provider; 15.0% over the budget, up to 1.4 times; 3 errors" in words
    )
    assert "none 1.00 1.00 50.0% over the budget" in words


def test_figures_stand_there_with_their_intervals_where_there_are_sessions_enough() -> None:
    few = budget()
    assert "balanced: cost 0.40, far recall 0.60" in bench_page(result(few))
    [figures] = [run["figures"] for run in few["runs"] if run["system"] == "balanced"]
    assert figures is not None
    ratio = figures["cost"]["anthropic"]["warm"]["ratio"]
    assert ratio is not None
    ratio["sessions"] = 5
    page = bench_page(result(few))
    assert re.search(r"balanced: cost 0\.40 \(0\.3\d to 0\.[45]\d\), far recall 0\.60", page)
    assert page.count('class="whisker') >= 5


def test_each_budget_has_its_charts_and_tables() -> None:
    page = bench_page(result(budget(8_000), budget(16_000)))
    for name in ("Cost against far recall", "Recall over distance", "CPU time of a request", "Cost with warm caches"):
        assert len(re.findall(f'<title id="[^"]*">{name}', page)) == 2
    for caption in ("All figures", "Cost and far recall by kind of work", "CPU time over length"):
        assert page.count(f"<caption>{caption}</caption>") == 2
    links = {given["href"] for given in Outline(page).named("a")}
    assert links == {"#b0", "#b1"}


def test_lines_go_from_near_to_far_and_from_short_to_long() -> None:
    page = bench_page(result())
    lines = re.findall(r'<g class="line c0"><title>balanced</title>.*?<polyline points="([^"]*)"', page, re.DOTALL)
    assert len(lines) == 2
    for line in lines:
        places = [tuple(map(float, point.split(","))) for point in line.split()]
        assert places == sorted(places)
    distance, length = ([float(point.split(",")[1]) for point in line.split()] for line in lines)
    assert distance == sorted(distance), "recall falls with distance: SVG counts downward"
    assert length == sorted(length, reverse=True), "time grows with length"


@crowd
def test_many_systems_are_numbered_and_stay_readable() -> None:
    page = bench_page(result(budget(others=20)))
    labels = re.findall(r'<text class="sound" [^>]*>([^<]*)</text>', page)
    assert len(labels) == 20
    assert all(label.isdigit() for label in labels)
    assert len(page) < 400_000
    assert page.count('<g class="line grey">') >= 40


def test_what_was_not_compared_is_listed_and_not_drawn() -> None:
    one = budget()
    alone = system_run("slow", {"one": session(20, 19)}, {"one": session(100, 20)})
    alone.update({"apart": True, "unfinished": ["two", "three"]})
    gone = system_run("gone", {"one": session(20, 19)}, {"one": session(100, 20)})
    gone.update({"figures": None, "died": "MemoryError", "groups": {}, "stress": None, "unfinished": ["one"]})
    one["runs"] += [alone, gone]
    page = bench_page(result(one))
    assert {"slow", "gone"}.isdisjoint(spots(page))
    words = text_of(page)
    assert "not compared: 2 sessions not finished" in words
    assert "ended early: MemoryError" in words
    assert "slow [over 1 session alone]" in words


def test_the_ratio_to_each_bound_is_shown_where_it_was_computed() -> None:
    assert "By best" not in text_of(bench_page(result()))
    one = budget()
    figures = one["runs"][1]["figures"]
    assert figures is not None
    figures["bound"], figures["worst_bound"] = {"value": 1.19, "low": 1.1, "high": 1.3, "sessions": 3}, 1.42
    figures["needs_bound"], figures["worst_needs_bound"] = {"value": 2.1, "low": 1.9, "high": 2.3, "sessions": 3}, 5.6
    figures["stages_bound"], figures["worst_stages_bound"] = {"value": 1.2, "low": 1.1, "high": 1.4, "sessions": 3}, 2.5
    words = text_of(bench_page(result(one)))
    assert "By best: the bill by that of the cheapest folds in hindsight" in words
    assert "By needs: by the least at the same far recall" in words
    assert "By stages: the bill with re-reads" in words
    assert "balanced 0.40 0.60 1.19 (1.42) 2.10 (5.60) 1.20 (2.50) –" in words


def test_without_far_references_or_runs_it_is_a_page_too() -> None:
    empty = budget()
    for run in empty["runs"]:
        if run["figures"] is not None:
            for kept in run["figures"]["recall"]["beyond"]:
                kept.update({"per_session": None, "pooled": None})
        run["stress"] = None
    Outline(bench_page(result(empty)))
    nothing: BudgetResult = {
        "budget_tokens": 8_000,
        "sessions": [],
        "too_small": [],
        "common": [],
        "parts": None,
        "runs": [],
    }
    Outline(bench_page(result(nothing)))


def test_names_and_last_words_of_others_cannot_become_markup() -> None:
    one = budget()
    one["runs"][1].update({"system": HOSTILE, "died": HOSTILE})
    given = result(one)
    given["absent"] = [{"peer": HOSTILE, "reason": HOSTILE}]
    given["systems"][1].update({"name": HOSTILE, "packages": {HOSTILE: HOSTILE}})
    given["counter"] = HOSTILE
    page = bench_page(given)
    page.encode()
    assert "<script" not in page
    assert "script" not in {tag for tag, _ in Outline(page).elements}


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of many systems, with names and words that are too long for any line."""
    path = tmp_path_factory.mktemp("page") / "bench.html"
    given = result(budget(others=20), budget(48_000, others=20))
    given["left_out"] = [{"file": f"{'w' * 180}.json", "reason": "r" * 280}]
    given["absent"] = [{"peer": "p" * 90, "reason": "r" * 280}]
    given["budgets"][0]["too_small"] = ["s" * 180]
    run = given["budgets"][0]["runs"][1]
    assert run["figures"] is not None
    run["figures"].update({"errors": 3, "first_error": f"ValueError: {'e' * 300}"})
    path.write_text(bench_page(given), "utf-8")
    return path


@crowd
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_it_fits_any_screen(browser: Browser, crowded: Path, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)  # type: ignore[arg-type]
    with context:
        page = context.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.goto(crowded.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert said == []
        outside = page.evaluate(
            """Array.from(document.querySelectorAll('svg[role=img] text')).filter(each => {
                const box = each.getBBox(), { width, height } = each.ownerSVGElement.viewBox.baseVal;
                return box.x < -1 || box.y < -1 || box.x + box.width > width + 1 || box.y + box.height > height + 1;
            }).map(each => each.textContent)"""
        )
        assert outside == []
        covered = page.evaluate(
            """Array.from(document.querySelectorAll('.pair svg')).flatMap(chart => {
                const labels = Array.from(chart.querySelectorAll('text:is(.own, .front, .sound, .wrong)'));
                return labels.flatMap((each, at) => labels.slice(at + 1).filter(other => {
                    const a = each.getBBox(), b = other.getBBox(), wide = Math.min(a.x + a.width, b.x + b.width);
                    const high = Math.min(a.y + a.height, b.y + b.height);
                    return wide - Math.max(a.x, b.x) > 1 && high - Math.max(a.y, b.y) > 4;
                }).map(other => `${each.textContent} ${other.textContent}`));
            })"""
        )
        assert covered == []
