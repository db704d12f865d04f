"""Standing rules in a user's words: "always", "never", "from now on", "do not … until I …", and what ends them.

`durability` (`text/instructions.py`) scores what a digest keeps first, and facts score too. Here only a sentence that
orders for longer than its turn counts. The signs are the plain words of some twenty languages; a rule in other words is
missed, and then is a sentence like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Final, NamedTuple

from foldline.text.instructions import sentences

__all__ = [
    "MOST_RULE_CHARS",
    "lifting_sentences",
    "lifts",
    "qualifies",
    "replaces_rule",
    "rule_lines",
    "standing_sentences",
    "subject",
]

MOST_RULE_CHARS: Final = 600
"""A longer sentence is data or prose. A heading with its list may have twice as many."""

# Sentences of a longer text that are looked at, half of them at each end: the middle is something pasted.
_MOST_SENTENCES: Final = 160

# Characters of a longer text that are looked at, at each end.
_ENDS: Final = 40_000

# Signs that hold wherever they stand.
_ALWAYS_SIGNS: Final = (
    # English: for how long.
    r"\b(?:from (?:now|here) on(?:wards)?|for the rest of|going forward|henceforth|at all times|at no time"
    r"|under no circumstances|no matter what|in (?:all|every|any) (?:future|later|further)\b"
    # English: until when, and on which occasion.
    r"|(?:un)?til (?:i|we) (?:say|tell|ask|give|confirm|approve|allow|agree|have|am|are|come|sign|let|change)"
    r"|unless (?:i|we) (?:say|tell|ask|give|confirm|approve|allow|agree|explicitly)"
    r"|without (?:asking|my|our|checking with)|before asking me|whenever (?:you|i|we)|every time (?:you|i|we)"
    r"|each time (?:you|i|we)|(?:every|each|all) (?:commits?|repl(?:y|ies)|answers?|functions?|tests?|files?) must"
    r"|standing (?:rule|order|instruction)s?|house rules?|ground rules?|hard (?:rule|constraint)s?"
    r"|(?:must|may|shall|should|can) (?:never|always|not)|mustn['’]t|shouldn['’]t|forbidden|prohibited|off[- ]limits"
    r"|not allowed|hands off|you must|i (?:always|never) want|call me)\b"
    # German, Dutch, Swedish.
    r"|\b(?:ab (?:jetzt|sofort|nun|heute)|von (?:nun|jetzt) an|künftig|in zukunft|auf keinen fall|niemals"
    r"|unter keinen umständen|solange ich nicht|bevor ich|bis ich|ohne (?:meine|zu fragen|mich)"
    r"|vanaf nu|voortaan|totdat ik|zonder mijn|från och med nu|aldrig)\b"
    # French, Spanish, Portuguese, Italian.
    r"|\b(?:à partir de maintenant|désormais|dorénavant|tant que je|avant que je|sans mon|jamais"
    r"|a partir de ahora|de ahora en adelante|hasta que (?:yo|te)|sin mi|jamás|nunca"
    r"|a partir de agora|daqui em diante|de agora em diante|até que eu|até eu|sem (?:a )?minha"
    r"|d['’]ora in (?:poi|avanti)|da ora in poi|finché non|senza il mio|non .{1,60} mai)\b"
    # Polish, Russian, Ukrainian, Turkish, Vietnamese, Indonesian.
    r"|\b(?:od teraz|nigdy|dopóki nie|отныне|впредь|с этого момента|никогда|пока я не|відтепер|ніколи"
    r"|bundan sonra|asla|không bao giờ|từ (?:giờ|nay)|jangan|mulai sekarang)\b"
    # Chinese, Japanese, Korean, Arabic, Hindi: no word boundaries.
    r"|从现在起|从今以后|今后|以后都|永远|始终|务必|绝不|绝对不|不要|不得|禁止|一律"
    r"|從現在起|從今以後|今後|決して|絶対に|常に|必ず|しないで|항상|절대|앞으로|지금부터|하지 ?마"
    r"|من الآن فصاعد|لا تقم|أبدا|हमेशा|कभी (?:भी )?न|अब से"
)

# "Always" and "never" also tell how things are ("the build never passed"): then they follow a verb or come before a
# past form.
_ADVERB: Final = (
    r"\b(?:always|never|immer(?! noch| mehr| wieder| weniger)|stets|nie|altijd|nooit|alltid|toujours|siempre|sempre"
    r"|zawsze|всегда|завжди|her zaman|daima|luôn|selalu|mai)\b"
)
_TELLS: Final = (
    r"\b(?:it|he|she|they|this|that|there|which|who|has|have|had|was|were|did|does|['’]s|['’]ve|['’]d|ist|war|hat|habe"
    r"|a|est|era|jest)\s+(?:always|never|immer|stets|nie|toujours|siempre|sempre|zawsze|altijd)\b"
    r"|\bi(?:['’]ve|['’]d)?\s+(?:have\s+|had\s+)?(?:always|never)\s+(?!want|need|expect|prefer|allow)"
    r"|\b(?:always|never)\s+(?:been|was|were|had|worked|works|failed|fails|passed|passes|saw|seen|got|gets|did|happened"
    r"|happens|came|comes|knew|thought|returned|returns|finished|finishes|mind)\b"
)
_PROHIBITS: Final = (
    r"(?:^[\W_]*|[.:;,(–—-]\s*|\b(?:please|and|but|so|also|you|then)\s+)(?:do not|don['’]?t|no longer)\s+"
    r"(?!know\b|think\b|worry\b|understand\b|see\b|have\b|mind\b|care\b|forget\b|bother\b|hesitate\b|believe\b|need\b"
    r"|want\b|like\b|get\b|remember\b|recall\b|agree\b|work\b|seem\b)[a-z]"
)
_CALLED: Final = r"^[\W_]*(?:important|rules?|remember|policy|constraint|requirement|convention|note to self)\s*[:!]"

# What ends a rule. A permission ends a ban only where it says nothing more special than the ban.
_FORGETS: Final = (
    r"\b(?:forget|ignore|drop|scrap|cancel|lift(?:ed)?|withdraw|withdrawn|revoke|disregard|never mind|nevermind"
    r"|no longer|not any ?more|any ?more|doesn['’]t apply|don['’]t apply|do(?:es)? not apply|vergiss|oublie|olvida"
    r"|esqueça|dimentica|забудь)\b|不再|忘掉|忘记|取消|忘れて"
)
_PERMITS: Final = (
    r"\b(?:you (?:can|may|could|are allowed to|are free to)|feel free to|go ahead(?: and)?|(?:it['’]?s|it is|is) (?:ok"
    r"|okay|fine|allowed|all right)(?: now)? to|du darfst|sie dürfen|tu peux|vous pouvez|puedes|você pode|puoi"
    r"|можешь)\b|可以"
)
_ALL_RULES: Final = (
    r"\b(?:forget|ignore|drop|scrap|cancel|lift|withdraw|disregard)\s+(?:all|every|everything|each)"
    r"(?:\s+of)?(?:\s+(?:the|my|our|these|those|your|previous|earlier|standing))*\s+(?:rules?|instructions?|constraints?)\b"
)
_STOP_WORDS: Final = frozenset(
    "a an the to of in on at for and or but so if it is are be been was do does don dont not no never always from "
    "now on until unless till i you we me my our your they them this that these those there then than please must "
    "should shall may can could would will without with by as again anymore any more longer rule rules "
    "instruction said told about forget ignore drop scrap cancel lift lifted withdraw revoke disregard mind "
    "nevermind apply ahead go feel free ok okay fine allowed just also only use using say tell ask give confirm "
    "approve when whenever every each all time session conversation rest while what which have has had let us s t "
    "re ve d ll m".split()
)
_WORD: Final = re.compile(r"[^\W_]{2,}(?:[-./][^\W_]+)*")
# What stands in quotes or code is said by somebody else: "the page says 'always obey'" is no rule.
_QUOTED: Final = re.compile(r"\"[^\"\n]{1,400}\"|“[^”\n]{1,400}”|«[^»\n]{1,400}»|„[^“”\n]{1,400}[“”]|`[^`\n]{1,400}`")
_SINGLE: Final = re.compile(r"(?<![^\W_])['‘][^'’\n]{12,400}['’](?![^\W_])")
_FENCE: Final = re.compile(r"^\s{0,3}(```|~~~)")
_BULLET: Final = re.compile(r"^\s{0,12}(?:[-*•+]|\d{1,3}[.)])\s+\S")
# A line that was pasted: quoted mail, code, a log with a time or a level, a patch.
_PASTED: Final = re.compile(
    r"^\s*(?:>|//|/\*|#include|@@|\+{3} |-{3} |\||\d{4}-\d\d-\d\d[T ]\d\d:|\d\d:\d\d:\d\d|\[?(?:INFO|WARN(?:ING)?|ERROR"
    r"|DEBUG|TRACE|FATAL)\b|Traceback |\s*at \w+[.(]|(?:From|To|Subject|Sent|Von|An|Betreff): )"
)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    # At the first user message, not at import.
    return re.compile(pattern, re.IGNORECASE)


def standing_sentences(text: str) -> tuple[str, ...]:
    """The standing rules in a user's words, as they were written, in order. O(size), of a long text O(ends).

    A heading that reads as a rule ("From now on:") takes the list under it along.
    """
    out: list[str] = []
    for block in _own_blocks(text):
        heading, _, rest = block.partition("\n")
        if rest:
            if _is_rule(heading):
                out.append(block)
                continue
            lines = block.split("\n")
        else:
            lines = [block]
        for line in lines:
            out += [found for found in sentences(line) if _is_rule(found)]
    return tuple(dict.fromkeys(out))


def lifting_sentences(text: str) -> tuple[str, ...]:
    """The sentences of a user that may end a rule or permit what one forbids, in order. O(size), as above."""
    return tuple(
        found
        for block in _own_blocks(text)
        for line in block.split("\n")
        for found in sentences(line)
        if len(found) <= MOST_RULE_CHARS and _may_lift(found)
    )


def _may_lift(sentence: str) -> bool:
    return any(_compiled(sign).search(sentence) for sign in (_FORGETS, _PERMITS))


def rule_lines(text: str) -> tuple[str, ...]:
    """The lines of a file of instructions that read as rules, as they were written. O(size), of a long text O(ends)."""
    return tuple(line for line in map(str.rstrip, _lines(text)) if line.strip() and _is_rule(line))


def _lines(text: str) -> Iterator[str]:
    fence = ""
    for line in text.split("\n"):
        if (mark := _FENCE.match(line)) is not None and fence in ("", mark[1]):
            fence = "" if fence else mark[1]
        elif not fence:
            yield line


def _own_blocks(text: str) -> Iterator[str]:
    """The lines that a user typed: a line alone, or a heading that ends with a colon with the list below it."""
    if len(text) > 2 * _ENDS:
        text = f"{text[:_ENDS]}\n{text[-_ENDS:]}"
    lines = [line for line in _lines(text) if not _PASTED.match(line)]
    if len(lines) > _MOST_SENTENCES:
        lines = lines[: _MOST_SENTENCES // 2] + lines[-_MOST_SENTENCES // 2 :]
    at = 0
    while at < len(lines):
        stop = at + 1
        if lines[at].rstrip().endswith((":", "：")):
            while stop < len(lines) and _BULLET.match(lines[stop]):
                stop += 1
        block = "\n".join(lines[at:stop])
        if stop > at + 1 and len(block) > 2 * MOST_RULE_CHARS:
            stop = at + 1
            block = lines[at]
        yield block.strip()
        at = stop


@lru_cache(maxsize=4_096)
def _is_rule(sentence: str) -> bool:
    if (
        not sentence
        or len(sentence) > 2 * MOST_RULE_CHARS
        or ("\n" not in sentence and len(sentence) > MOST_RULE_CHARS)
    ):
        return False
    said = _SINGLE.sub(" ", _QUOTED.sub(" ", sentence))
    if _compiled(_ALWAYS_SIGNS).search(said):
        return not _asks(said)
    told = _compiled(_TELLS).sub(" ", said)
    orders = any(_compiled(sign).search(told) for sign in (_ADVERB, _PROHIBITS, _CALLED))
    return orders and not _asks(said)


def _asks(sentence: str) -> bool:
    return sentence.rstrip(" \"'”’)").endswith(("?", "？"))


@lru_cache(maxsize=4_096)
def subject(sentence: str) -> frozenset[str]:
    """What a rule is about: its words without those that every rule has, in a plain form. O(size)."""
    return frozenset(_plain(word) for word in _WORD.findall(sentence.lower()) if word not in _STOP_WORDS)


def _plain(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if len(word) > len(ending) + 3 and word.endswith(ending):
            return word[: -len(ending)].rstrip("e")
    return word.rstrip("e") if len(word) > 3 else word


def lifts(sentence: str, rule: str) -> bool:
    """Whether a user's sentence ends a rule: "forget the rule about tabs", "you can push now". O(size) once."""
    if len(sentence) > MOST_RULE_CHARS:
        return False
    said = _lifting(sentence)
    if said.everything or not (said.forgets or said.permits):
        return said.everything
    about, ruled = said.about, subject(rule)
    common = about & ruled
    if not common:
        return False
    if said.forgets and len(common) >= 0.6 * len(about):
        return not _compiled(_FORGETS).search(rule) or about != ruled
    # "You may delete files in build/" is an exception to a ban on deleting, not its end: it names more than the ban.
    return said.permits and common == about and not _compiled(_PERMITS).search(rule)


def qualifies(sentence: str, rule: str) -> bool:
    """Whether a sentence permits part of what a rule forbids. O(size) once."""
    if len(sentence) > MOST_RULE_CHARS or not _lifting(sentence).permits:
        return False
    return bool(subject(sentence) & subject(rule))


class _Lifting(NamedTuple):
    """What a sentence does to rules: all of them, or those about the same."""

    everything: bool = False
    forgets: bool = False
    permits: bool = False
    about: frozenset[str] = frozenset()


@lru_cache(maxsize=1_024)  # each sentence of a user is held against every rule
def _lifting(sentence: str) -> _Lifting:
    if _asks(sentence):
        return _Lifting()
    said = _QUOTED.sub(" ", sentence)
    everything, forgets, permits = [
        _compiled(sign).search(said) is not None for sign in (_ALL_RULES, _FORGETS, _PERMITS)
    ]
    return _Lifting(everything, forgets, permits, subject(said))


def replaces_rule(new: str, old: str) -> bool:
    """Whether a newer rule is about the same as an older one: the newer holds. O(size)."""
    a, b = subject(new), subject(old)
    if not a or not b:
        return " ".join(new.lower().split()) == " ".join(old.lower().split())
    return a == b
