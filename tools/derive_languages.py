"""Derive the tables of `foldline.tokens.languages`.

    python tools/derive_languages.py SESSIONS CATALOGS ENGLISH [--without CODE ...]

Needs the extra `exact`, NumPy and SciPy. SESSIONS is a folder of sessions (see calibrate_tokens.py), CATALOGS a folder
of translated programs (`<language>/LC_MESSAGES/*.mo` at any depth), ENGLISH a folder of English texts and of code.
`languages.txt` in the folder of this script has messages in 69 languages. SESSIONS and ENGLISH are the examples of
English, code and data; all other texts are examples of other languages. Languages named by `--without` are left out of
the fit and measured instead.

Two logistic regressions separate the two classes, by single characters and by neighbours. A third fit, over other
languages only, gives the tokens of neighbours beyond the estimate; estimates that are too low weigh more than those
that are too high. The target is the larger of the cl100k_base and o200k_base counts, times AIM.

This is a condensed form of the original fit. It does not reproduce the shipped tables to the digit, because the texts
differ. The Cyrillic figures in `foldline.tokens.scripts` were fitted by hand against the real vocabularies.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import gettext
import random
import re
import string
import textwrap
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import calibrate_tokens as calibrate
import numpy as np
from scipy import optimize, sparse

from foldline.tokens import ESTIMATE, languages

AIM = 1.105
CUTS = ((30, 1_500), (60, 2_500), (120, 1_500), (250, 1_000), (500, 700))  # characters, samples
ENGLISH_WEIGHT = 3.0
EVIDENCE_UNIT, LONE_UNIT = 2, 1 / 3.6
AMOUNT_UNIT = 95  # a hundredth of a token, and a twentieth off
MARKUP = re.compile(r"<[^>]*>|%\(?\w*\)?[-#0-9.l]*[a-zA-Z]|\{[^}]*\}|[&_~]|https?://\S+|\s--?\S+")
CONTINUATION = bytes(range(0x80, 0xC0))
FILLER = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda omega sigma foo bar baz qux word data x y".split()
)
Sample = tuple[str, str]


def in_latin_letters(text: str) -> bool:
    """Whether nearly all letters of a text are Latin."""
    letters = [letter for letter in text if letter.isalpha()]
    return sum(ord(letter) < 0x250 or 0x1E00 <= ord(letter) < 0x1F00 for letter in letters) > 0.97 * len(letters)


def translated(folder: Path) -> Iterator[Sample]:
    """Chunks of translated sentences with their language, at most 50 of each."""
    sentences: dict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.glob("**/LC_MESSAGES/*.mo")):
        code = re.split("[_@]", path.parts[-3])[0]
        if code != "en" and not path.name.startswith("iso_"):
            catalog: dict[str, str] = {}
            with path.open("rb") as file, contextlib.suppress(UnicodeDecodeError, IndexError):  # some are damaged
                catalog = getattr(gettext.GNUTranslations(file), "_catalog")  # noqa: B009
            found = [text for key, text in catalog.items() if key and isinstance(text, str) and key != text]
            sentences[code] += [" ".join(MARKUP.sub(" ", text).split()) for text in found if len(text) >= 25]
    for code, texts in sentences.items():
        random.Random(1).shuffle(texts)
        whole = ". ".join(texts)[:35_000]
        yield from ((code, whole[at : at + 700]) for at in range(0, len(whole) - 300, 700))


def cuts(samples: Sequence[Sample], size: int, count: int, chance: random.Random) -> list[Sample]:
    """So many samples of about `size` characters, from the beginning of a word on."""
    out = []
    for code, text in chance.choices(samples, k=count):
        start = text.find(" ", chance.randrange(max(1, len(text) - size))) + 1 if len(text) > size else 0
        out.append((code, text[start : start + size]))
    return out


def no_words(count: int) -> list[str]:
    """Encoded bytes and random letters: no language, but as far from English as one."""
    chance, out = random.Random(1), []
    for _ in range(count):
        raw, size = chance.randbytes(chance.choice((30, 60, 150, 400))), chance.choice((40, 100, 300, 800))
        out += [base64.b64encode(raw).decode(), base64.b32encode(raw).decode()]
        out.append("".join(chance.choices(string.ascii_lowercase, k=size)))
        for letters in (string.ascii_lowercase, string.ascii_lowercase, string.ascii_uppercase):
            words = ("".join(chance.choices(letters, k=chance.randint(1, 9))) for _ in range(size // 6))
            out.append(" ".join(words))
    return out


def counts(texts: Iterable[str], pairs: bool) -> tuple[sparse.csr_matrix, np.ndarray]:
    """How often each kind stands after each kind (or each first byte anywhere), and the number of characters."""
    rows, columns, values, sizes = [], [], [], []
    for row, text in enumerate(texts):
        data = text.encode("utf-8", "surrogatepass").translate(None, CONTINUATION)
        kinds = (b" %b " % data).translate(languages._KIND_OF) if pairs else data[:256]
        places = [before * languages.KINDS + now for before, now in pairwise(kinds)] if pairs else kinds
        found = Counter(places)
        rows += [row] * len(found)
        columns += found.keys()
        values += found.values()
        sizes.append(len(kinds))
    width = languages.KINDS**2 if pairs else 256
    return sparse.csr_matrix((values, (rows, columns)), shape=(len(sizes), width), dtype=float), np.array(sizes, float)


def evidence(foreign: Sequence[str], english: Sequence[str], pairs: bool, weights: tuple[float, float]) -> np.ndarray:
    """Weights of a logistic regression, the intercept last."""
    found, sizes = counts([*foreign, *english], pairs)
    ratios = sparse.diags(1 / (sizes + languages._DOUBT)) @ found
    side = np.array([1.0] * len(foreign) + [-1.0] * len(english))
    weight = np.where(side > 0, *weights)

    def loss(line: np.ndarray) -> tuple[float, np.ndarray]:
        sure = side * (ratios @ line[:-1] + line[-1])
        pull = -weight * side * np.exp(-np.logaddexp(0, sure))
        slope = np.append(ratios.T @ pull + 1.4e-3 * line[:-1], pull.sum())
        return float((np.logaddexp(0, -sure) * weight).sum() + 7e-4 * (line[:-1] ** 2).sum()), slope

    start = np.zeros(ratios.shape[1] + 1)
    return optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 400}).x


def larger(texts: Sequence[str]) -> np.ndarray:
    """The larger count of each text."""
    return np.array([max(text.real) for text in calibrate.counted([("", 0, text) for text in texts])], float)


def plain(text: str) -> float:
    """The estimate of a text as if it were English."""
    characters = text.encode("utf-8", "surrogatepass").translate(None, CONTINUATION)
    return ESTIMATE.text(text) - languages.tokens_beyond_english(characters) / 100


def amounts(texts: Sequence[str], weight: np.ndarray) -> np.ndarray:
    """Tokens of neighbours beyond the estimate of English, of which the tables in force are no part."""
    real = larger(texts)
    rest = np.array([plain(text) for text in texts]) / real - AIM
    kept = np.ones((languages.KINDS, languages.KINDS))
    kept[languages._OTHER_SCRIPT, :] = kept[:, languages._OTHER_SCRIPT] = 0
    ratios = sparse.diags(1 / real) @ counts(texts, pairs=True)[0] @ sparse.diags(kept.ravel())

    def loss(tokens: np.ndarray) -> tuple[float, np.ndarray]:
        off = ratios @ tokens + rest
        pull = weight * np.select([off < -0.17, off < -0.12, off > 0.12], [12.0, 4.0, 2.0], 1.0)
        return float((pull * off * off).sum() + 0.02 * (tokens**2).sum()), ratios.T @ (2 * pull * off) + 0.04 * tokens

    start = np.zeros(languages.KINDS**2)
    return optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 2_000}).x


def signed(values: np.ndarray, unit: float) -> np.ndarray:
    """The values as signed bytes."""
    return np.clip(np.round(values * unit), -127, 127).astype(np.int8)


def main() -> None:
    """Reads everything, fits, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("sessions", "catalogs", "english"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--without", nargs="*", default=[], metavar="CODE")
    options = parser.parse_args()
    chance = random.Random(5)
    lines = (Path(__file__).parent / "languages.txt").read_text("utf-8").splitlines()
    messages = [(code, text) for code, text in (line.split("\t") for line in lines)]
    chunks = list(translated(options.catalogs))
    others = [sample for sample in chunks if not in_latin_letters(sample[1])]
    prose = [sample for sample in chunks if in_latin_letters(sample[1]) and sample[0] not in options.without]
    known = [sample for sample in messages if sample[0] not in options.without]
    recorded = [("", text.text) for text in calibrate.load(options.sessions) if in_latin_letters(text.text)]
    recorded += [("", path.read_text("utf-8", "replace")) for path in options.english.rglob("*") if path.is_file()]
    foreign, english = no_words(25) * 4, []
    for size, count in CUTS:
        foreign += [text for _, text in cuts(prose, size, count, chance)]
        english += [text for _, text in (*cuts(recorded, size, 2 * count, chance), *cuts(others, size, 200, chance))]
    foreign += [text for sample in known for _, text in (sample, sample, *cuts([sample], 60, 10, chance))]
    english += [(word + " ") * repeats for word in FILLER for repeats in (20, 80, 80)]
    lone = evidence(foreign, english, pairs=False, weights=(10.0, 1.0))
    near = evidence(foreign, english, pairs=True, weights=(1.0, ENGLISH_WEIGHT))
    sizes = Counter(code for code, _ in prose)
    fitted = [*((text, 13 / sizes[code] ** 0.7) for code, text in prose), *((text, 6.0) for _, text in known)]
    fitted += [(text, 0.7) for text in no_words(25)]
    more = amounts([text for text, _ in fitted], np.array([weight for _, weight in fitted]))
    raw = (signed(lone[:-1], LONE_UNIT).astype(int) + languages._NO_EVIDENCE).astype(np.uint8).tobytes()
    raw += signed(near[:-1], EVIDENCE_UNIT).tobytes() + signed(more, AMOUNT_UNIT).tobytes()
    packed = base64.b85encode(zlib.compress(raw, 9)).decode()
    print("\n".join(f'    "{line}"' for line in textwrap.wrap(packed, 112, break_on_hyphens=False)))
    print(f"_PRIOR {round(100 * near[-1])}  _CLEARLY_ENGLISH {(-1 - lone[-1]) * LONE_UNIT:.3f}")
    left = [(code, text) for code, text in messages if code in options.without]
    if left:
        texts = [text for _, text in left]
        found, length = counts(texts, pairs=True)
        sure = np.clip((found @ near[:-1] / (length + languages._DOUBT) + near[-1] + 1.1) / 1.1, 0, 1)
        whole = np.array([plain(text) for text in texts]) + sure * (found @ more)
        for (code, _), ratio in zip(left, whole / larger(texts), strict=True):
            print(f"{code} {ratio:.2f}")


if __name__ == "__main__":
    main()
