"""Sessions go from one store to another as they are, and nothing half."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, nullcontext
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.forked import Forked
from tests.hosting.stored_sessions import delegate, store_in, talk
from tests.real.postgresql import fresh_database
from tests.store.children import child

import foldline
from foldline.cli.main import cli
from foldline.cli.sessions.copy import DEEPEST, CopyReport, copy_all
from foldline.store.addresses import open_store
from foldline.store.base import Store
from foldline.store.folders import FileStore
from foldline.store.records import Record
from foldline.store.snapshot import Snapshot

DATABASES = ("sqlite", "postgresql")
HALF_A_PAIR = "half \ud83d of a pair, \x00 and \u2028"


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return fresh_database(request.getfixturevalue("postgresql_url"))
    return f"sqlite:///{tmp_path / 'sessions.db'}"


def copy(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, ["sessions", "copy", *arguments])
    assert result.exit_code == code, result.output
    return result


def report(*arguments: str, code: int = 0) -> Any:
    return json.loads(copy(*arguments, "--json", code=code).stdout)


def held(place: str | Path) -> dict[str, tuple[list[str], list[bytes], dict[str, Any]]]:
    """All that a store holds: of each session its records, its originals, and the same of its sub-agents."""
    with closing(open_store(place)) as store:
        return _held(store)


def _held(store: Store) -> dict[str, tuple[list[str], list[bytes], dict[str, Any]]]:
    return {
        name: (
            [json.dumps(record) for record in store.records(name)],
            sorted(store.originals(name)),
            _held(store.agents(name)),
        )
        for name in store.names()
    }


def make(place: str | Path, *texts: str) -> str:
    """A session in which this was said; its id."""
    store = FileStore(place, fsync=False) if isinstance(place, Path) else open_store(place)
    with closing(store), closing(store.create(dialect="openai-chat", window=9_000)) as stored:
        context = foldline.Context(window=9_000)
        for text in texts:
            context.append({"role": "user", "content": text})
        stored.append(context.events)
        stored.put_original(f"a document beside {texts}".encode())
        return stored.id


def add(place: str | Path, name: str, text: str) -> None:
    """One more message in a session."""
    with closing(open_store(place)) as store, closing(store.open(name)) as stored:
        context = foldline.Context.replay(stored.events(), window=9_000)
        before = context.event_count
        context.append({"role": "user", "content": text})
        stored.append(context.events_after(before))


def logs(root: Path) -> dict[str, bytes]:
    """Files of a store in a folder that hold what was said."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.name == "events.jsonl" or "archive" in path.parts
        if path.is_file()
    }


def test_a_session_goes_to_a_database_and_back_without_a_byte_changed(tmp_path: Path, database: str) -> None:
    home = tmp_path / "home"
    delegated = delegate(home)
    talked, _ = talk(home)
    root, back = store_in(home).root, tmp_path / "back"
    odd = make(root, HALF_A_PAIR, "ü" * 3)
    store_in(home).bind("telegram:7", talked)
    store_in(home).bind('odd "key"', odd)

    there = report("--all", "--home", str(home), "--to", database)
    agents = [f"{delegated}/agents/{name}" for name in store_in(home).agents(delegated).names()]
    assert len(agents) == 1
    assert sorted(there["copied"]) == sorted([delegated, *agents, talked, odd])
    assert (there["same"], there["refused"], there["left"], there["keys"]) == ([], [], 0, 2)
    assert held(database) == held(root)
    with closing(open_store(database)) as store:
        assert dict(store.bindings()) == {"telegram:7": talked, 'odd "key"': odd}

    again = report("--all", "--from", database, "--to", str(back))
    assert sorted(again["copied"]) == sorted(there["copied"])
    assert again["originals"] == there["originals"] > 0
    assert logs(back) == logs(root)
    assert FileStore(back).bindings() == store_in(home).bindings()
    assert {oct(path.stat().st_mode & 0o077) for path in back.rglob("*")} == {"0o0"} or sys.platform == "win32"


def test_what_was_copied_can_be_gone_on_with(tmp_path: Path, database: str) -> None:
    home = tmp_path / "home"
    name, messages = talk(home)
    copy(name[:20], "--home", str(home), "--to", database)
    with closing(open_store(database)) as store, closing(store.open("latest")) as stored:
        context = foldline.Context.replay(stored.events(), window=3_000, archive=stored.archive)
        sent = list(context.prepare().messages)
        assert sent == messages[-len(sent) :]  # the system text is not in the session
        before = context.event_count
        context.append({"role": "user", "content": "And now?"})
        stored.append(context.events_after(before))
        assert all(fold.archive is None or fold.archive in stored.archive for fold in context.explain(2))


def test_what_is_there_already_is_left_and_said(tmp_path: Path, database: str) -> None:
    first, second = make(tmp_path / "a", "one"), make(tmp_path / "a", "two")
    copy(first, "--from", str(tmp_path / "a"), "--to", database)
    before = held(database)[first]
    result = copy("--all", "--from", str(tmp_path / "a"), "--to", database)
    assert result.stdout.startswith("copied 1 session; ")
    assert result.stderr == f"foldline: there already, the same: 1 session: {first}\n"
    assert held(database)[first] == before
    assert report("--all", "--from", str(tmp_path / "a"), "--to", database)["same"] == sorted([first, second])


def test_what_a_stopped_copy_left_out_comes_with_the_next(tmp_path: Path, database: str) -> None:
    """A process that was killed between a session and those of its sub-agents has left the first alone."""
    home = tmp_path / "home"
    name = delegate(home)
    store = store_in(home)
    with closing(open_store(database)) as target:
        target.import_session(store.records(name), ())
    store.bind("key", name)
    (agent,) = store.agents(name).names()
    with closing(store.open(name)) as stored:
        stored.put_original(b"a document")
    done = report("--all", "--home", str(home), "--to", database)
    assert (done["same"], done["copied"], done["keys"]) == ([name], [f"{name}/agents/{agent}"], 1)
    assert held(database) == held(store.root)


def test_other_records_under_the_same_id_are_refused_and_the_rest_is_copied(tmp_path: Path, database: str) -> None:
    here = tmp_path / "here"
    longer, shorter, other, fine = (make(here, f"text {number}") for number in range(4))
    copy(longer, shorter, other, "--from", str(here), "--to", database)
    add(database, longer, "more there")
    add(here, shorter, "more here")
    add(here, other, "this here")
    add(database, other, "that there")
    before = held(database)
    done = report("--all", "--from", str(here), "--to", database, code=1)
    reasons = {one["session"]: one["reason"] for one in done["refused"]}
    assert reasons == {
        longer: "is there already, with 1 record more",
        shorter: "is there already, with 1 record less",
        other: "another one with this id is there: they differ from record 2 on",
    }
    assert (done["copied"], done["same"]) == ([fine], [])
    after = held(database)
    assert {name: after[name] for name in before} == before
    lines = copy("--all", "--from", str(here), "--to", database, code=1).stderr.splitlines()
    assert f"foldline: {other}: another one with this id is there: they differ from record 2 on" in lines


def test_a_session_that_cannot_be_read_is_named_and_the_rest_is_copied(tmp_path: Path, database: str) -> None:
    here = tmp_path / "here"
    broken, unreadable, fine = (make(here, f"text {number}") for number in range(3))
    log = here / broken / "events.jsonl"
    log.write_bytes(log.read_bytes() + b"nonsense\n{}\n")
    (original,) = (here / unreadable / "archive").glob("??/*")
    original.write_bytes(b"other")
    done = report("--all", "--from", str(here), "--to", database, code=1)
    assert done["copied"] == [fine]
    reasons = {one["session"]: one["reason"] for one in done["refused"]}
    assert f"{log}, line 3" in reasons[broken]
    assert str(original) in reasons[unreadable]
    assert list(held(database)) == [fine]


def test_a_key_that_means_another_session_there_stays_so_and_is_said(tmp_path: Path, database: str) -> None:
    here = tmp_path / "here"
    own, theirs = make(here, "own"), make(database, "theirs")
    FileStore(here).bind("chat", own)
    with closing(open_store(database)) as store:
        store.bind("chat", theirs)
    done = report("--all", "--from", str(here), "--to", database, code=1)
    assert done["copied"] == [own]
    assert done["refused"] == [
        {"session": own, "reason": f"the key 'chat' means another session there, {theirs}: it stays so"}
    ]
    with closing(open_store(database)) as store:
        assert store.session_of("chat") == theirs


def test_a_key_that_a_database_cannot_hold_is_said_and_keeps_no_sub_agent_back(tmp_path: Path, database: str) -> None:
    home = tmp_path / "home"
    name = delegate(home)
    store_in(home).bind("k" * 2_000, name)
    done = report("--all", "--home", str(home), "--to", database, code=1)
    assert len(done["copied"]) == 2
    (refused,) = done["refused"]
    assert refused["session"] == name
    assert "is longer than" in refused["reason"]
    assert held(database) == held(store_in(home).root)


# --- while others write, and when it is stopped -----------------------------------------------------------------------


def writing(pipe: Connection, place: Path) -> None:
    store = open_store(place)
    with closing(store), closing(store.create(dialect="openai-chat", window=2_000)) as stored:
        context = foldline.Context(window=2_000, max_output_tokens=0, archive=stored.archive)
        for number in count():
            written = context.event_count
            context.append({"role": "user", "content": f"message {number} " + "word " * 60})
            context.prepare()
            stored.append(context.events_after(written))
            if number == 60:  # by then something was folded
                pipe.send("writing")


@pytest.mark.skipif(sys.platform == "win32", reason="a fork")
def test_of_a_session_that_is_being_written_a_beginning_is_copied(tmp_path: Path, database: str) -> None:
    here = tmp_path / "here"
    with child(writing, here) as writer:
        assert writer.receive() == "writing"
        places = [database, str(tmp_path / "there")]
        for place in places:
            assert len(report("--all", "--from", str(here), "--to", place)["copied"]) == 1
        assert not writer.pipe.poll(), "it has ended"
    ((name, (whole, _, _)),) = held(here).items()
    for place in places:
        records, originals, _ = held(place)[name]
        assert records == whole[: len(records)]
        assert len(records) > 60
        with closing(open_store(place)) as store:
            archive = store.archive(name)
            folds = [record for record in map(json.loads, records) if record["type"] == "fold"]
            assert folds
            assert all(fold["archive"] in archive for fold in folds if fold.get("archive"))
            assert originals
            assert store.read(name).replay().view.tokens > 0


class Interrupted(FileStore):
    """A folder to which sessions are copied by a person who presses Ctrl-C in the middle of the second one."""

    presses = 1

    def import_session(
        self, records: Iterable[Record], originals: Iterable[bytes], *, snapshot: Snapshot | None = None
    ) -> str:
        def pressed() -> Iterator[Record]:
            for number, record in enumerate(records):
                if number == 1 and len(self.names()) == 1:
                    for _ in range(self.presses):
                        signal.raise_signal(signal.SIGINT)
                yield record

        return super().import_session(pressed(), originals, snapshot=snapshot)


@pytest.mark.parametrize(("presses", "whole"), [(1, 2), (2, 1)])
def test_ctrl_c_leaves_whole_sessions_only(presses: int, whole: int, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    names = sorted(make(here, f"text {number}") for number in range(4))
    target, done, before = Interrupted(there), CopyReport(), signal.getsignal(signal.SIGINT)
    target.presses = presses
    with pytest.raises(KeyboardInterrupt) if presses > 1 else nullcontext():
        copy_all(FileStore(here), target, names, done)
    assert signal.getsignal(signal.SIGINT) == before
    assert (done.copied, done.looked_at) == (names[:whole], whole)
    source = held(here)
    assert held(there) == {name: source[name] for name in names[:whole]}
    assert sorted(os.listdir(there)) == names[:whole]


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_says_how_far_it_came_and_what_is_there_is_whole(tmp_path: Path) -> None:
    here, file = tmp_path / "here", tmp_path / "there.db"
    for number in range(25):
        make(here, f"text {number}")
    place = f"sqlite:///{file}"
    open_store(place).close()
    given = ("sessions", "copy", "--all", "--from", str(here), "--to", place)
    streams = [tmp_path / "out", tmp_path / "said"]
    other = sqlite3.connect(file, isolation_level=None)
    with closing(other), streams[0].open("wb") as out_to, streams[1].open("wb") as said_to:
        other.execute("BEGIN IMMEDIATE")  # the first session must wait for us
        copying = Forked(*given, cwd=tmp_path, env=os.environ, stdout=out_to.fileno(), stderr=said_to.fileno())
        with copying:
            while not streams[1].read_text().endswith("\n"):
                assert copying.poll() is None
                time.sleep(0.01)
            copying.send_signal(signal.SIGINT)
            other.execute("ROLLBACK")
            assert copying.wait() == 130
    out, said = [stream.read_text() for stream in streams]
    assert said.startswith("foldline: 0 of 25 sessions\n")
    assert "Traceback" not in said
    there, source = held(place), held(here)
    assert len(there) < 25
    assert f"stopped: {25 - len(there)} sessions not copied" in said
    assert out.startswith(f"copied {len(there)} session")
    assert there == {name: source[name] for name in sorted(source)[: len(there)]}


def test_a_place_that_cannot_be_written_ends_it_in_one_line_and_says_what_is_there(tmp_path: Path) -> None:
    here = tmp_path / "here"
    make(here, "text")
    (tmp_path / "file").write_text("")
    result = copy("--all", "--from", str(here), "--to", str(tmp_path / "file" / "there"), code=2)
    assert result.stdout.startswith("copied 0 sessions; ")
    assert "Not a directory" in result.stderr


# --- what is asked for ------------------------------------------------------------------------------------------------


def test_how_far_it_is_is_said_where_there_are_many(tmp_path: Path) -> None:
    here = tmp_path / "here"
    for number in range(25):
        make(here, f"text {number}")
    result = copy("--all", "--from", str(here), "--to", str(tmp_path / "there"))
    assert [line for line in result.stderr.splitlines() if " of 25 sessions" in line][:2] == [
        "foldline: 0 of 25 sessions",
        "foldline: 2 of 25 sessions",
    ]
    assert result.stdout == "copied 25 sessions; 25 originals, 0 keys\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to", "{there}"), "say which sessions, or --all"),
        (("latest", "--all", "--to", "{there}"), "say which sessions, or --all"),
        (("latest",), "missing option '--to'"),
        (("latest", "--to", "{here}"), "is where they are"),
        (("latest", "--to", "{here}/../here"), "is where they are"),
        (("nobody", "--to", "{there}"), "there is no session 'nobody'"),
        (("latest", "--to", ""), "is empty"),
        (("latest", "--to", "ftp://there"), "is not a supported database"),
    ],
)
def test_what_cannot_be_copied_is_one_line_and_makes_nothing(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    make(here, "text")
    named = [part.format(here=here, there=there) for part in arguments]
    result = copy("--from", str(here), *named, code=2)
    assert result.stdout == ""
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert not there.exists()


def test_the_session_of_a_sub_agent_goes_with_that_of_its_agent_only(tmp_path: Path) -> None:
    name = delegate(tmp_path / "home")
    result = copy("latest/latest", "--home", str(tmp_path / "home"), "--to", str(tmp_path / "there"), code=2)
    assert f"{name}/agents/" in result.stderr
    assert "is copied only together with the session that started it" in result.stderr


def test_a_folder_that_links_to_itself_ends(tmp_path: Path) -> None:
    here = tmp_path / "here"
    name = make(here, "text")
    (here / name / "agents").symlink_to(here)
    done = report("--all", "--from", str(here), "--to", str(tmp_path / "there"), code=1)
    assert len(done["copied"]) == DEEPEST + 1
    assert "deep" in done["refused"][0]["reason"]
