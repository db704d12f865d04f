from __future__ import annotations

import base64
import random
import string
import unicodedata
import uuid

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
LATIN_LETTERS = {
    "Afrikaans": "Die kinders speel elke middag in die tuin agter die huis. Hulle ma maak kos en wag vir hulle.",
    "Albanian": "Fëmijët luajnë çdo pasdite në kopsht pas shtëpisë. Nëna e tyre gatuan dhe i pret.",
    "Basque": (
        "Haurrek arratsaldero jolasten dute etxe atzeko lorategian. Amak afaria prestatzen du eta haien zain dago."
    ),
    "Catalan": "Els nens juguen cada tarda al jardí de darrere de la casa. La mare prepara el sopar i els espera.",
    "Croatian": "Djeca se svako poslijepodne igraju u vrtu iza kuće. Majka sprema večeru i čeka ih.",
    "Czech": "Děti si každé odpoledne hrají na zahradě za domem. Matka připravuje večeři a čeká na ně.",
    "Danish": "Børnene leger hver eftermiddag i haven bag huset. Deres mor laver aftensmad og venter på dem.",
    "Dutch": (
        "De kinderen spelen elke middag in de tuin achter het huis. Hun moeder kookt het avondeten en wacht op hen."
    ),
    "Estonian": "Lapsed mängivad igal pärastlõunal maja taga aias. Nende ema valmistab õhtusööki ja ootab neid.",
    "Finnish": (
        "Lapset leikkivät joka iltapäivä puutarhassa talon takana. Heidän äitinsä laittaa ruokaa ja odottaa heitä."
    ),
    "French": "Les enfants jouent chaque après-midi dans le jardin derrière la maison. Leur mère prépare le dîner.",
    "German": (
        "Die Kinder spielen jeden Nachmittag im Garten hinter dem Haus. Ihre Mutter kocht das Abendessen und wartet."
    ),
    "Hungarian": "A gyerekek minden délután a ház mögötti kertben játszanak. Az anyjuk vacsorát főz, és várja őket.",
    "Icelandic": "Börnin leika sér á hverjum degi í garðinum bak við húsið. Móðir þeirra eldar kvöldmat og bíður.",
    "Indonesian": "Anak-anak bermain setiap sore di kebun belakang rumah. Ibu mereka memasak makan malam dan menunggu.",
    "Irish": (
        "Bíonn na páistí ag súgradh gach tráthnóna sa ghairdín taobh thiar den teach. Tá a máthair ag fanacht leo."
    ),
    "Italian": "I bambini giocano ogni pomeriggio nel giardino dietro la casa. La madre prepara la cena e li aspetta.",
    "Latvian": "Bērni katru pēcpusdienu spēlējas dārzā aiz mājas. Viņu māte gatavo vakariņas un gaida viņus.",
    "Lithuanian": "Vaikai kiekvieną popietę žaidžia sode už namo. Jų motina gamina vakarienę ir laukia jų.",
    "Malay": "Kanak-kanak bermain setiap petang di taman di belakang rumah. Ibu mereka memasak dan menunggu mereka.",
    "Norwegian": "Barna leker hver ettermiddag i hagen bak huset. Moren deres lager middag og venter på dem.",
    "Portuguese": (
        "As crianças brincam todas as tardes no jardim atrás da casa. A mãe prepara o jantar e espera por elas."
    ),
    "Romanian": "Copiii se joacă în fiecare după-amiază în grădina din spatele casei. Mama lor gătește și îi așteaptă.",
    "Slovak": "Deti sa každé popoludnie hrajú v záhrade za domom. Ich matka pripravuje večeru a čaká na ne.",
    "Slovene": "Otroci se vsako popoldne igrajo na vrtu za hišo. Njihova mati pripravlja večerjo in jih čaka.",
    "Spanish": (
        "Los niños juegan todas las tardes en el jardín detrás de la casa. Su madre prepara la cena y los espera."
    ),
    "Swahili": (
        "Watoto wanacheza kila siku jioni katika bustani nyuma ya nyumba. Mama yao anapika chakula na kuwasubiri."
    ),
    "Swedish": "Barnen leker varje eftermiddag i trädgården bakom huset. Deras mamma lagar middag och väntar på dem.",
    "Tagalog": (
        "Naglalaro ang mga bata tuwing hapon sa hardin sa likod ng bahay. "
        "Nagluluto ang kanilang ina ng hapunan at naghihintay sa kanila."
    ),
    "Turkish": (
        "Çocuklar her öğleden sonra evin arkasındaki bahçede oynuyor. Anneleri yemek yapıyor ve onları bekliyor."
    ),
    "Vietnamese": "Bọn trẻ chơi mỗi buổi chiều trong khu vườn sau nhà. Mẹ của chúng nấu bữa tối và chờ chúng.",
    "Welsh": "Mae'r plant yn chwarae bob prynhawn yn yr ardd y tu ôl i'r tŷ. Mae eu mam yn coginio ac yn aros.",
    "Zulu": "Izingane zidlala njalo ntambama engadini ngemuva kwendlu. Umama wazo upheka ukudla futhi uyazilinda.",
    "Somali": "Carruurtu galab kasta waxay ku ciyaaraan beerta guriga gadaashiisa. Hooyadood ayaa cunto karinaysa.",
    "Maori": "Ka tākaro ngā tamariki ia ahiahi i te māra kei muri i te whare. Kei te tunu kai tō rātou whaea.",
    "Uzbek": "Bolalar har kuni tushdan keyin uy orqasidagi bog'da o'ynaydilar. Onalari kechki ovqat tayyorlayapti.",
    "Luxembourgish": "D'Kanner spillen all Nomëtteg am Gaart hannert dem Haus. Hir Mamm kacht d'Iessen a waart op si.",
    "Esperanto": "La infanoj ludas ĉiun posttagmezon en la ĝardeno malantaŭ la domo. Ilia patrino kuiras kaj atendas.",
    "Galician": "Os nenos xogan todas as tardes no xardín de detrás da casa. A súa nai prepara a cea e agarda.",
    "Polish": "Dzieci bawią się każdego popołudnia w ogrodzie za domem. Ich matka gotuje kolację i czeka na nie.",
    "Haitian Creole": "Timoun yo jwe chak apremidi nan jaden dèyè kay la. Manman yo ap kwit manje epi l ap tann yo.",
}
LIKE_ENGLISH = {
    "Hausa": "Yara suna wasa kowace yamma a lambun bayan gida. Mahaifiyarsu tana dafa abincin dare tana jiran su.",
    "Latin": "Pueri cotidie post meridiem in horto post domum ludunt. Mater eorum cenam parat et eos exspectat.",
}
"""Languages whose letters stand much as in English, or of which few texts are at hand."""
ENGLISH_WORDS = {
    "short": "the and for not with from this that have your more when will here they what about which their there",
    "everyday": "time person year way day thing man world life hand part child eye woman place work week case point",
    "of programs": "request server module build test file class method function return import string list value",
}
RUSSIAN_LETTERS = "".join(map(chr, range(0x0430, 0x0450)))
NO_LANGUAGE = {
    "base64": base64.b64encode(random.Random(1).randbytes(900)).decode(),
    "base32": base64.b32encode(random.Random(2).randbytes(400)).decode(),
    "hex": random.Random(3).randbytes(400).hex(),
    "identifiers": " ".join(str(uuid.UUID(int=number << 64 | number)) for number in range(10**18, 10**19, 10**18 // 3)),
    "a token of a web server": "eyJhbGciOiJIUzI1NiJ9."
    + base64.urlsafe_b64encode(random.Random(4).randbytes(200)).decode(),
    "minified program": (
        '!function(e,t){"object"==typeof exports&&"undefined"!=typeof module?t(exports):t((e=e||self).d3=e.d3||{})}'
        '(this,function(e){"use strict";function t(e,t){return e<t?-1:e>t?1:e>=t?0:NaN}function n(e){var n;return '
        "1===e.length&&(n=e,e=function(e,r){return t(n(e),r)}),{left:function(t,n,r,i){for(;r<i;){var o=r+i>>>1}}}}});"
    ),
    "table": "┌────────┬──────┐\n│ name   │ size │\n├────────┼──────┤\n│ a.txt  │  120 │\n└────────┴──────┘\n" * 5,
    "capitals": (
        "THE WINDOW OF A MODEL IS WHAT IT CAN SEE AT ONCE. WHEN A SESSION GROWS PAST IT, SOMETHING HAS TO GIVE: "
        "THE OLDEST TURNS, THE LONGEST RESULTS, OR THE WHOLE MIDDLE. " * 4
    ),
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


@pytest.mark.parametrize("text", LATIN_LETTERS.values(), ids=LATIN_LETTERS)
def test_languages_in_latin_letters_are_counted_within_the_margin(text: str) -> None:
    assert LEAST <= ratio(f"{text} " * 20) <= 1.35


@pytest.mark.parametrize("text", LATIN_LETTERS.values(), ids=LATIN_LETTERS)
def test_a_short_message_in_any_language_is_counted_within_the_margin(text: str) -> None:
    assert LEAST <= ratio(text) <= 1.35


@pytest.mark.parametrize("text", LIKE_ENGLISH.values(), ids=LIKE_ENGLISH)
def test_what_looks_like_english_is_counted_a_little_low_at_most(text: str) -> None:
    assert 0.8 <= ratio(f"{text} " * 20) <= 1.35


def test_the_mean_over_languages_in_latin_letters_is_near() -> None:
    ratios = [ratio(text) for text in LATIN_LETTERS.values()]
    assert 1.0 <= sum(ratios) / len(ratios) <= 1.10


@pytest.mark.parametrize("words", ENGLISH_WORDS.values(), ids=ENGLISH_WORDS)
def test_lists_of_english_words_are_not_taken_for_another_language(words: str) -> None:
    assert LEAST <= ratio(f"{words} " * 20) <= 1.2


@pytest.mark.parametrize("text", NO_LANGUAGE.values(), ids=NO_LANGUAGE)
def test_what_is_in_no_language_is_counted_within_the_margin(text: str) -> None:
    assert LEAST <= ratio(text) <= 1.6


@pytest.mark.parametrize("letters", [RUSSIAN_LETTERS, RUSSIAN_LETTERS.upper(), string.ascii_lowercase])
def test_letters_that_make_no_words_are_counted_within_the_margin(letters: str) -> None:
    chance = random.Random(6)
    words = " ".join("".join(chance.choices(letters, k=chance.randint(1, 9))) for _ in range(100))
    assert LEAST <= ratio(words) <= 1.35
    assert LEAST <= ratio("".join(chance.choices(letters, k=600))) <= 1.35


@pytest.mark.parametrize("text", ["y" * 50_000, "q" * 3_000, "xzqj" * 900, ".~" * 400, "(", "Ж" * 99, "ỹ" * 99])
def test_no_text_takes_more_tokens_than_bytes(text: str) -> None:
    assert ESTIMATE.text(text) <= len(text.encode())


def test_one_language_after_another_is_counted_as_each_is() -> None:
    english = "The window of a model is what it can see at once, and a session grows past it. " * 60
    finnish = f"{LATIN_LETTERS['Finnish']} " * 40
    assert LEAST <= ratio(english + finnish) <= 1.2
    assert LEAST <= ratio(finnish + english) <= 1.2


LETTERS_IN_WORDS = {0x0600, 0x2500}
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
