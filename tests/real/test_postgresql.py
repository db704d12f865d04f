"""A cluster of one's own: it works, and it ends with its holder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text
from tests.real.postgresql import fresh_database, programs

ROOT = Path(__file__).parents[2]
HOLDER = """
import time
from tests.real.postgresql import cluster
with cluster() as url:
    print(url, flush=True)
    time.sleep(600)
"""


def test_a_fresh_database_is_empty_and_keeps_what_is_written(postgresql_url: str) -> None:
    first, second = (create_engine(fresh_database(postgresql_url)) for _ in range(2))
    with first.begin() as connection:
        connection.execute(text("CREATE TABLE kept (word text)"))
        connection.execute(text("INSERT INTO kept VALUES ('größer ✓')"))
    with first.connect() as connection:
        assert connection.scalars(text("SELECT word FROM kept")).all() == ["größer ✓"]
    with second.connect() as connection:
        assert connection.scalar(text("SELECT to_regclass('kept')")) is None
    first.dispose()
    second.dispose()


@pytest.mark.skipif(programs() is None, reason="postgresql is not installed")
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_cluster_ends_with_its_holder_however_that_ends(end: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True, cwd=ROOT) as holder:
        assert holder.stdout is not None
        folder = Path(str(make_url(holder.stdout.readline().strip()).query["host"]))
        server = int((folder / "data" / "postmaster.pid").read_text("utf-8").splitlines()[0])
        holder.send_signal(end)
    deadline = time.monotonic() + 60
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)
