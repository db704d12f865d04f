"""Derives the table of `foldline.tokens.scripts`: what each character outside ASCII takes by itself.

    python tools/derive_scripts.py            # print the table
    python tools/derive_scripts.py --blocks   # measure the estimate over each 128 code points instead

Needs the extra `exact`. The figure of a character is the larger of its cl100k_base and o200k_base counts. In the basic
plane each character has its own; of the planes above, where characters of a kind stand together, each 1,024 have one:
that of most of them. The table is written as these figures, compressed.
"""

from __future__ import annotations

import argparse
import base64
import random
import textwrap
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator

import toktok

from foldline.tokens import ESTIMATE

ENCODINGS = ("cl100k_base", "o200k_base")
BLOCK = 128
WORDS = 120


def larger(texts: list[str]) -> list[int]:
    """The larger count of each text."""
    return list(map(max, *(toktok.batch_count(texts, encoding) for encoding in ENCODINGS)))


def table() -> bytes:
    """A figure for each code point of the basic plane; a high surrogate has that of the 1,024 characters behind it."""
    plane = [code for code in range(0x10000) if not 0xD800 <= code < 0xE000]
    out = bytearray(0x10000)
    for code, tokens in zip(plane, larger([chr(code) for code in plane]), strict=True):
        out[code] = tokens
    for high in range(0xD800, 0xDC00):
        start = 0x10000 + (high - 0xD800) * 0x400
        out[high] = Counter(larger([chr(code) for code in range(start, start + 0x400)])).most_common(1)[0][0]
    return bytes(out)


def blocks() -> Iterator[tuple[float, int, str, str]]:
    """(estimate / real count, first code point, how it was written, a sample) for each block of assigned characters."""
    for start in range(0x80, 0x30000, BLOCK):
        signs = [chr(code) for code in range(start, start + BLOCK) if unicodedata.category(chr(code))[0] not in "CZ"]
        if not signs:
            continue
        chance = random.Random(start)
        words = ["".join(chance.choices(signs, k=chance.randint(1, 9))) for _ in range(WORDS)]
        texts = {
            "words": " ".join(words),
            "unbroken": "".join(words),
            "mixed": " ".join(f"{word} ok {index}:" for index, word in enumerate(words)),
            "spread": " ".join(signs),
        }
        for (how, text), real in zip(texts.items(), larger(list(texts.values())), strict=True):
            yield ESTIMATE.text(text) / real, start, how, text[:12]


def main() -> None:
    """Prints the table, or the measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", action="store_true", help="measure the estimate over each block")
    if not parser.parse_args().blocks:
        packed = base64.b85encode(zlib.compress(table(), 9)).decode()
        print("\n".join(f'    "{line}"' for line in textwrap.wrap(packed, 112, break_on_hyphens=False)))
        return
    for ratio, start, how, sample in sorted(blocks()):
        print(f"{ratio:.2f} U+{start:05X} {how:9} {sample}")


if __name__ == "__main__":
    main()
