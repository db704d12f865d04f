"""Accessibility of the page: keyboard, names, colour schemes, small screens; and no foreign resource."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.doors.http.page.page_server import ENTERED, TITLE, PageServer, listed, opened

pytest.importorskip("playwright")
from playwright.sync_api import Browser, BrowserContext, Page, expect

pytestmark = pytest.mark.xdist_group("context page")  # one server, and one session that has folds, for all of these

FOLDER = Path(__file__).parents[4] / "src/foldline/doors/http/page"

# What has no name for those who do not see it. Hidden elements are not reached, so they need none.
NAMELESS = """() => {
  const words = (ones) => [...ones].map((one) => one?.textContent ?? "").join("");
  const by = (one) => (one.getAttribute("aria-labelledby") ?? "").split(" ").map((id) => document.getElementById(id));
  const name = (one) => one.getAttribute("aria-label") || words(by(one)) || words(one.labels ?? [])
    || (one.matches("a, button") ? one.textContent : "");
  const wanted = "a, button, input, select, textarea, [role=meter], [role=img], [role=tabpanel], "
    + "main ol:not(details ol), main section, main aside, main nav, dialog";
  return [...document.querySelectorAll(wanted)].filter((one) => one.checkVisibility() && !name(one).trim())
    .map((one) => one.outerHTML.slice(0, 100));
}"""

HEADINGS = """() => [...document.querySelectorAll("h1, h2, h3, h4")].filter((one) => one.checkVisibility())
  .map((one) => Number(one.tagName[1]))"""

# Text with less than 4.5 : 1 to what is behind it (WCAG 2.2, 1.4.3), composed of all that is half transparent; where
# that is a gradient, to each of its colours. Text that is cut away for the eye is left out.
FAINT = r"""() => {
  const rgba = (text) => {
    const found = text.match(/-?[\d.]+(e-?\d+)?/g).map(Number);
    const [r, g, b] = text.startsWith("color(") ? found.slice(0, 3).map((v) => v * 255) : found;
    return [r, g, b, found[3] ?? 1];
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((v, i) => v * a + under[i] * (1 - a));
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const known = new Map([[null, [[255, 255, 255]]]]);
  const grounds = (one) => {
    if (!known.has(one)) {
      const style = getComputedStyle(one);
      const plain = grounds(one.parentElement).map((ground) => over(rgba(style.backgroundColor), ground));
      const colours = style.backgroundImage.match(/(rgba?|color)\([^)]*\)/g) ?? [];
      known.set(one, [...plain, ...plain.flatMap((ground) => colours.map((colour) => over(rgba(colour), ground)))]);
    }
    return known.get(one);
  };
  const out = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const one = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !one.checkVisibility()) continue;
    if (one.closest("script, style, option, .unseen, .skip")) continue;
    const colour = rgba(getComputedStyle(one).color);
    const worst = Math.min(...grounds(one).map((ground) => ratio(over(colour, ground), ground)));
    if (worst < 4.5) out.push(`${worst.toFixed(2)} ${one.className} ${texts.currentNode.data.trim().slice(0, 40)}`);
  }
  return out;
}"""

WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


def entered(context: BrowserContext) -> Page:
    """A page that has the token."""
    page = context.new_page()
    page.add_init_script(ENTERED)
    return page


def states(page: Page, served: PageServer, session: str) -> Iterator[str]:
    """The views of the page, one after the other, in each of which everything must hold."""
    listed(page, served)
    yield "list"
    page.get_by_role("button", name="New session").click()
    yield "new session"
    page.keyboard.press("Escape")
    opened(page, served, session)
    yield "session"
    page.locator(".pane.all .list").evaluate("list => { list.scrollTop = 0; }")
    page.locator(".pane.all [data-state='hidden'] button").first.click()
    expect(page.get_by_role("complementary").get_by_role("heading", level=2)).to_be_focused()
    yield "details"
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Compact…").click()
    yield "compact"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    yield "keys"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_has_a_name_headings_are_in_order_and_text_stands_out(
    page: Page, served: PageServer, folded: str, scheme: Any
) -> None:
    page.emulate_media(color_scheme=scheme)
    for view in states(page, served, folded):
        assert page.evaluate(NAMELESS) == [], view
        levels = page.evaluate(HEADINGS)
        assert levels.count(1) == 1, view
        assert all(below - above <= 1 for above, below in pairwise(levels)), (view, levels)
        assert page.evaluate(FAINT) == [], view
    page.emulate_media(color_scheme="null")


def test_nothing_is_wider_than_the_screen(page: Page, served: PageServer, folded: str) -> None:
    before = page.viewport_size
    listed(page, served)
    for view in ("list", "session"):
        for width in (320, 375, 760, 1280):
            page.set_viewport_size({"width": width, "height": 812})
            assert page.evaluate(WIDE) == 0, (view, width)
        opened(page, served, folded)
    assert before is not None
    page.set_viewport_size(before)


def test_a_phone_shows_one_thing_at_a_time_behind_tabs(browser: Browser, served: PageServer, folded: str) -> None:
    context = browser.new_context(viewport={"width": 375, "height": 812})
    page = entered(context)
    opened(page, served, folded)
    seen, all_ = (
        page.get_by_role("tabpanel", name="What the model sees"),
        page.get_by_role("tabpanel", name="Everything"),
    )
    expect(seen).to_be_visible()
    expect(all_).to_be_hidden()
    page.get_by_role("tab", name="Model sees").press("ArrowRight")
    expect(page.get_by_role("tab", name="Everything")).to_be_focused()
    expect(page.get_by_role("tab", name="Everything")).to_have_attribute("aria-selected", "true")
    expect(seen).to_be_hidden()
    all_.locator("[data-state='hidden'] button").last.click()
    aside = page.get_by_role("complementary")
    expect(aside.get_by_role("heading", level=2)).to_be_focused()
    assert page.evaluate(WIDE) == 0
    assert aside.bounding_box() == {"x": 0, "y": 0, "width": 375, "height": 812}
    aside.get_by_role("button", name="Close details").click()
    page.get_by_role("tab", name="Turns").click()
    page.get_by_role("list", name="Turns").get_by_role("button").first.click()
    expect(all_.locator("[data-start='0'] button")).to_be_focused()
    context.close()


def test_all_is_reached_by_the_keyboard_alone(page: Page, served: PageServer, folded: str) -> None:
    other = served.create_session(title="Newest")
    served.say(other, "Hello")
    listed(page, served)
    focused = page.locator(":focus")
    press = page.keyboard.press

    press("j")
    expect(focused).to_contain_text("Newest")
    press("j")
    expect(focused).to_contain_text(TITLE)
    press("k")
    press("ArrowDown")
    press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(TITLE)
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    expect(page.locator("#connection")).to_have_text("live")

    press("f")
    expect(focused).to_have_accessible_name(re.compile("^Messages? .*(folded|shortened)"))
    press("Enter")
    expect(page.get_by_role("complementary").get_by_role("heading", level=2)).to_be_focused()
    press("Tab")
    expect(focused).to_have_accessible_name("Close details")
    press("Escape")
    expect(focused).to_have_accessible_name(re.compile("^Messages? .*(folded|shortened)"))
    press("ArrowRight")
    expect(focused).to_have_accessible_name(re.compile("^Message .*(hidden|shortened)"))
    press("End")
    expect(page.locator(".pane.all li:last-child button")).to_be_focused()
    press("ArrowLeft")
    expect(page.locator(".pane.shown li:last-child button")).to_be_focused()

    press("/")
    expect(page.get_by_role("textbox", name="Say something")).to_be_focused()
    page.keyboard.type("?")  # a letter here
    expect(page.get_by_role("textbox", name="Say something")).to_have_value("?")
    press("Backspace")
    press("Escape")
    press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()


def test_each_list_is_one_stop_of_the_tab_key_and_every_control_is_one(
    page: Page, served: PageServer, folded: str
) -> None:
    opened(page, served, folded)
    page.locator("body").click(position={"x": 1, "y": 1})
    stops = []
    for _ in range(25):
        page.keyboard.press("Tab")
        stop = page.evaluate("""() => {
            const one = document.activeElement.closest("[data-list]") ?? document.activeElement;
            return one.ariaLabel ?? one.ariaLabelledByElements?.[0].textContent ?? one.textContent;
        }""")
        if stop in stops:
            break
        stops.append(stop)
    wanted = ["Undo", "Compact…", "Turns", "What the model sees", "Everything", "Say something", "Send"]
    assert [stop for stop in stops if stop in wanted] == wanted


def test_the_focus_is_seen(page: Page, served: PageServer, folded: str) -> None:
    opened(page, served, folded)
    for key in ("f", "Tab"):
        page.keyboard.press(key)
        style, width = page.evaluate("""() => {
            const style = getComputedStyle(document.activeElement);
            return [style.outlineStyle, parseFloat(style.outlineWidth)];
        }""")
        assert (style, width) == ("solid", 2)


def test_the_scheme_is_chosen_by_the_button_and_kept(browser: Browser, served: PageServer) -> None:
    context = browser.new_context(color_scheme="light")
    page = entered(context)
    page.goto(served.url)
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    white = page.evaluate(ground)
    button = page.get_by_role("button", name="Scheme")
    button.click()
    expect(button).to_have_text("Scheme: light")
    button.click()
    expect(button).to_have_text("Scheme: dark")
    dark = page.evaluate(ground)
    assert (white, dark) == ("rgb(255, 255, 255)", "rgb(21, 24, 28)")
    page.reload()
    expect(page.get_by_role("button", name="Scheme")).to_have_text("Scheme: dark")
    assert page.evaluate(ground) == dark
    context.close()


def test_nothing_moves_for_those_who_want_it_so(browser: Browser, served: PageServer) -> None:
    context = browser.new_context(reduced_motion="reduce")
    page = entered(context)
    served.create_session(title="Still")
    page.goto(served.url)
    mark = page.locator(".running").first
    expect(mark).to_be_attached()
    mark.evaluate("one => { one.closest('li').dataset.state = 'running'; }")
    assert page.evaluate("document.getAnimations().length") == 0
    context.close()


def test_nothing_comes_from_elsewhere_and_nothing_runs_that_is_not_a_file_of_ours(
    browser: Browser, served: PageServer, folded: str
) -> None:
    context = browser.new_context()
    page = entered(context)
    asked: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    listed(page, served)
    opened(page, served, folded)
    context.close()
    assert len(asked) > 20
    assert [url for url in asked if not url.startswith(f"{served.url}/")] == []
    assert complaints == []  # the browser reports here what the Content-Security-Policy forbids
    policy = served.api.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_the_page_reads_no_markup_from_texts() -> None:
    sources = "".join(file.read_text("utf-8") for file in FOLDER.glob("*.js"))
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(", sources) == []
    page = (FOLDER / "index.html").read_text("utf-8")
    assert re.findall(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page) == []


def test_every_file_is_small_enough_to_be_read_and_every_module_asked_for_at_once() -> None:
    lines = {file.name: file.read_text("utf-8").count("\n") for file in FOLDER.iterdir()}
    assert {name: count for name, count in lines.items() if count > 400} == {}
    page = (FOLDER / "index.html").read_text("utf-8")
    assert {name for name in lines if name.endswith(".js") and f'"static/{name}"' not in page} == set()
