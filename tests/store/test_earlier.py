"""Stores that earlier versions wrote are read, shown as they were, and continued.

Each archive in `earlier/` was written by the code of its day (`earlier/write.py`). None is ever written anew: a version
that cannot read one of them breaks the promise of docs/stability.md.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from foldline.store import open_store

EARLIER = sorted((Path(__file__).parent / "earlier").glob("*.tar.gz"))

versions = pytest.mark.parametrize("version", EARLIER, ids=lambda path: path.name.partition(".")[0])
places = pytest.mark.parametrize("kind", ["files", "sqlite"])


def unpacked(version: Path, kind: str, folder: Path) -> tuple[str, dict[str, Any]]:
    """The place of the store of a kind, and what it must show."""
    with tarfile.open(version) as archive:
        archive.extractall(folder, filter="data")
    expected: dict[str, Any] = json.loads((folder / "expected.json").read_text("utf-8"))
    return (str(folder / "files") if kind == "files" else f"sqlite:///{folder}/sessions.db"), expected


def said(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages without the word that keeps the roles in turn, which no log holds and versions set differently."""
    return [message for message in messages if message != {"role": "assistant", "content": "Understood."}]


def test_stores_of_several_forms_are_kept() -> None:
    assert len(EARLIER) >= 6


@versions
@places
def test_the_model_is_shown_what_it_was_shown_then(version: Path, kind: str, tmp_path: Path) -> None:
    place, expected = unpacked(version, kind, tmp_path)
    with closing(open_store(place)) as store:
        (listed,) = store.sessions()
        recording = store.read(listed.id)
        assert len(recording.events) == expected["events"]
        context = recording.replay(window=200_000)  # so large that nothing more is folded
        assert said(context.prepare().messages) == said(expected["messages"])


@versions
@places
def test_keys_still_lead_to_their_sessions_and_a_session_goes_on(version: Path, kind: str, tmp_path: Path) -> None:
    place, expected = unpacked(version, kind, tmp_path)
    with closing(open_store(place)) as store:
        name = store.session_of("chat 1")
        assert name is not None
        context = store.read(name).replay(window=200_000)
        context.append({"role": "user", "content": "Go on."})
        with closing(store.open(name)) as session:
            session.append(context.events_after(expected["events"]))
            session.save(context)
    with closing(open_store(place)) as again:
        after = again.read(name)
        assert len(after.events) > expected["events"]
        shown = after.replay(window=200_000).prepare().messages
        assert said(shown) == [*said(expected["messages"]), {"role": "user", "content": "Go on."}]
