"""Addresses: a place named by a user becomes a store, or one clear error without a password."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import traceback
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import make_url
from tests.store.places import Places

from foldline.errors import InvalidInput
from foldline.store import FileStore
from foldline.store.addresses import lease_of, open_store
from foldline.store.sql.database import Database
from foldline.store.sql.store import SqlStore

ROOT = Path(__file__).parents[2]
SECRET = "s3cr3t-w0rd"


def test_a_folder_is_a_store_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (tmp_path / "sessions", str(tmp_path / "sessions"), f"{tmp_path}/with : and //"):
        store = open_store(place)
        assert isinstance(store, FileStore)
        assert store.place == str(place).rstrip("/")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_store("~/sessions").place == str(tmp_path / "sessions")


def test_an_sqlite_address_names_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for address in ("sqlite:///a.db", f"sqlite+pysqlite:///{tmp_path}/inner/b.db"):
        with closing(open_store(address)) as store:
            assert isinstance(store, SqlStore)
            store.create(dialect="openai-chat").close()
        path = Path(store.place.removeprefix("sqlite:///"))
        assert path.is_absolute()
        assert path.is_file()
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.db")) == ["a.db", "inner/b.db"]


@pytest.mark.parametrize(
    "address", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite://host/a.db", "sqlite:///a.db?mode=ro"]
)
def test_an_sqlite_address_without_a_file_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput, match="must name a file"):
        open_store(address)


@pytest.mark.parametrize(
    "address",
    [
        f"mysql://user:{SECRET}@host/name",
        f"postgresql+asyncpg://user:{SECRET}@host/name",
        f"http://user:{SECRET}@host/name",
        f"://user:{SECRET}@host",
        f"postgresql://user:x@{SECRET}:{SECRET}@host:port/name",
        f"postgresql://user:{SECRET}@[::1/name",
        f"postgresql://user:{SECRET}@host:99999999/name",
        f"postgresql://user:{SECRET}@127.0.0.1:1/name",
        f"postgresql://127.0.0.1:1/name?user=u&password={SECRET}",
        f"postgresql://user:{SECRET}@127.0.0.1:1/name?sslmode={SECRET}",
        f"postgresql://user:{SECRET}@host.invalid/name",
        f"postgresql://user:{SECRET}@/name?host=/nowhere",
        f"postgresql://user:{SECRET}@127.0.0.1:1/name?no_such_option=1",
    ],
)
def test_errors_of_opening_name_the_place_without_its_password(
    address: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises((InvalidInput, OSError)) as caught:
        open_store(address)
    error = caught.value
    place = error.filename if isinstance(error, OSError) else getattr(error, "place", None)
    assert place
    assert str(place).startswith(address.partition("://")[0].partition("+")[0])
    printed = capfd.readouterr()
    told = (str(error), repr(error), "".join(traceback.format_exception(error)), caplog.text, printed.out, printed.err)
    assert not any(SECRET in text for text in told)


def test_no_text_of_a_database_holds_its_password(tmp_path: Path) -> None:
    database = Database(f"postgresql://user:{SECRET}@host:5433/name?password={SECRET}&sslpassword={SECRET}")
    assert database.place == "postgresql://user@host:5433/name"
    assert SECRET not in repr(database)
    with closing(open_store(f"sqlite:///{tmp_path}/a.db")) as store:
        assert repr(store) == f"SqlStore('sqlite:///{tmp_path}/a.db')"


def test_the_error_for_a_wrong_password_does_not_contain_it(places: Places) -> None:
    url = make_url(places("postgresql"))
    with closing(Database(url.render_as_string(hide_password=False))) as database, database.writing() as connection:
        folder = connection.exec_driver_sql("SHOW data_directory").scalar()
        connection.exec_driver_sql("DROP ROLE IF EXISTS locked")
        connection.exec_driver_sql("CREATE ROLE locked LOGIN SUPERUSER PASSWORD 'right'")
        access = Path(f"{folder}/pg_hba.conf")
        access.write_text("local all locked scram-sha-256\n" + access.read_text("utf-8"), "utf-8")
        connection.exec_driver_sql("SELECT pg_reload_conf()")
    locked = url.set(username="locked", password=SECRET)
    deadline = 200
    while deadline:  # the server reads its settings again when it comes to it
        try:
            open_store(locked.render_as_string(hide_password=False)).close()
        except OSError as error:
            assert "password authentication failed" in str(error)
            assert SECRET not in "".join(traceback.format_exception(error))
            assert error.filename == Database(str(url.set(username="locked"))).place
            break
        deadline -= 1
    assert deadline
    with closing(open_store(locked.set(password="right").render_as_string(hide_password=False))) as store:
        assert store.names() == []


def test_a_missing_database_is_an_error(places: Places) -> None:
    url = make_url(places("postgresql")).set(database="nowhere")
    with pytest.raises(OSError, match='database "nowhere" does not exist'):
        open_store(url.render_as_string())


def test_a_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("Dear database, " * 100)
    with pytest.raises(InvalidInput, match="is not an SQLite database") as caught:
        open_store(f"sqlite:///{tmp_path}/letter")
    assert caught.value.place == f"sqlite:///{tmp_path}/letter"
    with pytest.raises(OSError, match=str(tmp_path)):
        open_store(f"sqlite:///{tmp_path}")
    with pytest.raises(OSError, match="letter"):
        open_store(f"sqlite:///{tmp_path}/letter/inner.db")
    assert (tmp_path / "letter").read_text("utf-8").startswith("Dear")


@pytest.mark.parametrize(
    ("missing", "address", "install"),
    [
        ("sqlalchemy", "sqlite:///a.db", "pip install 'foldline[sql]'"),
        ("sqlalchemy", "postgresql://u@h/n", "pip install 'foldline[postgresql]'"),
        ("psycopg", "postgresql://u@h/n", "pip install 'foldline[postgresql]'"),
    ],
)
def test_a_missing_package_is_named_with_the_line_that_installs_it(
    missing: str, address: str, install: str, tmp_path: Path
) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None; "
        f"from foldline.store.addresses import open_store; open_store({address!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("foldline.errors.MissingExtra: ")
    assert last.endswith(f"needs an extra: {install}")


def test_a_store_of_files_needs_no_database(tmp_path: Path) -> None:
    code = (
        "import sys; from foldline.store.addresses import open_store; "
        "open_store('sessions').create(dialect='anthropic'); "
        "print(*sorted({name.split('.')[0] for name in sys.modules} & {'sqlalchemy', 'psycopg', 'sqlite3'}))"
    )
    environ = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environ, check=False
    )
    assert (done.stdout, done.stderr) == ("\n", "")


@pytest.mark.parametrize(
    ("address", "rest", "seconds"),
    [
        ("sqlite:///a.db", "sqlite:///a.db", None),
        ("sqlite:///a.db?lease_seconds=2", "sqlite:///a.db", 2.0),
        ("postgresql://u@h/d?sslmode=require&lease_seconds=30", "postgresql://u@h/d?sslmode=require", 30.0),
    ],
)
def test_an_address_says_how_long_a_lease_is(address: str, rest: str, seconds: float | None) -> None:
    assert lease_of(address) == (rest, seconds)


@pytest.mark.parametrize("value", ["0", "nan", "soon", "", "99999"])
def test_a_lease_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput, match=r"lease_seconds: must be from 0\.5 to 3,600 seconds"):
        lease_of(f"sqlite:///a.db?lease_seconds={value}")
