from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
import toktok
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline.errors import MissingExtra
from foldline.providers import exact
from foldline.providers.exact import exact_counter

ANY_TEXT = st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=200)
TEXTS = ["hello world", "def f(x):\n    return x\n", "上下文窗口", "🧠 naïve", " " * 500, "1234567890" * 20]


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        (None, "cl100k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("claude-sonnet-4-5", "cl100k_base"),
        ("gpt-4o-mini", "o200k_base"),
        ("gpt-4.1", "o200k_base"),
        ("openai/gpt-5.6-sol", "o200k_base"),
        ("o3", "o200k_base"),
        ("openrouter/openai/o4-mini", "o200k_base"),
        ("openai/gpt-oss-120b", "o200k_harmony"),
        ("Qwen/Qwen3.5-9B", "qwen3.5"),
    ],
)
def test_the_vocabulary_follows_the_model(model: str | None, encoding: str) -> None:
    counter = exact_counter(model)
    assert counter.name == encoding
    assert [counter.text(text) for text in TEXTS] == toktok.batch_count(TEXTS, encoding)


@costly
@given(st.text(max_size=300))
def test_counts_are_those_of_the_library(text: str) -> None:
    for model, encoding in (("gpt-4", "cl100k_base"), ("gpt-4o", "o200k_base")):
        assert exact_counter(model).text(text) == toktok.batch_count([text], encoding)[0]


@given(ANY_TEXT)
def test_lone_surrogates_are_counted_too(text: str) -> None:
    assert exact_counter("gpt-4o").text(text) >= (1 if text else 0)


def test_a_surrogate_pair_counts_as_the_character_it_stands_for() -> None:
    assert exact_counter().text("\ud83e\udde0") == exact_counter().text("🧠")
    assert exact_counter().text("\ud83d!") == exact_counter().text("�!")


@pytest.mark.parametrize("special", ["<|endoftext|>", "<|im_start|>", "<|fim_prefix|>"])
def test_special_tokens_in_a_text_are_text(special: str) -> None:
    assert exact_counter("gpt-4").text(special) > 1
    assert exact_counter("gpt-oss-20b").text(special) > 1


@pytest.fixture
def no_toktok(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No toktok-rs, and an empty cache folder for tiktoken, which is returned."""
    monkeypatch.setitem(sys.modules, "toktok", None)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("model", ["gpt-4", "gpt-4o", "qwen3.5-9b"])
def test_without_a_vocabulary_the_install_line_is_named(no_toktok: Path, model: str) -> None:
    with pytest.raises(MissingExtra, match=r"pip install 'foldline\[exact\]'"):
        exact_counter(model)
    assert not list(no_toktok.iterdir())


def test_a_broken_cached_vocabulary_is_left_alone(no_toktok: Path) -> None:
    broken = no_toktok / "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
    broken.write_bytes(b"cut off")
    with pytest.raises(MissingExtra):
        exact_counter("gpt-4")
    assert broken.read_bytes() == b"cut off"


@pytest.mark.parametrize("variable", ["TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"])
def test_an_empty_cache_folder_setting_means_no_cache(
    no_toktok: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    monkeypatch.setenv(variable, "")
    with pytest.raises(MissingExtra):
        exact_counter("gpt-4")
    assert no_toktok.is_dir()


class Encoding:
    """A vocabulary of characters, in the form of tiktoken's."""

    def __init__(self, name: str) -> None:
        self.name = name

    def encode_ordinary(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]


def test_tiktoken_is_used_where_its_vocabulary_is_cached(no_toktok: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiktoken = ModuleType("tiktoken")
    tiktoken.get_encoding = Encoding  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tiktoken", tiktoken)
    content = b"not the real vocabulary, which has two megabytes"
    (no_toktok / "cached").write_bytes(content)
    monkeypatch.setitem(exact._CACHED, "o200k_base", ("cached", hashlib.sha256(content).hexdigest()))
    assert exact_counter("gpt-4o").text("four") == 4
    assert exact_counter("gpt-oss-20b").text("\ud83d") == 1
    with pytest.raises(MissingExtra):
        exact_counter("gpt-4")


def test_a_cached_vocabulary_without_tiktoken_is_of_no_use(no_toktok: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    (no_toktok / "cached").write_bytes(b"x")
    monkeypatch.setitem(exact._CACHED, "o200k_base", ("cached", hashlib.sha256(b"x").hexdigest()))
    with pytest.raises(MissingExtra):
        exact_counter("gpt-4o")
