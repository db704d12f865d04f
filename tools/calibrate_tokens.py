"""Fits the cost tables of `foldline.tokens` to recorded sessions, and measures the estimate against them.

    python tools/calibrate_tokens.py FOLDER          # measure the tables as they are
    python tools/calibrate_tokens.py FOLDER --fit    # and print tables fitted anew

FOLDER holds sessions: `*.json.gz` or `*.json`, each an object with "messages" in the Chat Completions form, or that
list. Needs the extra `exact`. The target of each text is the larger of its cl100k_base and o200k_base counts.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import math
import random
import statistics
import string
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import toktok

from foldline.tokens import estimate
from foldline.tokens.scripts import tokens_one_by_one

ENCODINGS = ("cl100k_base", "o200k_base")
CLASSES = 12
PAIRS_END = CLASSES * CLASSES
TEXT, ENDLESS = PAIRS_END, PAIRS_END + 1
WIDTH = ENDLESS + 1
LOWEST_SESSION = 0.955  # where the lift puts the lowest session; the highest must stay under 1.15
HIGHEST_COST = 2.3  # with the lift, hundredths must fit in a byte

# Article 1 of the Universal Declaration of Human Rights (United Nations), and signs that its texts lack.
SAMPLES = (
    (
        "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison "
        "et de conscience et doivent agir les uns envers les autres dans un esprit de fraternité."
    ),
    (
        "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen "
        "begabt und sollen einander im Geist der Brüderlichkeit begegnen."
    ),
    (
        "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są oni obdarzeni "
        "rozumem i sumieniem i powinni postępować wobec innych w duchu braterstwa."
    ),
    (
        "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana sahiptirler ve "
        "birbirlerine karşı kardeşlik zihniyeti ile hareket etmelidirler."
    ),
    (
        "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi. Mọi con người đều "
        "được tạo hóa ban cho lý trí và lương tâm và cần phải đối xử với nhau trong tình bằng hữu."
    ),
    (
        "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα. Είναι "
        "προικισμένοι με λογική και συνείδηση, και οφείλουν να συμπεριφέρονται μεταξύ τους με πνεύμα "
        "αδελφοσύνης."
    ),
    (
        "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и "
        "совестью и должны поступать в отношении друг друга в духе братства."
    ),
    (
        "Всі люди народжуються вільними і рівними у своїй гідності та правах. Вони наділені розумом і "
        "совістю і повинні діяти у відношенні один до одного в дусі братерства."
    ),
    (
        "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. כולם חוננו בתבונה ובמצפון, לפיכך חובה עליהם "
        "לנהוג איש ברעהו ברוח של אחווה."
    ),
    (
        "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق. وقد وهبوا عقلا وضميرا وعليهم أن يعامل بعضهم بعضا "
        "بروح الإخاء."
    ),
    (
        "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। उन्हें "
        "बुद्धि और अन्तरात्मा की देन प्राप्त है और परस्पर उन्हें भाईचारे के भाव से बर्ताव करना चाहिए।"
    ),
    ("มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม และควรปฏิบัติต่อกันด้วยเจตนารมณ์แห่งภราดรภาพ"),
    "மனிதப் பிறிவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்; அவர்கள் மதிப்பிலும், உரிமைகளிலும் சமமானவர்கள்.",
    (
        "ყველა ადამიანი იბადება თავისუფალი და თანასწორი თავისი ღირსებითა და უფლებებით. მათ მინიჭებული აქვთ "
        "გონება და სინდისი."
    ),
    "Բոլոր մարդիկ ծնվում են ազատ ու հավասար իրենց արժանապատվությամբ ու իրավունքներով:",
    (
        "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 인간은 천부적으로 이성과 "
        "양심을 부여받았으며 서로 형제애의 정신으로 행동하여야 한다."
    ),
    (
        "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。人間は、理性と良"
        "心とを授けられており、互いに同胞の精神をもって行動しなければならない。"
    ),
    "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。",
    "人人生而自由，在尊嚴和權利上一律平等。他們賦有理性和良心，並應以兄弟關係的精神相對待。",
    "🙂🚀 done ✅ 👩‍👩‍👧‍👦 family 🎉🔥 🧠 think 🐍 ⚠️ warn",
    "├── src\n│   ├── main.py\n│   └── util.py\n└── tests\n┌────────┬──────┐\n│ a      │ b    │\n└────────┴──────┘",
    "∀x ∈ ℝ: x² ≥ 0 ∧ √(x²) = |x| → “quoted” — it’s … • bullet ≠ ≤",
)


class Text(NamedTuple):
    """One text of a session with its real count in each encoding."""

    session: str
    message: int
    text: str
    real: tuple[int, ...]


def texts_of(messages: Sequence[dict[str, Any]]) -> Iterator[tuple[int, str]]:
    """Every text that a model reads in a session, with the index of its message."""
    for index, message in enumerate(messages):
        content = message.get("content")
        blocks: list[dict[str, Any]] = content if isinstance(content, list) else [{"type": "text", "text": content}]
        yield from ((index, block["text"]) for block in blocks if block.get("type") == "text" and block.get("text"))
        for call in message.get("tool_calls") or ():
            yield index, call["function"]["name"]
            yield index, call["function"]["arguments"]


def counted(rows: Sequence[tuple[str, int, str]]) -> list[Text]:
    """The rows with their real counts."""
    real = zip(*(toktok.batch_count([text for _, _, text in rows], encoding) for encoding in ENCODINGS), strict=True)
    return [Text(session, index, text, count) for (session, index, text), count in zip(rows, real, strict=True)]


def load(folder: Path) -> list[Text]:
    """All texts of the sessions in a folder."""
    rows = []
    for path in sorted([*folder.glob("*.json.gz"), *folder.glob("*.json")]):
        session = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
        messages = session["messages"] if isinstance(session, dict) else session
        rows += [(path.name.removesuffix(".gz").removesuffix(".json"), *found) for found in texts_of(messages)]
    return counted([row for row in rows if row[2]])


def random_runs() -> list[str]:
    """Texts that are no words: encoded bytes, letters, digits, signs, blanks; the same at each call."""
    chance = random.Random(5)
    runs = []
    for size in (40, 400, 3_000):
        raw = chance.randbytes(size)
        runs += [base64.b64encode(raw).decode(), base64.b32encode(raw).decode(), raw.hex(), raw.hex().upper()]
        for letters in ("acgt", "ACDEFGHIKLMNPQRSTVWY", string.ascii_lowercase, string.digits, string.punctuation):
            runs.append("".join(chance.choice(letters) for _ in range(size)))
        runs += [sign * size for sign in "-= \n"]
    return runs


def features(text: str) -> dict[int, int]:
    """How often each cost of the estimate applies to a text."""
    data = text.encode("utf-8", "surrogatepass")
    classes = data.translate(estimate._CLASS_OF, b"" if text.isascii() else estimate._CONTINUATION)
    found = {
        pair % 16 * CLASSES + pair // 16: count
        for pair, count in Counter(estimate._pairs(classes)).items()
        if pair % 16  # class 0 is priced character by character
    }
    found[TEXT] = 1
    found[ENDLESS] = classes.translate(estimate._LETTERS).count(estimate._ENDLESS)
    return found


def given(text: str) -> float:
    """Tokens of a text that no fit changes: those of characters which have their own figure."""
    data = text.encode("utf-8", "surrogatepass")
    pairs = estimate._pairs(data.translate(estimate._CLASS_OF, b"" if text.isascii() else estimate._CONTINUATION))
    return (tokens_one_by_one(data) + estimate._LONE_COST * pairs.count(estimate._LONE)) / 100


def session_totals(texts: Sequence[Text]) -> list[tuple[Counter[int], float]]:
    """Of each session, how often each cost applies, and the part of the real count that these have to make up."""
    totals: dict[str, tuple[Counter[int], float]] = {}
    for text in texts:
        total, real = totals.get(text.session, (Counter(), 0.0))
        total.update(features(text.text))
        totals[text.session] = total, real + max(text.real) - given(text.text)
    return list(totals.values())


def bounded_least_squares(rows: Sequence[tuple[dict[int, float], float]], rounds: int = 400) -> list[float]:
    """Costs from 0 to their highest with the least squared error over (features, target), by coordinate descent."""
    square = [[0.0] * WIDTH for _ in range(WIDTH)]
    right = [0.0] * WIDTH
    for found, target in rows:
        entries = list(found.items())
        for place, value in entries:
            right[place] += value * target
            line = square[place]
            for other, factor in entries:
                line[other] += value * factor
    costs = [0.0] * WIDTH
    for _ in range(rounds):
        for place in range(WIDTH):
            line = square[place]
            if line[place] > 0:
                gradient = right[place] - sum(map(float.__mul__, line, costs))
                highest = HIGHEST_COST if place < TEXT else math.inf
                costs[place] = min(highest, max(0.0, costs[place] + gradient / line[place]))
    return costs


def equations(
    texts: Sequence[Text], totals: Sequence[tuple[Counter[int], float]]
) -> Iterator[tuple[dict[int, float], float]]:
    """Each text by relative error, each session (weight 10) and each sample (weights 3 and 2) by its ratio."""
    for text in texts:
        real = max(text.real)
        weight = 1 / (real + 20)
        yield (
            {place: weight * count for place, count in features(text.text).items()},
            weight * (real - given(text.text)),
        )
    for total, due in totals:
        yield {place: 10 * count / due for place, count in total.items()}, 10.0
    for strength, samples in ((3.0, SAMPLES), (2.0, random_runs())):
        for sample in counted([("", 0, text) for text in samples]):
            whole = max(sample.real)
            rest = strength * (1 - given(sample.text) / whole)
            yield {place: strength * count / whole for place, count in features(sample.text).items()}, rest


def sums(texts: Sequence[Text], estimates: Sequence[float], by_message: bool, encoding: int | None) -> list[float]:
    """Estimate / real of each session, or of each message of 50 tokens or more."""
    totals: dict[object, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for text, guess in zip(texts, estimates, strict=True):
        total = totals[(text.session, text.message) if by_message else text.session]
        total[0] += guess
        total[1] += max(text.real) if encoding is None else text.real[encoding]
    return sorted(guess / real for guess, real in totals.values() if real >= (50 if by_message else 1))


def spread(ratios: Sequence[float]) -> str:
    """A line with the spread of sorted ratios."""
    places = {"lowest": 0.0, "p5": 0.05, "median": 0.5, "p95": 0.95, "highest": 1.0}
    return ", ".join(f"{name} {ratios[round(at * (len(ratios) - 1))]:.3f}" for name, at in places.items())


def report(texts: Sequence[Text], estimates: Sequence[float]) -> None:
    """Prints how far the estimates are off."""
    for by_message in (False, True):
        for encoding, name in ((None, "larger of both"), *enumerate(ENCODINGS)):
            ratios = sums(texts, estimates, by_message, encoding)
            off = statistics.mean(abs(ratio - 1) for ratio in ratios)
            print(f"{'messages' if by_message else 'sessions'} / {name}: {spread(ratios)}, mean error {off:.3f}")


def lifted(costs: Sequence[float], totals: Sequence[tuple[Counter[int], float]]) -> list[int]:
    """The costs in whole hundredths, raised until no session is under LOWEST_SESSION."""
    for lift in range(900, 1_200):
        rounded = [round(cost * lift / 10) for cost in costs]
        ratios = (sum(rounded[place] * count for place, count in total.items()) / real for total, real in totals)
        if min(ratios) >= 100 * LOWEST_SESSION:
            print(f"\nlifted by {lift / 1_000}:")
            return rounded
    raise SystemExit("no lift brings the lowest session up: the fit has gone wrong")


def printed(costs: Sequence[int]) -> None:
    """Prints the tables as they stand in the module, in hundredths of a token."""
    for now in range(CLASSES):
        print(" ".join(f"{costs[now * CLASSES + before]:3}" for before in range(CLASSES)))
    print(f"_TEXT_COST {costs[TEXT]}  _ENDLESS_COST {costs[ENDLESS]}")


def main() -> None:
    """Reads the folder, measures, and fits if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fit", action="store_true", help="fit the tables anew and print them")
    options = parser.parse_args()
    texts = load(options.folder)
    print(f"{len(texts)} texts, {sum(max(text.real) for text in texts):,} tokens")
    report(texts, [estimate.ESTIMATE.text(text.text) for text in texts])
    if options.fit:
        totals = session_totals(texts)
        printed(lifted(bounded_least_squares(list(equations(texts, totals))), totals))


if __name__ == "__main__":
    main()
