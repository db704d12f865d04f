"""A seal says who made it, for whom, and what: nothing of it can be changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.conversations.compaction.seals import Seal, SealBroken, SealKey, is_seal, read_key
from foldline.errors import InvalidInput

KEY, OTHER = SealKey(b"k" * 32), SealKey(b"o" * 32)
SEAL = Seal("item", "What was done.", ({"role": "user", "content": "Go."}, None, {"b": 1, "a": [2.5, None, "ä\ud800"]}))


def breach(text: str, key: SealKey = KEY, client: bytes = b"me", summary: str | None = None) -> str:
    with pytest.raises(SealBroken) as raised:
        key.open(text, client, summary=summary)
    return raised.value.breach


def test_what_was_sealed_comes_back_in_the_order_of_its_fields() -> None:
    opened = KEY.open(KEY.seal(SEAL, b"me"), b"me")
    assert opened == SEAL
    assert list(opened.shown[2] or ()) == ["b", "a"]


def test_the_same_content_has_the_same_seal() -> None:
    assert KEY.seal(SEAL, b"me") == SealKey(b"k" * 32).seal(SEAL, b"me")


@given(st.data())
def test_no_character_can_be_changed(data: st.DataObject) -> None:
    text = KEY.seal(SEAL, b"me")
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(codec="ascii", min_codepoint=32, max_codepoint=126).filter(lambda c: c != text[at]))
    changed = text[:at] + other + text[at + 1 :]
    try:
        # The last character of base64 has bits that mean nothing: then it is the same seal.
        assert KEY.open(changed, b"me") == SEAL
    except SealBroken as broken:
        assert broken.breach in ("foreign", "signature")


def test_a_seal_holds_for_its_key_its_client_and_its_summary_alone() -> None:
    beside = KEY.seal(SEAL, b"me", inside=False)
    assert KEY.open(beside, b"me", summary="What was done.") == SEAL
    assert breach(beside, summary="What was never done.") == "content"
    assert breach(beside) == "content"
    assert breach(beside, client=b"you", summary="What was done.") == "owner"
    assert breach(beside, OTHER, summary="What was done.") == "foreign"
    assert "What was done" not in beside


@pytest.mark.parametrize("text", ["", "foldline-1", "foldline-1...", "foldline-1.x.y.z", "gAAAA", "foldline-1.ä.b.c"])
def test_any_other_text_is_foreign(text: str) -> None:
    assert breach(text) == "foreign"


def test_a_seal_betrays_neither_key_nor_credential() -> None:
    text = KEY.seal(SEAL, b"sk-secret")
    assert is_seal(text)
    assert "secret" not in repr(KEY)
    assert b"k" * 32 not in repr(KEY).encode()
    assert KEY.name not in OTHER.seal(SEAL, b"me")


def test_a_key_is_created_for_its_owner_only_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "compaction.key"
    first = read_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)  # as after a copy
    assert read_key(path).secret == first.secret
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", ["", "no key", "abcd", "ä" * 64])
def test_a_file_without_a_key_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "key"
    path.write_text(content, "utf-8")
    with pytest.raises(InvalidInput, match="32 bytes"):
        read_key(path)
