"""Sessions as rows of a Parquet file, here or in an object store. Needs the extra `parquet`.

Columns: `messages`, as JSON text or as a list of structs; beside it `id`, `dialect`, `model`, `system` and `tools`,
each if it is there, the last two as JSON text or nested too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from foldline.errors import InvalidInput, MissingExtra
from foldline.messages import Json
from foldline.recorded.files import parse_session
from foldline.recorded.sessions import Session
from foldline.store.addresses import is_address
from foldline_bench.tuning.objects import opened, reason_of
from foldline_bench.tuning.values import SessionSource

try:
    import pyarrow
    from pyarrow import parquet
except ImportError as error:
    raise MissingExtra(
        "parquet", "sessions in Parquet files", install="pip install 'foldline-bench[parquet]'"
    ) from error

__all__ = ["read_row", "row_ids"]

_COLUMNS: Final = ("id", "messages", "dialect", "model", "system", "tools")

_BATCH_ROWS: Final = 8
# Rows and bytes read at a time: many writers make one group of all rows, which may not fit into memory.
_BUFFER_BYTES: Final = 1 << 20


def row_ids(place: str) -> list[str]:
    """Return the id of each row, "" for one without; only that column is read.

    Raises InvalidInput for another format, or a file without messages.
    """
    with _file(place) as file:
        if "messages" not in file.schema_arrow.names:
            columns = ", ".join(file.schema_arrow.names[:20])
            raise InvalidInput(
                f'has no column "messages"; its columns are {columns}', place=SessionSource("file", place).shown
            )
        if not file.metadata.num_rows:
            raise InvalidInput("has no rows, and so no sessions", place=SessionSource("file", place).shown)
        if "id" not in file.schema_arrow.names:
            return [""] * int(file.metadata.num_rows)
        found = file.read(columns=["id"]).column("id").to_pylist()
    return ["" if value is None else str(value) for value in found]


def read_row(source: SessionSource) -> Session:
    """Read the session in a row. O(rows before it in its group), with a few rows in memory.

    Raises InvalidInput for damage or other content, and OSError for the network.
    """
    # Parquet has no access by row: a group is decoded from its beginning. Only the group of the row is read.
    row, group = int(source.part), 0
    with _file(source.place) as file:
        while group < file.num_row_groups and row >= file.metadata.row_group(group).num_rows:
            row -= file.metadata.row_group(group).num_rows
            group += 1
        if group == file.num_row_groups:
            raise InvalidInput("there is no such row any more", place=source.shown)
        names = [name for name in _COLUMNS if name in file.schema_arrow.names]
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=names):
            if row < batch.num_rows:
                [values] = batch.slice(row, 1).to_pylist()
                break
            row -= batch.num_rows
    body = {name: _value(name, values[name], source) for name in names if values[name] is not None}
    body.setdefault("id", f"row {source.part}")
    return parse_session(json.dumps(body).encode(), place=source.shown, dialect=None)


def _value(name: str, value: Any, source: SessionSource) -> Json:
    """Return the value of a column: JSON text is parsed, and nulls in nested values are dropped."""
    # A column of structs has every field in every row, and null for a field that a message does not have.
    if name in {"id", "dialect", "model"}:
        return str(value)
    if not isinstance(value, str | bytes):
        return _without_null(value)
    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as error:
        # System text is plain text as a rule.
        if name == "system":
            return value if isinstance(value, str) else value.decode("utf-8", "replace")
        raise InvalidInput(f'column "{name}" is no JSON: {error}', place=source.shown) from None
    return value if name == "system" and not isinstance(found, str | list) else found


def _without_null(value: Any) -> Json:
    if isinstance(value, dict):
        return {key: _without_null(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_null(inner) for inner in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)  # a time, a decimal


@contextmanager
def _file(place: str) -> Iterator[Any]:
    """Open a Parquet file. From an object store only the needed parts are fetched."""
    far = is_address(place)
    try:
        with ExitStack() as stack:
            source = stack.enter_context(opened(place)) if far else place
            yield stack.enter_context(parquet.ParquetFile(source, buffer_size=_BUFFER_BYTES, pre_buffer=False))
    except (pyarrow.ArrowInvalid, OSError) as error:
        if far and not isinstance(error, pyarrow.ArrowInvalid):
            # It may be the network, which the caller retries.
            raise
        shown = SessionSource("file", place).shown
        raise InvalidInput(f"is no Parquet file that can be read: {reason_of(error, place)}", place=shown) from None
