from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result
from tests.hosting.stored_sessions import SECRET, delegate, store_in, talk
from tests.report.stored_sessions import EXAMPLES, Clock, example, store_session

from foldline.cli.main import cli
from foldline.engine.context import Context
from foldline.report.document import document
from foldline.store.folders import FileStore
from foldline.store.paths import sessions_path
from foldline.testing import session

if TYPE_CHECKING:
    from playwright.sync_api import Browser

(FILE,) = EXAMPLES.glob("tau*")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FOLDLINE_STORE", raising=False)
    return tmp_path


def run(*arguments: str, home: Path | None = None) -> Result:
    given = [] if home is None else ["--home", str(home)]
    return CliRunner().invoke(cli, ["report", *arguments, *given])


def page_of(result: Result, file: str = "foldline-report.html") -> str:
    assert result.exit_code == 0, result.output
    return Path(file).read_text("utf-8")


def test_a_recorded_file_is_replayed_and_told() -> None:
    result = run(str(FILE), "--window", "8000", "--model", "gpt-5", "-o", "r.html")
    page = page_of(result, "r.html")
    assert result.stderr == "foldline: wrote r.html, 1 session\n"
    assert "tau-airline-46-t3" in page
    assert "policy <bdi>balanced</bdi>, window 8,000 tokens" in page
    assert "replayed" in page


def test_the_page_is_for_its_owner_only_and_whole_or_not_there(place: Path) -> None:
    (place / "foldline-report.html").write_text("the old one")
    os.chmod(place / "foldline-report.html", 0o644)
    page_of(run(str(FILE)))
    assert stat.S_IMODE(os.stat("foldline-report.html").st_mode) == 0o600
    assert os.listdir(place) == ["foldline-report.html"]


def test_all_kept_sessions_are_told_the_newest_first(place: Path) -> None:
    clock = Clock()
    store = FileStore(sessions_path({"FOLDLINE_HOME": str(place)}), clock=clock, fsync=False)
    names = [store_session(store, example("tau"), clock, window=6_000) for _ in range(2)]
    page = page_of(run(home=place))
    assert page.index(f'<h2 id="s0"><bdi>{names[1]}') < page.index(f'<h2 id="s1"><bdi>{names[0]}')
    assert f"--home {place}" in page


def test_only_what_was_written_since_a_day_is_told(place: Path) -> None:
    clock = Clock()
    store = FileStore(sessions_path({"FOLDLINE_HOME": str(place)}), clock=clock, fsync=False)
    old = store_session(store, example("tau"), clock)
    clock.after(86_400 * 3)
    new = store_session(store, example("tau"), clock)
    page = page_of(run("--since", "2026-11-29", home=place))
    assert new in page
    assert old not in page
    result = run("--since", "2027-01-01", home=place)
    assert result.exit_code == 2
    assert "there is no session written since " in result.stderr


def test_one_session_is_named_as_everywhere(place: Path) -> None:
    name, _ = talk(place)
    for named in (name, "latest", name[:-2]):
        assert f"<bdi>{name}</bdi>" in page_of(run(named, home=place))


def test_sessions_of_sub_agents_are_in_the_sums(place: Path) -> None:
    name = delegate(place)
    page = page_of(run(home=place))
    assert f"{name}/agents/" in page
    assert "2 sessions; " in page


def test_secrets_and_controls_of_a_session_are_not_on_the_page(place: Path) -> None:
    talk(place)
    page = page_of(run(home=place))
    assert SECRET not in page
    assert "\x1b" not in page
    assert "Still readable" in page


def test_a_session_of_which_no_usage_is_known_is_replayed(place: Path) -> None:
    with store_in(place).create(dialect="openai-chat", model="gpt-5", window=8_000) as stored:
        context = Context(window=8_000)
        context.extend([*session(3), {"role": "assistant", "content": "Done."}])
        stored.append(context.events)
    page = page_of(run(home=place))
    assert "replayed" in page
    assert stored.id in page


def test_what_cannot_be_read_is_left_out_and_said(place: Path) -> None:
    good, _ = talk(place)
    bad, _ = talk(place)
    log = store_in(place).root / bad / "events.jsonl"
    log.write_bytes(b"no JSON\n" + log.read_bytes())
    result = run(home=place)
    page = page_of(result)
    assert f"foldline: {bad} is left out: " in result.stderr
    assert "1 session not on this page" in page
    assert good in page
    named = run(bad, home=place)
    assert named.exit_code == 2
    assert named.stderr.startswith("foldline: ")


def test_a_session_without_an_answer_is_left_out(place: Path) -> None:
    with store_in(place).create(dialect="openai-chat", window=8_000) as stored:
        context = Context(window=8_000)
        context.append({"role": "user", "content": "Hello?"})
        stored.append(context.events)
    assert f"{stored.id} is left out: no model has answered in it" in run(home=place).stderr


def test_a_record_of_calls_that_cannot_be_read_is_said_and_the_log_is_taken(place: Path) -> None:
    talk(place)
    (place / "data" / "llm_calls.sqlite").write_text("no database " * 100)
    result = run(home=place)
    assert "the record of calls cannot be read" in result.stderr
    assert "with Foldline" in page_of(result)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.json"], "none.json: no such file or directory"),
        (["nobody"], "nobody"),
        ([], "there is no session"),
        ([str(FILE), "-o", "no/folder.html"], "there is no such folder to write to"),
        ([str(FILE), "--since", "2026-01-01"], "--since selects stored sessions"),
        (["--since", "yesterday"], "'yesterday' is not a day such as 2026-11-28"),
        ([str(FILE), "--policy", "best"], "unknown policy 'best'"),
        ([str(FILE), "--window", "0"], "--window"),
        ([str(FILE), "--window", "8x"], "'8x' is not a size such as 16000 or 16k"),
        (["--store", "sqlite:///none.db"], "there is no such database"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(arguments: list[str], words: str, place: Path) -> None:
    result = run(*arguments, home=place)
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert list(place.glob("**/*.html")) == []


def test_a_file_that_is_no_session_is_named_with_its_place(place: Path) -> None:
    (place / "bad.json").write_text('{"messages": [{"role": "user", "content": 5}]}')
    result = run("bad.json")
    assert result.exit_code == 2
    assert result.stderr == 'foldline: bad.json: message 0: "content" is a number, not text or a list of blocks\n'


def test_a_folder_stands_for_the_sessions_in_its_files(place: Path) -> None:
    (place / "runs" / "deep").mkdir(parents=True)
    shutil.copy(FILE, place / "runs" / "deep")
    (place / "runs" / "bad.json").write_text("{}")
    (place / "runs" / "notes.txt").write_text("no session")
    result = run(str(place / "runs"), "--window", "8k")
    assert "left out: " in result.stderr
    assert "bad.json" in result.stderr.splitlines()[0]
    assert result.stderr.endswith("wrote foldline-report.html, 1 session\n")
    page = page_of(result)
    assert "tau-airline-46-t3" in page
    assert "window 8,000 tokens" in page
    assert "bad.json" in page


def test_a_folder_without_readable_files_is_refused_and_that_of_a_store_is_told_apart(place: Path) -> None:
    (place / "empty").mkdir()
    (place / "bad").mkdir()
    (place / "bad" / "bad.json").write_text("{}")
    assert "empty: holds no session" in run("empty").stderr
    assert "bad: none of its 1 file can be read" in run("bad").stderr
    name, _ = talk(place)
    store = store_in(place).root
    assert f"foldline report --store {store}" in run(str(store), home=place).stderr
    os.chdir(store)
    page_of(run(name, home=place))


def test_standard_output_gets_the_page_and_nothing_else(place: Path) -> None:
    result = run(str(FILE), "-o", "-")
    assert result.exit_code == 0
    assert result.stdout.startswith("<!doctype html>")
    assert result.stdout.endswith("</html>\n")
    assert list(place.iterdir()) == []
    assert run(str(FILE), "-o", "-", "--open").exit_code == 2


def test_a_database_is_told_as_a_folder_is(place: Path) -> None:
    name, _ = talk(place)
    address = f"sqlite:///{place}/sessions.db"
    copied = CliRunner().invoke(cli, ["sessions", "copy", name, "--to", address, "--home", str(place)])
    assert copied.exit_code == 0, copied.output
    pages = [page_of(run(name, *where, home=place)) for where in ((), ("--store", address))]
    folder, database = (page.replace(f" --store {address}", "") for page in pages)
    assert folder == database


def test_files_need_no_store() -> None:
    page_of(run(str(FILE), "--store", "postgresql://nobody@127.0.0.1:1/none"))


# --- in a browser ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page over real sessions, one of them full of what would like to be a page itself."""
    home = tmp_path_factory.mktemp("home")
    clock = Clock()
    store = FileStore(sessions_path({"FOLDLINE_HOME": str(home)}), clock=clock, fsync=False)
    store_session(store, example("devai"), clock)
    bad = "<img src=x onerror=document.title='taken'><script>document.title='taken'</script>\u202e" + "w" * 400
    recorded = session(30, result=f"{bad}\n" * 20, task=bad)
    name = store.create(dialect="openai-chat", model=bad, window=4_000, title=bad)
    with name as stored:
        context = Context(window=4_000, max_output_tokens=400)
        for wire in recorded:
            context.append(wire)
            if wire["role"] != "assistant":
                request = context.prepare()
                context.observe({"prompt_tokens": request.tokens, "completion_tokens": 9})
        stored.append(context.events)
    output = home / "page.html"
    assert run("-o", str(output), home=home).exit_code == 0
    return output


in_browser = pytest.mark.xdist_group("browser of reports")  # one browser, and one page, for all of these


@in_browser
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_it_fits_any_screen_and_runs_nothing(browser: Browser, hostile: Path, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)  # type: ignore[arg-type]
    with context:
        page = context.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(hostile.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.title() == "Foldline report"
        assert said == []
        assert asked == [hostile.as_uri()]
        assert page.locator("section svg[role=img]").count() == 2
        assert page.locator("img, script").count() == 0
        colours = page.evaluate(
            "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        )
        assert (colours[0] == "rgb(255, 255, 255)") == (scheme == "light")


@in_browser
def test_on_a_phone_each_figure_of_the_table_stands_under_its_name(browser: Browser, hostile: Path) -> None:
    with browser.new_context(viewport={"width": 390, "height": 844}) as context:
        page = context.new_page()
        page.goto(hostile.as_uri())
        table = page.locator(".scroll").first
        assert table.evaluate("box => box.scrollWidth <= box.clientWidth")
        cells = table.evaluate(
            """table => Array.from(table.querySelectorAll("td"), cell => {
                const { x, width, height } = cell.getBoundingClientRect();
                const seen = width > 0 && height > 0 && getComputedStyle(cell).visibility === "visible";
                return [seen, cell.scrollWidth <= cell.clientWidth + 1, x >= 0 && x + width <= 390];
            })"""
        )
        assert cells
        assert all(all(cell) for cell in cells)
        ratio = table.locator("[data-is=ratio]").first
        assert "ratio" in ratio.evaluate("cell => getComputedStyle(cell, '::before').content")
        assert "open “Folds and why”" in page.locator(".key").inner_text()


@in_browser
def test_a_long_name_of_a_file_that_was_left_out_is_broken(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    (folder / FILE.name).write_bytes(FILE.read_bytes())
    (folder / f"{'w' * 180}.json").write_text("{", "utf-8")
    output = tmp_path / "page.html"
    assert run(str(folder), "-o", str(output)).exit_code == 0
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(output.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 844})
            assert page.get_by_text("w" * 60).is_visible()
            assert page.evaluate("document.documentElement.scrollWidth") == width


@in_browser
def test_on_a_phone_a_box_that_scrolls_shows_that_there_is_more(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "wide.html"
    cells = "".join(f"<td>figure {number}</td>" for number in range(20))
    file.write_text(document("Wide", [f'<div class="scroll"><table><tr>{cells}</tr></table></div>']), "utf-8")
    with browser.new_context(viewport={"width": 390, "height": 844}) as context:
        page = context.new_page()
        page.goto(file.as_uri())
        table = page.locator(".scroll").first
        assert table.evaluate("box => box.scrollWidth > box.clientWidth")
        left = table.screenshot()
        assert table.evaluate("box => getComputedStyle(box).backgroundAttachment") == "local, local, scroll, scroll"
        table.evaluate("box => { box.style.backgroundImage = 'none' }")
        assert table.screenshot() != left


@in_browser
def test_it_says_everything_without_javascript(browser: Browser, hostile: Path) -> None:
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(hostile.as_uri())
        page.locator("summary", has_text="Folds and why").first.click()
        assert page.get_by_text("what and why").first.is_visible()
