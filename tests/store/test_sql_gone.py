"""Outages of a database, of every kind: callers get an error soon, and are served when it is back."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from tests.real.leash import held
from tests.real.parts import missing
from tests.real.postgresql import OWNER, SERVER_USER, programs
from tests.store.test_contract import made

from foldline.store.sql.database import PING_SECONDS
from foldline.store.sql.store import SqlStore

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")

PROMISED_SECONDS = 10.0
SLACK_SECONDS = 10.0
"""Slack for a busy machine. The promised times are far below the minutes that TCP takes."""


class Server:
    """A PostgreSQL server that can be stopped, restarted and suspended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"postgresql://{OWNER}@/postgres?host={folder}"

    def stop(self) -> None:
        (self.folder / "run").unlink()
        os.kill(self._main(), signal.SIGINT)
        self._until(lambda: not (self.folder / "data" / "postmaster.pid").exists())

    def start(self) -> None:
        (self.folder / "run").touch()
        self._until(self._answers)

    def kill(self) -> None:
        """Crash as in a power cut; it restarts by itself."""
        before = self._main()
        for process in self._processes():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._until(lambda: self._answers() and self._main() != before)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Suspend it: connections stay and accept data, and nothing answers."""
        processes = self._processes()
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)

    def _answers(self) -> bool:
        with suppress(OSError):
            SqlStore.at(self.url).close()
            return True
        return False

    def _main(self) -> int:
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def _processes(self) -> list[int]:
        main, found = self._main(), []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                parent = int(path.read_text().rpartition(")")[2].split()[1])
                if parent == main:
                    found.append(int(path.parent.name))
        return [main, *found]

    @staticmethod
    def _until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, "it did not come to that"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    binaries = programs()
    if binaries is None:
        missing("postgresql", "its server is not installed (apt-get install postgresql)")
    user = SERVER_USER if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="foldline-postgresql-", dir="/tmp"))
    if user is not None:
        import pwd

        os.chown(folder, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
    data = shlex.quote(str(folder / "data"))
    prepare = f"{binaries}/initdb -D {data} -U {OWNER} --auth=trust --encoding=UTF8 --no-locale --no-sync"
    run = f"{binaries}/postgres -D {data} -k {shlex.quote(str(folder))} -c listen_addresses= -c log_min_messages=log"
    script = f"{prepare} && touch run && while :; do if [ -e run ]; then {run}; fi; sleep 0.05; done"
    with held(["/bin/sh", "-c", script], folder, stop=signal.SIGINT, user=user) as process:
        process.said("ready to accept connections")
        yield Server(folder)


@pytest.fixture
def store(server: Server) -> Iterator[SqlStore]:
    with closing(SqlStore.at(server.url)) as opened:
        yield opened


MANY = [f"proxy={number:032x}" for number in range(2_000)]


def operations(store: SqlStore, name: str, url: str) -> list[Callable[[], object]]:
    """The operations on keys, those done for each request, and opening a store."""
    return [
        partial(store.session_of, "a"),
        partial(store.first_session_of, MANY),
        partial(store.bind, "b", name),
        partial(store.bind_all, ["b", "c"], name),
        store.bindings,
        partial(store.read, name),
        partial(store.create, dialect="openai-chat"),
        partial(SqlStore.at, url),
    ]


def test_a_server_that_was_stopped_or_killed_is_used_again_when_it_is_back(server: Server, store: SqlStore) -> None:
    name = made(store)
    store.bind_all(["a"], name)
    server.stop()
    for ask in operations(store, name, server.url):
        with pytest.raises(OSError, match="database"):
            ask()
    server.start()
    assert store.first_session_of([*MANY, "a"]) == ("a", name)
    server.kill()
    assert store.first_session_of([*MANY, "a"]) == ("a", name)
    store.bind_all(["b", "c"], name)
    assert store.bindings() == dict.fromkeys("abc", name)


def test_a_silent_server_is_given_up_soon_by_all_callers(server: Server, store: SqlStore) -> None:
    name = made(store)
    store.bind_all(["a"], name)
    asks = operations(store, name, server.url) * 4  # more than there are connections

    def midway() -> None:
        with store._database.writing(quick=True) as connection:
            began.set()
            assert silent.wait(SLACK_SECONDS)
            connection.exec_driver_sql("SELECT 1")

    began, silent = Event(), Event()
    with ThreadPoolExecutor(len(asks) + 1) as pool:
        in_a_transaction = pool.submit(midway)
        assert began.wait(SLACK_SECONDS)
        with server.still():
            silent.set()
            begun: list[Future[object]] = [pool.submit(ask) for ask in asks]
            with pytest.raises(OSError, match="did not answer within 7 seconds"):
                in_a_transaction.result(PROMISED_SECONDS + SLACK_SECONDS)
            for one in begun:
                with pytest.raises(OSError, match="database"):
                    one.result(PROMISED_SECONDS + SLACK_SECONDS)
        assert [pool.submit(store.session_of, "a").result() for _ in range(3)] == [name] * 3


def test_a_slow_answer_is_no_silence(store: SqlStore) -> None:
    with store._database.writing() as connection:
        assert connection.exec_driver_sql(f"SELECT pg_sleep({PING_SECONDS + 0.2}), 1").one()[1] == 1
