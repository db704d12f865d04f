"""Every command about sessions does on a database what it does on folders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.hosting.stored_sessions import delegate, store_in, talk
from tests.real.postgresql import fresh_database

from foldline.cli.main import cli
from foldline.store.addresses import open_store
from foldline.store.call_log import CallLog
from foldline.store.paths import calls_path
from foldline.view.transcript import Usage

DATABASES = ("sqlite", "postgresql")


@pytest.fixture(scope="module", params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "postgresql":
        return fresh_database(request.getfixturevalue("postgresql_url"))
    return f"sqlite:///{tmp_path_factory.mktemp('database') / 'sessions.db'}"


@dataclass(frozen=True)
class Folder:
    """Sessions in folders: one with folds, and one that started a sub-agent."""

    home: Path
    delegated: str
    talked: str


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    home = tmp_path_factory.mktemp("folder") / "home"
    return Folder(home, delegate(home), talk(home)[0])


@pytest.fixture(scope="module")
def both(folder: Folder, database: str) -> Callable[..., tuple[Result, Result]]:
    """A command on folders, and the same on a database that was given the same sessions."""
    invoke(folder.home, "copy", "--all", "--to", database)
    return lambda *arguments: (
        invoke(folder.home, *arguments, code=None),
        invoke(folder.home, *arguments, "--store", database, code=None),
    )


def invoke(home: Path, *arguments: str, code: int | None = 0, environ: dict[str, str] | None = None) -> Result:
    result = CliRunner().invoke(
        cli, ["sessions", *arguments, "--home", str(home)], env={"COLUMNS": "100", **(environ or {})}
    )
    assert code in (None, result.exit_code), result.output
    return result


def without_paths(value: Any) -> Any:
    """What a command says without where a file lies."""
    if isinstance(value, dict):
        return {name: without_paths(inner) for name, inner in value.items() if name not in ("path", "log_bytes")}
    return [without_paths(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("list", "{delegated}"),
        ("show", "{talked}"),
        ("show", "{talked}", "--from", "-3", "--limit", "2"),
        ("show", "{delegated}/agents/latest"),
        ("view", "{talked}"),
        ("view", "{delegated}"),
        ("why", "{talked}", "2"),
        ("why", "{talked}", "99"),
        ("search", "file 1"),
        ("search", "secret word", "--session", "{delegated}"),
        ("show", "20"),
        ("show", "nobody"),
    ],
)
def test_a_command_says_of_a_session_in_a_database_what_it_says_of_one_in_a_folder(
    arguments: tuple[str, ...], both: Callable[..., tuple[Result, Result]], folder: Folder
) -> None:
    delegated, talked = folder.delegated, folder.talked
    named = [part.format(delegated=delegated, talked=talked) for part in arguments]
    for form in ((), ("--json",)):
        here, there = both(*named, *form)
        assert here.exit_code == there.exit_code
        if form and here.stdout:
            assert without_paths(json.loads(there.stdout)) == without_paths(json.loads(here.stdout))
        elif arguments[0] != "why":  # which says where the original lies
            assert there.stdout == here.stdout
            assert there.stderr == here.stderr


@pytest.mark.parametrize("form", ["messages", "markdown", "events"])
def test_an_export_is_the_same_to_the_byte(
    form: str, both: Callable[..., tuple[Result, Result]], folder: Folder
) -> None:
    for name in store_in(folder.home).names():
        here, there = both("export", name, "--format", form)
        assert here.stdout_bytes
        assert there.stdout_bytes == here.stdout_bytes


def test_where_the_original_lies_is_said_and_is_no_path(
    both: Callable[..., tuple[Result, Result]], folder: Folder, database: str
) -> None:
    talked = folder.talked
    _, there = both("show", talked, "--json")
    folded = next(event for event in json.loads(there.stdout)["events"] if event.get("folds"))
    _, why = both("why", talked, str(folded["seq"]), "--json")
    fold = json.loads(why.stdout)["folds"][0]
    assert fold["archive"]
    assert fold["path"] is None
    _, words = both("why", talked, str(folded["seq"]))
    assert f"archive:{fold['archive']}" in words.stdout.replace("\n", "")
    with closing(open_store(database)) as store:
        assert f"{store.place} {talked}" in words.stdout.replace("\n", "")


def test_folds_are_taken_back_in_a_database(folder: Folder, database: str, both: object) -> None:
    del both
    talked = folder.talked
    before = json.loads(invoke(folder.home, "view", talked, "--json", "--store", database).stdout)
    report = json.loads(invoke(folder.home, "undo", talked, "--json", "--store", database).stdout)
    assert report["unfolded"]
    assert report["tokens_after"] > report["tokens_before"]
    shown = json.loads(invoke(folder.home, "show", talked, "--json", "--store", database).stdout)["events"]
    assert [event["fold"] for event in shown if event["type"] == "unfold"] == report["unfolded"]
    listed = json.loads(invoke(folder.home, "list", "--json", "--store", database).stdout)
    assert listed[0]["id"] == talked
    assert before["messages"] == json.loads(invoke(folder.home, "view", talked, "--json").stdout)["messages"]


def test_a_session_that_is_open_elsewhere_is_refused_in_one_line_and_can_be_read(
    folder: Folder, database: str, both: object
) -> None:
    del both
    talked = folder.talked
    with closing(open_store(database)) as store, closing(store.open(talked)):
        result = invoke(folder.home, "undo", talked, "--store", database, code=2)
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
        assert f"{talked}: this session is open in another process" in result.stderr
        assert invoke(folder.home, "show", talked, "--store", database).stdout


def test_a_session_in_a_database_that_is_whole_has_nothing_to_repair(
    folder: Folder, database: str, both: object
) -> None:
    del both
    result = invoke(folder.home, "repair", "latest", "--store", database)
    assert result.stdout == "nothing is damaged\n"


# --- which store ------------------------------------------------------------------------------------------------------


def test_the_store_is_named_else_the_environments_else_that_of_home(folder: Folder, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    newest = folder.talked
    invoke(folder.home, "copy", newest, "--to", str(elsewhere))
    home = tmp_path / "nothing"

    def names(*arguments: str, **environ: str) -> list[str]:
        command = ["sessions", "list", "--json", *arguments]
        result = CliRunner().invoke(cli, command, env={"FOLDLINE_HOME": str(home), **environ})
        assert result.exit_code == 0, result.output
        return [one["id"] for one in json.loads(result.stdout)]

    assert names() == []
    assert names("--store", str(elsewhere)) == [newest]
    assert names(FOLDLINE_STORE=str(elsewhere)) == [newest]
    assert names(FOLDLINE_STORE="") == []
    assert len(names("--home", str(folder.home), FOLDLINE_STORE=str(elsewhere))) == 2
    assert names("--store", str(elsewhere), "--home", str(folder.home)) == [newest]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("", "is empty"),
        ("mysql://root:hidden@host/db", "is not a supported database"),
        ("sqlite:///{folder}/none.db", "there is no such database"),
        ("{folder}/file", "is a file and no folder; a database in it would be sqlite:///"),
        ("sqlite:///{folder}/file", "is not an SQLite database"),
        ("postgresql+psycopg://me:hidden@127.0.0.1:1/db", "127.0.0.1"),
    ],
)
def test_a_place_that_cannot_be_is_one_line_without_its_password(place: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("this is a text and no database, however long it may be" * 20)
    result = invoke(tmp_path / "home", "list", "--store", place.format(folder=tmp_path), code=2)
    assert result.stdout == ""
    assert said in result.stderr
    assert "hidden" not in result.stderr
    assert result.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


# --- growth -----------------------------------------------------------------------------------------------------------


def test_growth_takes_a_session_by_what_a_store_calls_it(folder: Folder, tmp_path: Path) -> None:
    home = tmp_path / "home"
    delegated, talked = folder.delegated, folder.talked
    (agent,) = store_in(folder.home).agents(delegated).names()
    with CallLog(calls_path({"FOLDLINE_HOME": str(home)})) as calls:
        for name in (talked, agent, "elsewhere"):
            calls.record(name, {"messages": []}, Usage(input_tokens=7, output_tokens=1), seconds=0.2)
    place = f"sqlite:///{tmp_path / 'sessions.db'}"
    invoke(folder.home, "copy", "--all", "--to", place)

    def grown(*arguments: str, code: int = 0, **environ: str) -> str:
        result = CliRunner().invoke(cli, ["growth", "--json", *arguments], env={"FOLDLINE_HOME": str(home), **environ})
        assert result.exit_code == code, result.output
        return str(json.loads(result.stdout)["session"]) if code == 0 else result.stderr

    assert grown() == "elsewhere"
    assert grown("--store", place) == talked
    assert grown("latest", FOLDLINE_STORE=place) == talked
    assert grown(f"{delegated}/agents/latest", "--store", place) == agent
    assert "no call of the session" in grown(delegated, "--store", place, code=2)
    assert "there is no session 'else" in grown("elsewhere", "--store", place, code=2)
    shutil.rmtree(home / "data", ignore_errors=False)
    assert "no model call is recorded yet" in grown("--store", place, code=2)
