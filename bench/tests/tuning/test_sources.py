from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pyarrow
import pytest
from bench.tests.tuning.support import recorded, session, tuned, write_sessions
from moto.server import ThreadedMotoServer
from pyarrow import fs, parquet
from tests.real.postgresql import fresh_database

from foldline import Context
from foldline.errors import InvalidInput
from foldline.recorded.files import read_session
from foldline.store.addresses import open_store
from foldline_bench.tuning.sources import _tried, located, read_source
from foldline_bench.tuning.values import SessionSource, content_sha256

ONE = session(0)
NEEDS_PARQUET = "foldline: sessions in an object store needs an extra: pip install 'foldline-bench[parquet]'"


def test_files_and_folders_of_files_are_found_in_order_and_each_once(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    for name in ("b.json", "a.jsonl", "notes.txt", ".hidden.json"):
        (tmp_path / name).touch()
    (inner / "c.json.gz").touch()
    found = located([str(tmp_path / "b.json"), str(tmp_path)])
    assert [source.place.removeprefix(f"{tmp_path}/") for source in found] == ["b.json", "a.jsonl", "inner/c.json.gz"]
    assert all(source.form == "file" for source in found)


def test_what_is_not_there_and_what_is_empty_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"nowhere: there is no such file or folder"):
        located([str(tmp_path / "nowhere")])
    with pytest.raises(InvalidInput, match=r"holds no session: no store, and no file that ends in \.json, "):
        located([str(tmp_path)])
    with pytest.raises(InvalidInput, match="there is no such database"):
        located([f"sqlite:///{tmp_path}/none.db"])
    with pytest.raises(InvalidInput, match="is not a supported database"):
        located(["mysql://user:secret@host/name"])


@pytest.fixture(params=["folder", "sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return fresh_database(request.getfixturevalue("postgresql_url"))
    return str(tmp_path / "store") if request.param == "folder" else f"sqlite:///{tmp_path}/sessions.db"


def test_kept_sessions_are_read_from_any_store_without_what_was_left_or_hidden(place: str) -> None:
    messages = ONE["messages"]
    ctx = Context(dialect="openai-chat", window=100_000)
    ctx.append({"role": "user", "content": "For people only."}, agent_visible=False)
    ctx.extend([*messages[:3], {"role": "user", "content": "This way."}])
    ctx.sync(messages[:5])
    with closing(open_store(place)) as store:
        kept = store.create(dialect="openai-chat", model="gpt-4.1-mini")
        kept.append(ctx.events)
        kept.close()
    [source] = located([place])
    assert (source.form, source.part) == ("stored", kept.id)
    found = read_source(source)
    assert (found.name, found.dialect, found.model) == (kept.id, "openai-chat", "gpt-4.1-mini")
    assert list(found.messages) == messages[:5]


def test_a_store_without_sessions_or_words_is_refused(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/sessions.db"
    with closing(open_store(place)) as store:
        with pytest.raises(InvalidInput, match="there is no session in it"):
            located([place])
        store.create(dialect="openai-chat").close()
    with pytest.raises(InvalidInput, match="nothing has been said in it yet"):
        read_source(located([place])[0])


def test_an_address_is_shown_without_its_password() -> None:
    source = SessionSource("stored", "postgresql://me:secret@host/name?password=secret", "abc")
    assert source.shown == "postgresql://host/name: abc"
    assert SessionSource("file", "/a@b/c.json").shown == "/a@b/c.json"


# --- Parquet ----------------------------------------------------------------------------------------------------------


def as_text(file: Path, sessions: list[dict[str, Any]], **options: Any) -> Path:
    rows = [{"id": one["id"], "messages": json.dumps(one["messages"]), "system": "Be brief."} for one in sessions]
    parquet.write_table(pyarrow.Table.from_pylist(rows), file, **options)
    return file


def nested(file: Path, sessions: list[dict[str, Any]]) -> Path:
    rows = [{"id": one["id"], "dialect": one["dialect"], "messages": one["messages"]} for one in sessions]
    parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    return file


def test_rows_of_parquet_are_sessions_as_json_text_over_row_groups(tmp_path: Path) -> None:
    sessions = [session(seed, rounds=2) for seed in range(5)]
    file = as_text(tmp_path / "all.parquet", sessions, row_group_size=2)
    sources = located([str(tmp_path)])
    assert [(source.form, source.part) for source in sources] == [("row", str(number)) for number in range(5)]
    assert sources[3].shown == f"{file}: session-3 (row 3)"
    for source, one in zip(sources, sessions, strict=True):
        found = read_source(source)
        assert (found.name, found.system, list(found.messages)) == (one["id"], "Be brief.", one["messages"])


def test_a_nested_column_gives_the_same_session_as_the_file(tmp_path: Path) -> None:
    file = nested(tmp_path / "all.parquet", [session(1), ONE])
    found = read_source(located([str(file)])[1])
    there = read_session(recorded(tmp_path / "one.json"))
    assert content_sha256(found) == content_sha256(there)


def test_a_parquet_file_without_messages_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.parquet"
    parquet.write_table(pyarrow.table({"prompt": ["x"], "reply": ["y"]}), file)
    with pytest.raises(InvalidInput, match='has no column "messages"; its columns are prompt, reply'):
        read_source(located([str(file)])[0])
    file.write_text("PAR1 not at all")
    with pytest.raises(InvalidInput, match=r"other\.parquet: is no Parquet file that can be read"):
        read_source(located([str(file)])[0])
    parquet.write_table(pyarrow.table({"messages": ["[{]"]}), file)
    with pytest.raises(InvalidInput, match=r'row 0: column "messages" is no JSON'):
        read_source(located([str(file)])[0])


def test_parquet_that_is_damaged_or_half_there_is_left_out_and_named(tmp_path: Path) -> None:
    folder = write_sessions(tmp_path / "sessions", 1)
    whole = as_text(
        tmp_path / "whole.parquet", [session(seed, rounds=2) for seed in (5, 6)], use_dictionary=False
    ).read_bytes()
    (folder / "half.parquet").write_bytes(whole[: len(whole) // 2])
    pages = bytearray(whole)
    start = parquet.ParquetFile(tmp_path / "whole.parquet").metadata.row_group(0).column(1).data_page_offset
    pages[start + 60 : start + 400] = bytes(340)
    (folder / "pages.parquet").write_bytes(bytes(pages))
    found = tuned(folder, tmp_path / "state")
    assert [look.name for look in found.looks] == ["session-0"]
    assert [one.place.removeprefix(f"{folder}/") for one in found.left_out] == [
        "half.parquet",
        "pages.parquet: session-5 (row 0)",
        "pages.parquet: session-6 (row 1)",
    ]
    assert all(one.reason.startswith("is no Parquet file that can be read: ") for one in found.left_out)


def test_a_row_of_a_large_group_needs_no_memory_for_all_of_it(tmp_path: Path) -> None:
    words = "".join(map(chr, Random(0).choices(range(97, 123), k=1_000_000)))
    rows = [
        {"messages": json.dumps([{"role": "user", "content": words[place:] + words[:place]}])} for place in range(64)
    ]
    parquet.write_table(
        pyarrow.Table.from_pylist(rows), tmp_path / "large.parquet", use_dictionary=False, write_batch_size=1
    )
    reads = (
        "import sys, pyarrow\n"
        "from foldline_bench.tuning.sources import located, read_source\n"
        "source = located(sys.argv[1:])[60]\n"
        "read_source(source)\n"
        "print(pyarrow.default_memory_pool().max_memory())"
    )
    command = [sys.executable, "-c", reads, str(tmp_path / "large.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 40_000_000


def test_what_a_network_failed_to_bring_is_asked_for_again() -> None:
    def failing(times: int) -> Callable[[], str]:
        left = iter(range(times))

        def read() -> str:
            if next(left, None) is not None:
                raise ConnectionResetError("the network is gone")
            return "there"

        return read

    assert _tried(failing(3), "s3://logs/a.json", (0, 0, 0)) == "there"
    with pytest.raises(OSError, match=r"^s3://logs/a\.json: the network is gone$"):
        _tried(failing(4), "s3://key:secret@logs/a.json", (0, 0, 0))
    with pytest.raises(ConnectionResetError):
        _tried(failing(1), "/a.json", (0, 0, 0))


# --- object stores ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    s3 = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    s3.start()
    host, port = s3.get_host_and_port()
    yield f"http://{host}:{port}"
    s3.stop()


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> fs.FileSystem:
    """A bucket "logs", reached by what the environment says alone."""
    named = {
        "AWS_ENDPOINT_URL": server, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": str(tmp_path / "none"),
    }  # fmt: skip
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    system = fs.S3FileSystem(allow_bucket_creation=True, endpoint_override=server)
    system.create_dir("logs")
    return system


def put(system: fs.FileSystem, path: str, data: bytes) -> None:
    with system.open_output_stream(path, compression=None) as stream:
        stream.write(data)


def test_objects_under_a_prefix_are_sessions(bucket: fs.FileSystem, tmp_path: Path) -> None:
    put(bucket, "logs/day/b.json", json.dumps(session(1)).encode())
    put(bucket, "logs/day/a.json.gz", gzip.compress(json.dumps(ONE).encode()))
    put(bucket, "logs/day/readme.md", b"#")
    put(bucket, "logs/day/c.parquet", as_text(tmp_path / "c.parquet", [session(2), session(3)]).read_bytes())
    sources = located(["s3://logs/day"])
    assert [source.shown for source in sources] == [
        "s3://logs/day/a.json.gz",
        "s3://logs/day/b.json",
        "s3://logs/day/c.parquet: session-2 (row 0)",
        "s3://logs/day/c.parquet: session-3 (row 1)",
    ]
    assert [read_source(source).name for source in sources] == ["session-0", "session-1", "session-2", "session-3"]
    assert located(["s3://logs/day/b.json"]) == (sources[1],)


def test_an_object_store_gives_what_the_same_files_give(bucket: fs.FileSystem, tmp_path: Path) -> None:
    folder = write_sessions(tmp_path / "sessions", 2)
    for file in folder.iterdir():
        put(bucket, f"logs/same/{file.name}", file.read_bytes())
    there = tuned("s3://logs/same", tmp_path / "there")  # type: ignore[arg-type]
    here = tuned(folder, tmp_path / "here")
    assert there.front == here.front


def test_objects_of_any_name_are_read(bucket: fs.FileSystem, tmp_path: Path) -> None:
    names = ["my run.json", "100%41.json", "a#1.json", "b?c.json", "d@e.json", "day=1/é+f.json", "~g:h.json"]
    for seed, name in enumerate(names):
        put(bucket, f"logs/odd one/{name}", json.dumps(session(seed, rounds=1)).encode())
    put(bucket, "logs/odd one/rows 1.parquet", as_text(tmp_path / "c.parquet", [session(9)]).read_bytes())
    sources = located(["s3://logs/odd one"])
    shown = {read_source(source).name: source.shown for source in sources}
    assert len(shown) == len(names) + 1
    assert shown["session-0"] == "s3://logs/odd%20one/my%20run.json"
    assert shown["session-4"] == "s3://logs/odd%20one/d%40e.json"
    assert shown["session-5"].startswith("s3://logs/odd%20one/day=1/")
    assert located(list(shown.values())[:1]) == sources[:1]


def test_what_an_address_says_of_keys_and_endpoint_holds_for_all_that_is_under_it(
    bucket: fs.FileSystem, server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(bucket, "logs/named/a.json", json.dumps(ONE).encode())
    put(bucket, "logs/named/c.parquet", as_text(tmp_path / "c.parquet", [session(2)]).read_bytes())
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    end = f"endpoint_override={server.removeprefix('http://')}&scheme=http&region=us-east-1"
    sources = located([f"s3://key:secret@logs/named?{end}"])
    assert [read_source(source).name for source in sources] == ["session-0", "session-2"]
    assert [source.shown for source in sources] == [
        "s3://logs/named/a.json",
        "s3://logs/named/c.parquet: session-2 (row 0)",
    ]
    assert located([f"s3://key:secret@logs/named/c.parquet?{end}"]) == sources[1:]
    with pytest.raises(InvalidInput, match="s3://logs/none: there is no object under it") as gone:
        located([f"s3://key:secret@logs/none?{end}"])
    with pytest.raises(InvalidInput, match=r"^s3://logs/x: ") as wrong:
        located([f"s3://key:secret@logs/x?{end}&nothing=such"])
    assert "secret" not in str(gone.value) + str(wrong.value)


def test_a_bucket_or_object_that_is_not_there_is_named(bucket: fs.FileSystem) -> None:
    with pytest.raises(InvalidInput, match=r"^s3://logs/none: there is no object under it"):
        located(["s3://logs/none"])
    with pytest.raises(InvalidInput, match=r"^s3://nobody/x: "):
        located(["s3://nobody/x"])
    with pytest.raises(InvalidInput, match=r"^s3://logs/gone\.json: there is no such object"):
        read_source(SessionSource("file", "s3://logs/gone.json"))


# --- nothing installed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "s3://bucket/x",
            NEEDS_PARQUET,
        ),
        ("{}/x.parquet", NEEDS_PARQUET),
    ],
)
def test_without_pyarrow_the_install_line_is_shown(name: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "x.parquet").touch()
    hidden = "import sys; sys.modules['pyarrow'] = None; from foldline.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", hidden, "tune", name.format(tmp_path), "--state", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.strip()) == (2, line)


def test_files_need_nothing_that_is_not_installed_with_the_command(tmp_path: Path) -> None:
    folder = write_sessions(tmp_path / "sessions", 1, rounds=2)
    shutil.rmtree(tmp_path / "state", ignore_errors=True)
    hidden = (
        "import sys\n"
        "for name in 'platformdirs yaml httpx pyarrow ray sqlalchemy toktok'.split(): sys.modules[name] = None\n"
        "from foldline.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", hidden, "tune", str(folder), "--window", "1500", "--workers", "1"],
        capture_output=True,
        text=True,
        check=False,
        env={"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": ""},
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "cache" / "foldline" / "tune" / "runs.jsonl").exists()
