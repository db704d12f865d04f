"""Fits the costs of `foldline.tokens.letters` and `foldline.tokens.estimate` together, and prints both.

    python tools/derive_letters.py SESSIONS CATALOGS [WORDS ...]

Needs the extra `exact`, NumPy and SciPy. SESSIONS is a folder of sessions (see calibrate_tokens.py), CATALOGS one of
translated programs (`<language>/LC_MESSAGES/*.mo`), WORDS are lists with one word a line: those of English are fitted
as words, each alone, so that lists of them are not taken for another language.
"""

from __future__ import annotations

import argparse
import base64
import gettext
import random
import re
import textwrap
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import calibrate_tokens as calibrate
import numpy as np
from scipy import optimize, sparse

from foldline.tokens.letters import _FIRST, _SECOND, HIGHEST_COST
from foldline.tokens.pairs import pairs

PROSE_CHARACTERS, CHUNKS = 500, 50
MARKUP = re.compile(r"<[^>]*>|%\(?\w*\)?[-#0-9.l]*[a-zA-Z]|\{[^}]*\}|[&_~]|https?://\S+|\s--?\S+")
ENGLISH, FOREIGN, SESSION = 1.02, 1.09, 1.06  # the ratios aimed at
LOW, LOWEST, HIGH = 4.0, 16.0, 3.0  # weights of what is under the aim by 0.05, under it by 0.14, and above it by 0.1


def in_latin_letters(text: str) -> bool:
    """Whether nearly all letters of a text are Latin."""
    letters = [letter for letter in text if letter.isalpha()]
    return sum(ord(letter) < 0x250 or 0x1E00 <= ord(letter) < 0x1F00 for letter in letters) > 0.97 * len(letters)


def prose(folder: Path) -> Iterator[str]:
    """Chunks of translated sentences of each language in Latin letters."""
    sentences: dict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.glob("*/LC_MESSAGES/*.mo")):
        with path.open("rb") as file:
            catalog: dict[str, str] = getattr(gettext.GNUTranslations(file), "_catalog")  # noqa: B009
        found = [text for key, text in catalog.items() if key and isinstance(text, str) and key != text]
        sentences[path.parts[-3]] += [" ".join(MARKUP.sub(" ", text).split()) for text in found if len(text) >= 25]
    for language, texts in sentences.items():
        if language.startswith("en") or not in_latin_letters(" ".join(texts[:200])):
            continue
        random.Random(1).shuffle(texts)
        whole = ". ".join(texts)[: CHUNKS * PROSE_CHARACTERS]
        yield from (whole[at : at + PROSE_CHARACTERS] for at in range(0, len(whole), PROSE_CHARACTERS))


def columns(text: str) -> Counter[int]:
    """How often each cost applies to a text: those of the estimate, then the three tables of letters."""
    found = Counter(calibrate.features(text))
    data = calibrate.characters(text)
    near, far = pairs(data.translate(_FIRST), 1, 2)
    for number, codes in enumerate((near, *pairs(data.translate(_SECOND), 1), far)):
        found.update({calibrate.WIDTH + 256 * number + code: count for code, count in Counter(codes).items() if code})
    return found


def fitted(rows: list[tuple[Counter[int], float, float, float, float]]) -> list[int]:
    """Costs in hundredths from (columns, due, real, aim, weight); what is low weighs more than what is high."""
    width = calibrate.WIDTH + 768
    matrix = sparse.lil_matrix((len(rows), width))
    for place, (found, _, real, _, _) in enumerate(rows):
        for column, count in found.items():
            matrix[place, column] = count / real
    ratios = matrix.tocsr()
    rest = np.array([(real - due) / real for _, due, real, _, _ in rows])
    aim, weight = (np.array([row[place] for row in rows]) for place in (3, 4))
    scale = np.maximum(1e-3, np.sqrt(np.asarray(ratios.multiply(ratios).sum(0)).ravel()))

    def loss(scaled: np.ndarray) -> tuple[float, np.ndarray]:
        off = ratios @ (scaled / scale) + rest - aim
        pull = weight * np.select([off < -0.14, off < -0.05, off > 0.1], [LOWEST, LOW, HIGH], 1.0)
        return float((pull * off * off).sum()), ratios.T @ (2 * pull * off) / scale

    highest = [calibrate.HIGHEST_COST] * calibrate.PAIRS_END + [5.0, 6.0] + [HIGHEST_COST / 100] * 768
    bounds = [(0.0, most * unit) for most, unit in zip(highest, scale, strict=True)]
    found = optimize.minimize(loss, 0.05 * scale, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 1500})
    return [round(100 * cost) for cost in found.x / scale]


def main() -> None:
    """Reads everything, fits, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sessions", type=Path)
    parser.add_argument("catalogs", type=Path)
    parser.add_argument("words", type=Path, nargs="*")
    options = parser.parse_args()
    words = [word for path in options.words for word in path.read_text("utf-8").split() if word.isalpha()]
    kinds = (
        (list(prose(options.catalogs)), FOREIGN, 2.0),
        ([*calibrate.SAMPLES, *calibrate.random_runs()], FOREIGN, 10.0),
        ([" ".join([word] * 10) for word in words], ENGLISH, 0.2),
    )
    rows = []
    texts = calibrate.load(options.sessions)
    totals: dict[str, tuple[Counter[int], float, float]] = {}
    for text in texts:
        found, real, own = columns(text.text), max(text.real), calibrate.own(text.text)
        rows.append((found, real - own, float(real), SESSION, 0.5 * (real / (real + 20)) ** 2))
        before, due, whole = totals.get(text.session, (Counter(), 0.0, 0.0))
        totals[text.session] = before + found, due + real - own, whole + real
    rows += [(found, due, real, SESSION, 100.0) for found, due, real in totals.values()]
    for samples, aim, weight in kinds:
        for text in calibrate.counted([("", 0, sample) for sample in samples if sample]):
            real = float(max(text.real))
            rows.append((columns(text.text), real - calibrate.own(text.text), real, aim, weight))
    costs = fitted(rows)
    calibrate.printed(costs[: calibrate.WIDTH])
    packed = base64.b85encode(zlib.compress(bytes(costs[calibrate.WIDTH :]), 9)).decode()
    print("\n".join(f'    "{line}"' for line in textwrap.wrap(packed, 112, break_on_hyphens=False)))


if __name__ == "__main__":
    main()
