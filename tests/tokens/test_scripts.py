from __future__ import annotations

import random
import unicodedata

import pytest

from foldline.providers.exact import exact_counter
from foldline.tokens import ESTIMATE

LEAST = 0.9
"""What a budget leaves for errors of the count."""

SIGNS = {
    "spinner frames": "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏",
    "bars": "▁▂▃▄▅▆▇█",
    "progress": "██████▓▓▒▒░░ 66 %\n",
    "half blocks": "▀▄▌▐▖▗▘▙",
    "chess": "♜♞♝♛♚♟",
    "arrows": "→←↑↓⇒⇐↦⟶⤴ ",
    "boxes": "┏━━━┳━━┓\n┃ a ┃ b┃\n╭──╮╰──╯\n",
    "icons of a prompt": "\ue0b0 main \ue0b1 \uf113 ",
    "control characters": "\x00\x01\x02\x03\x7f",
    "colours of a terminal": "\x1b[32mPASS\x1b[0m tests/a.py \x1b[1;31mFAIL\x1b[0m\n",
    "families": "👩\u200d👩\u200d👧\u200d👦👨🏽\u200d💻🏳\ufe0f\u200d🌈🇩🇪🇯🇵",
    "mathematical letters": "𝐇𝐞𝐥𝐥𝐨 𝒲ℴ𝓇𝓁𝒹 ",
    "stacked marks": "h̷e̸l̶l̵o̴ ",
    "list marks": "✓ passed ✗ failed ● on ○ off ⚠ warn\n",
    "numbers in circles": "① ② ③ Ⅰ Ⅱ ½ № ™ ",
    "wide letters": "ＡＢＣ１２３！？",
}
WORDS = {
    "Cherokee": "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ ",
    "Yi": "ꆈꌠꉙ ꀋꉬ ",
    "Vai": "ꕉꘀꘋꔳꕯ ꔻꖃꕙꕃꕩ ",
    "Tifinagh": "ⵜⴰⵢⵔⵓⴱⴰⵜ ⵟⴰⵢⵍⴰⵏⴷ ",
    "syllabics": "ᐋᕽᐘᑎᓄᐏᐲᓯᒼ ᒉᕑᐅᑫᕀ ",
    "Mongolian": "ᠮᠣᠩᠭᠣᠯ ᠬᠡᠯᠡ ",
    "cuneiform": "𒀭𒂗𒍪 𒌓𒄰 ",
    "Egyptian": "𓂀𓅓𓆑 𓇳𓈖 ",
    "Gothic": "𐌲𐌿𐍄𐌹𐍃𐌺 𐍂𐌰𐌶𐌳𐌰 ",
    "Tibetan": "བོད་ཀྱི་སྐད་ཡིག་",
    "Amharic": "አማርኛ በኢትዮጵያ የሚነገር ",
    "Lao": "ຄີຊົວ ການຖອດອັກສອນ ",
    "Burmese": "မြန်မာဘာသာ စကား ",
    "Khmer": "ភាសាខ្មែរ និយាយ ",
    "Odia": "ଦକ୍ଷିଣ ଏସିଆ ଉପଭାଷା ",
    "Punjabi": "ਸੇਂਟ ਹੇਲੇਨਾ ਨਾਈਜਰ ",
    "Malayalam": "തെലുങ്ക് ജൂലൈ ഹിരഗാന ",
    "Armenian": "Բոլոր մարդիկ ծնվում են ազատ ",
    "Georgian": "ყველა ადამიანი იბადება თავისუფალი ",
    "Syriac": "ܬܪܝܢܒܫܒܐ ܦܝܠܝܦܝܢܝܐ ",
    "N'Ko": "ߡߊߙߑߛߋ ߓߌ߲ߠߊߥߎߟߋ߲ ",
    "Hebrew": "כל בני האדם נולדו בני חורין ושווים בערכם ",
    "Arabic": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق ",
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में समानता प्राप्त है ",
    "Thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกัน",
    "Traditional Chinese": "許多開發者認為這個專案應該繼續維護，並且讓使用者能夠輕鬆地設定環境變數。",
    "Cantonese": "佢哋嘅嘢唔係噉樣㗎，你睇吓啦，咪咁樣講嘢。",
    "rare Chinese": "龘靐齉爩麤 䨻䲜 ",
    "Korean": "모든 인간은 태어날 때부터 자유로우며 존엄과 권리에 있어 동등하다. ",
    "Ukrainian": "Всі люди народжуються вільними і рівними у своїй гідності та правах. ",
    "Kazakh": "Барлық адамдар тумысынан азат және қадір-қасиеті мен құқықтары тең болып дүниеге келеді. ",
    "Polish": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. ",
}
VOCABULARIES = ("gpt-4", "gpt-4o")


def ratio(text: str) -> float:
    """Estimate / the larger of the two counts."""
    return ESTIMATE.text(text) / max(exact_counter(model).text(text) for model in VOCABULARIES)


@pytest.mark.parametrize("text", SIGNS.values(), ids=SIGNS)
def test_signs_are_counted_within_the_margin(text: str) -> None:
    assert LEAST <= ratio(text * 20) <= 1.6


@pytest.mark.parametrize("text", WORDS.values(), ids=WORDS)
def test_words_of_every_script_are_counted_within_the_margin(text: str) -> None:
    assert LEAST <= ratio(text * 20) <= 1.35


def test_the_mean_over_many_scripts_is_near() -> None:
    ratios = [ratio(text * 20) for text in WORDS.values()]
    assert 1.0 <= sum(ratios) / len(ratios) <= 1.10


LETTERS_IN_WORDS = {0x0400, 0x0600, 0x2500}
"""Blocks of which a vocabulary has whole words or runs, so that letters thrown together cost more than those do."""


@pytest.mark.parametrize("mixed", [False, True], ids=["alone", "beside words of ASCII"])
def test_letters_of_any_block_thrown_together_are_counted_within_the_margin(mixed: bool) -> None:
    low = {}
    for start in range(0x80, 0x20000, 0x80):
        signs = [chr(code) for code in range(start, start + 0x80) if unicodedata.category(chr(code))[0] not in "CZ"]
        if not signs or start in LETTERS_IN_WORDS:
            continue
        chance = random.Random(start)
        words = ["".join(chance.choices(signs, k=chance.randint(1, 9))) for _ in range(40)]
        found = ratio(" ".join(f"{word} ok {index}:" for index, word in enumerate(words)) if mixed else " ".join(words))
        if found < 0.87:
            low[f"U+{start:04X}"] = round(found, 2)
    assert low == {}


def test_half_a_pair_of_surrogates_is_a_sign_like_another() -> None:
    assert ESTIMATE.text("\ud800" * 100) >= 100
    assert ESTIMATE.text("\udc00" * 100) >= 100
