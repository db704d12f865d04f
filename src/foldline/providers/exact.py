"""Token counts by a model's own vocabulary, offline: the extra `exact`.

toktok-rs includes its vocabularies. tiktoken is used only if the vocabulary is in its cache folder already, because it
would download it otherwise, and a counter opens no connection.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from foldline.errors import MissingExtra
from foldline.tokens import Counter

__all__ = ["exact_counter"]

# The first pattern found in the lower-case name decides. OpenAI's models are those of tiktoken's own table
# (tiktoken/model.py). An unpublished vocabulary (Claude, Gemini) is counted by cl100k_base, which gives the larger
# counts.
_ENCODINGS: Final = (
    (re.compile(r"gpt-oss"), "o200k_harmony"),
    (re.compile(r"gpt-4o|gpt-4\.[1-9]|gpt-[5-9]|chatgpt|(^|[/:])o[1-9]($|-)"), "o200k_base"),
    (re.compile(r"qwen-?3\.[5-9]"), "qwen3.5"),
)
_DEFAULT: Final = "cl100k_base"


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """A counter by one vocabulary, which is its name."""

    name: str
    count: Callable[[str], int]

    def text(self, text: str, /) -> int:
        """Count the tokens of `text`, special tokens as plain text and lone surrogates as U+FFFD. O(size)."""
        return self.count(_encodable(text)) if text else 0


def exact_counter(model: str | None = None) -> Counter:
    """Return the counter for the vocabulary of `model`; cl100k_base for an unknown model.

    Raises MissingExtra without toktok-rs and without a cached vocabulary of tiktoken. The first call for a vocabulary
    loads it (0.3 to 1 s); a text costs about 25 ns per character.
    """
    return _counter(_encoding(model))


def _encoding(model: str | None) -> str:
    name = (model or "").lower()
    return next((encoding for pattern, encoding in _ENCODINGS if pattern.search(name)), _DEFAULT)


def _counter(encoding: str) -> Counter:
    # toktok-rs has its vocabularies inside. tiktoken downloads them, which a library must not do behind one's back, so
    # it serves only from its cache.
    count = _by_toktok(encoding) or _by_tiktoken(encoding)
    if count is None:
        raise MissingExtra("exact", "exact token counts")
    return _Vocabulary(encoding, count)


def _by_toktok(encoding: str) -> Callable[[str], int] | None:
    try:
        from toktok import batch_count
    except ImportError:
        return None

    def count(text: str) -> int:
        # One thread: starting more costs more than counting one text.
        counts: list[int] = batch_count([text], encoding, threads=1)
        return counts[0]

    return count


def _by_tiktoken(encoding: str) -> Callable[[str], int] | None:
    base = "o200k_base" if encoding == "o200k_harmony" else encoding  # they differ only in special tokens
    if not _is_cached(base):
        return None
    try:
        import tiktoken
    except ImportError:
        return None
    encode = tiktoken.get_encoding(base).encode_ordinary
    return lambda text: len(encode(text))


# For each vocabulary, the file's name in tiktoken's cache (the SHA-1 of its address) and the SHA-256 of its content
# (tiktoken_ext/openai_public.py). tiktoken would discard a file with other content and download it again.
_CACHED: Final = {
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
}


def _is_cached(encoding: str) -> bool:
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if folder is None:
        folder = str(Path(tempfile.gettempdir()) / "data-gym-cache")
    if not folder or encoding not in _CACHED:  # to tiktoken an empty folder means no cache
        return False
    name, digest = _CACHED[encoding]
    path = Path(folder) / name
    return path.is_file() and _digest(path, path.stat().st_mtime_ns) == digest


@cache
def _digest(path: Path, changed: int) -> str:
    """Return the SHA-256 of a file. `changed` is its modification time, which makes the cache read a new version."""
    del changed
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _encodable(text: str) -> str:
    """Return the text with surrogate pairs joined and lone ones replaced, as tiktoken does."""
    # UTF-8 has no surrogates. Trying first costs less than looking for them, since nearly all texts have none.
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
