"""Echoes in the text of an error: parts of the request, quoted values, and values shown after a complaint.

A server that refuses a parameter quotes it, and a validation error shows the whole input. A user's text that says
"maximum context length is 3000 tokens" then appears in an error about something else. Nothing that the client wrote is
evidence of the window's size, so echoes are removed before wordings are searched.

`without_shown_value` cuts at complaints about one value ("Could not parse: …", "stop sequence is invalid: …"): after
the colon or quotation mark comes that value. Complaints about the whole request ("Invalid request: …"), a status
("INVALID_ARGUMENT: …") or a wrapped error ("Input validation error: …") are followed by the server's own words; so are
clauses that mention a size themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from foldline.messages import Json

__all__ = [
    "stands_in",
    "strip_echoes",
    "strip_values",
    "without_shown_value",
]

_BLOCK = 8  # letters and digits compared at once; a repetition of twice that length is always found
_LEAST = 15  # letters and digits of a repetition with a number in it
_LEAST_WORDS = 40  # letters and digits of one without a number: shorter phrases are common
_MAX_VALUES = 200_000  # strings visited in one request
_DATA_CHARS = 4_096  # a longer string without a blank is data (an image), not words
_MAX_DEPTH = 64
_MAX_COMPARISONS = 2_000_000

_ESCAPE = r"\\+(?:u[0-9a-fA-F]{4}|[nrtbf\"'/\\])"
_WORD = r"[^\W_]+"

# A quoted value after a word that announces one. A value in single quotes may contain an apostrophe, so the closing
# quote must precede the end, a blank or punctuation.
_LEADS = (
    r"invalid|unsupported|unrecogni[sz]ed|unknown|unexpected|illegal|bad|received|got|given|provided|found|was|value|"
    r"values|input|input_value|content|argument|parameter|enum|literal|one of|are|not"
)
_VALUE = (
    rf"(?i)(?P<lead>\b(?:{_LEADS})\b(?: (?:value|string|input|parameter|type|enum))?\s?[:=]?\s?\[?)"
    r"(?P<mark>\\{0,9}[\"'`])(?P<value>.{12,}?)(?P=mark)(?=\s*(?:$|[.,;:)\]}]|[a-z]{2,9}\b))"
)
_REFUSED = (
    r"(?i)(?P<mark>\\{0,9}[\"'`])(?P<value>.{12,}?)(?P=mark)(?= is not (?:one of|a valid|of type|allowed|supported))"
)
_SHOWN = (
    r"(?i)(?:\binput_value=|['\"](?:input|received|ctx|value)['\"]\s?:\s?).{1,16000}?"
    r"(?=, ?(?:input_type=|['\"](?:url|ctx|type|loc|msg)['\"])|$)"
)
# A name unknown to the server. The end of a long one cannot be found, so the text is cut there.
_NAMED = (
    r"arguments?|param(?:eter)?s?|fields?|name|keys?(?:\(s\))?|propert(?:y|ies)|options?|variants?|roles?|tools?|"
    r"functions?|headers?|keywords?|attributes?|members?|inputs|models?|stop sequence|\w{0,20}_?id"
)
_UNKNOWN = (
    r"(?i)\b(?:un(?:known|recogni[sz]ed|supported|expected|defined)|extra|additional|duplicated?|no such|disallowed|"
    r"invalid(?= (?:user|tool|call|stop|model|role|header|metadata|function|property|field)))"
    rf"(?: \w{{1,12}}){{0,2}}? (?:{_NAMED})(?!\w)(?: in [\w ]{{1,20}}| supplied| provided| given| received|"
    r"(?: is| are)? not \w{2,12})?[\s:(\['\"`\\]{1,9}"
)
_SHORT = (
    r"(?i)[\w.\[\]$/-]{1,80}(?:\\{0,9}['\"`]|[.,;)\]]|\s?$)|"
    r"(?:error|exception|failure|input|request|response)\w{0,9}:|(?:[\w.]{1,40} )?(?:is|are|was|does) (?:not|un\w+)\b|"
    r" ?(?:and|for|in|with|when) "
)
_UNKNOWN_BEFORE = (
    r"(?i)(?:(?:^|[.;:] )(?:the )?(?:\w{1,12} )?(?:argument|field|key|property|option|role|tool|model|header|"
    r"attribute)(?: name)?(?: ['\"`]?|: )(?=\S{1,40} ).{12,400}?['\"`]? (?:is|are|was|were|does|do) (?:un\w{3,12}|"
    r"illegal|not (?:\w{2,12} )?(?:known|recogni[sz]ed|supported|permitted|allowed|expected|exist|found|"
    r"match))|(?:^|[.;] )\S{1,60} .{12,400}?(?=: extra inputs? (?:is|are) not ))"
)
_STRICT = r"(?i)\b(?:value|got|received|input|unsupported|invalid)\b"
_SPEAKS = r"(?i)\b(?:token|context|prompt|length|window)"


def strip_values(text: str) -> str:
    """The text without quoted values. O(size)."""
    text = re.sub(_SHOWN, " ", text)

    def without(found: re.Match[str]) -> str:
        # A single word in quotes is a name or a number. Braces hold the body of another server, which is read
        # elsewhere.
        value, lead = found["value"], found.groupdict().get("lead") or ""
        if " " not in value or (value[0] in "{[" and not re.search(_STRICT, lead)):
            return found[0]
        return f"{lead}{found['mark']}…{found['mark']}"

    if not re.search(_SPEAKS, text):
        return text
    for found in re.finditer(_UNKNOWN, text):
        if not re.match(_SHORT, text[found.end() : found.end() + 120]):
            text = text[: found.end()]
            break
    text = re.sub(_UNKNOWN_BEFORE, " (a name) ", text)
    return re.sub(_REFUSED, without, re.sub(_VALUE, without, text))


def strip_echoes(text: str, request: object) -> str:
    """The text without repetitions of the request: words with a whole number among them, or many words in a row.

    `request` is a JSON value, JSON text or bytes. Only letters and digits are compared, so that quoting, escaping and
    white space make no difference. O(size of both).
    """
    # Blocks of the text in a table, and steps of a block's length over the request: a repetition of twice that length
    # holds a whole step, wherever it begins. The request may be megabytes, the text is 16 KiB at most.
    letters, places = _letters(text)
    blocks: dict[str, list[int]] = {}
    for at in range(len(letters) - _BLOCK + 1):
        blocks.setdefault(letters[at : at + _BLOCK], []).append(at)
    repeated = bytearray(len(letters))
    left, edged = _MAX_COMPARISONS, f"\0{letters}\0"
    for value in _strings(_value(request), 0, [_MAX_VALUES]):
        if len(value) > _DATA_CHARS and re.search(r"\s", value) is None:
            continue
        other, _ = _letters(value, placed=False)
        for at in range(0, len(other) - _BLOCK + 1, _BLOCK):
            before, after = other[at - 1 : at], other[at + _BLOCK : at + _BLOCK + 1]
            for start in blocks.get(other[at : at + _BLOCK], ()):
                left -= 1
                if left < 0:
                    return ""  # crafted to be slow: none of it is evidence
                # Most blocks that are equal have other neighbours: one block alone is no repetition.
                if (edged[start] == before or edged[start + _BLOCK + 1] == after) and not repeated[start]:
                    _mark(letters, start, other, at, repeated)
    return _without(text, letters, places, repeated)


def stands_in(request: object, codes: frozenset[str]) -> frozenset[str]:
    """The codes that equal a whole string of the request, which a client may name anything. O(size of the request)."""
    return codes & frozenset(value.strip().lower() for value in _strings(_value(request), 0, [_MAX_VALUES]))


def _value(request: object) -> Json:
    if isinstance(request, str | bytes | bytearray):
        try:
            return json.loads(request)
        except (ValueError, RecursionError):
            return request
    return request


def _strings(value: Json, depth: int, left: list[int]) -> Iterator[str]:
    """Every string in a JSON value; plain text and bytes count as one string."""
    left[0] -= 1
    if left[0] < 0 or depth > _MAX_DEPTH:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes | bytearray):
        yield bytes(value).decode("utf-8", "replace")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(key, str) and " " in key:
                yield key
            if key != "model" or not isinstance(inner, str) or " " in inner:  # errors name the model in their own right
                yield from _strings(inner, depth + 1, left)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(inner, depth + 1, left)


def _letters(text: str, *, placed: bool = True) -> tuple[str, list[int]]:
    """The letters and digits of a text in lower case, and the position of each."""
    if "\\" in text:
        text = re.sub(_ESCAPE, lambda found: " " * len(found[0]), text)
    if not placed:
        return "".join(re.findall(_WORD, text)).lower(), []
    words: list[str] = []
    places: list[int] = []
    for found in re.finditer(_WORD, text):
        lower = found[0].lower()
        words.append(lower if len(lower) == len(found[0]) else found[0])
        places.extend(range(*found.span()))
    return "".join(words), places


def _mark(text: str, at: int, other: str, there: int, repeated: bytearray) -> None:
    """Mark the longest repetition around two equal places, if it is long enough."""
    start, begin = at, there
    while start > 0 and begin > 0 and text[start - 1] == other[begin - 1]:
        start, begin = start - 1, begin - 1
    stop, end = at, there
    while stop < len(text) and end < len(other) and text[stop] == other[end]:
        stop, end = stop + 1, end + 1
    # A longer number is another number: 30000 does not repeat 3000.
    while start < stop and text[start].isdecimal() and start > 0 and text[start - 1].isdecimal():
        start += 1
    while stop > start and text[stop - 1].isdecimal() and stop < len(text) and text[stop].isdecimal():
        stop -= 1
    size = stop - start
    if size >= _LEAST_WORDS or (size >= _LEAST and any(sign.isdecimal() for sign in text[start:stop])):
        repeated[start:stop] = b"\1" * size


def _without(text: str, letters: str, places: list[int], repeated: bytearray) -> str:
    pieces, last, at = [], 0, 0
    while (start := repeated.find(1, at)) >= 0:
        stop = repeated.find(0, start)
        stop = stop if stop >= 0 else len(letters)
        pieces.append(text[last : places[start]])
        last, at = places[stop - 1] + 1, stop
    # A mark, not nothing: the words on both sides must not meet as one sentence.
    return " … ".join([*pieces, text[last:]]) if pieces else text


# A longer text before a colon does not introduce a value.
_CLAUSE_CHARS: Final = 160


_MARKS: Final = re.compile(r":(?=\s|$|[\"'`“«‘(\[])|(?<=\s)[\"'`“«](?=\S)|[.;!?](?=\s)|\s[-–—>]{1,2}(?=\s)")


_SHORT_NAME: Final = re.compile(r"[\"'`][\w.\[\]/$-]{1,80}[\"'`]")


# What OpenAI writes after "Invalid 'messages[0].content': " (its API reference, "Error codes"): a statement, no value.
_STATES: Final = re.compile(
    r"\s*(?:string|array|list|integer|decimal|number|object|empty \w+) (?:too|above|below|does|is|length|exceeds)\b",
    re.IGNORECASE,
)


_FIGURE: Final = re.compile(r"\s*[~(\[]{0,2}\d")


# Before a number these words give a size; before anything else, a value.
_GIVEN_ALONE: Final = r"(?:but )?(?:got|found|received|given|saw|you sent|actual(?: value)?)"


_EDGES: Final = " \t\"'`()[]{}<>,*"


# Nouns for the whole request, for wrapped errors, and for statuses: complaints about these show no value.
_WHOLE: Final = frozenset(
    "request requests input inputs prompt prompts message messages content contents body payload context conversation "
    "history text chat call calls response responses reply error errors exception failure status code operation query "
    "completion completions generation usage state gateway server upstream provider backend config configuration data "
    "entity it this that total size length limit window instance batch sequence sequences tokens result results "
    "argument_error model_error bedrock openai".split()
)


# With "invalid" before them these are a status (gRPC's INVALID_ARGUMENT, DashScope's InvalidParameter), no value.
_BARE: Final = frozenset("argument arguments parameter parameters param params".split())


# Phrases for one part, although their last word may mean the whole: "stop sequence", "tool call".
_PART: Final = r"\b(?:stop|tool|function|escape|byte|control|media|cache|image|user|session) \w+$"


# Things other than the prompt that may be too long.
_SHORT_THINGS: Final = frozenset(
    "sequence name id identifier description header key label tag role url uri title metadata user field value".split()
)


_SPEAKS_OF_SIZE: Final = (
    r"\b(?:exceed\w*|overflow\w*|too (?:long|large|big|many)|length|size|limit\w*|window|maximum|tokens|"
    r"token (?:count|limit|length)|n_ctx|num_ctx|max_\w*(?:tokens|len\w*))\b"
)


_FORM: Final = (
    r"(?:re-?)?(?:pars(?:e|es|ed|ing)|decod\w+|deseriali[sz]\w+|unmarshal\w*|coerc\w+|cast|interpret\w*|recogni[sz]\w+|"
    r"understand|translat\w+|transliterat\w+|tokeni[sz]e|compile|evaluate|convert|make sense of|read|scan|match|"
    r"look up|find|resolve|identify)"
)


_CANNOT: Final = (
    r"\b(?:(?:could|can|did|do|does|was|were)(?: not|n't|not)(?: be)?|cannot(?: be)?|unable to(?: be)?|"
    r"fail(?:ed|ure|s)?(?: to| in| at| while| when)?|errors? (?:(?:while|when|in|at|on) )?|trouble|"
    rf"problem(?: while| when)?|not able to|impossible to|stopped|choked on|while|when) ?(?:\w+ly )?{_FORM}\b"
)


# The thing that could not be read is another server's answer: the words after it are that server's.
_OF_ANOTHER: Final = (
    r"\b(?:errors?|exception|request|failure|response|reply|answer|stream|upstream)(?: stream| body| from \w+)?$"
)


_FORM_ERROR: Final = (
    r"\b(?:pars(?:e|er|ing)|syntax|decod(?:e|er|ing)|lexer|grammar|schema|template|regexp?|json|yaml|xml|format|"
    r"conversion|deseriali[sz]ation)(?: (?:validation|check))? (?:error|failure|failed|exception|mismatch)\b|"
    r"\b\w*(?:parse|parser|decode|syntax)_?(?:error|exception)\b|"
    r"\b(?:pars(?:er|ing)|lexer|rendering|decod(?:er|ing)|compilation|conversion|deseriali[sz]ation) (?:\w+ )?"
    r"(?:failed|stopped|aborted|gave up|broke|ended)\b"
)


_WRONG: Final = (
    r"(?:bad|invalid|illegal|malformed|unknown|unrecogni[sz](?:ed|able)|unsupported|unexpected|wrong|incorrect|"
    r"improper|inadmissible|disallowed|forbidden|undefined|undeclared|duplicated?|conflicting|offending|rejected|"
    r"refused|flagged|blocked|ill-formed|garbled|unpars\w+|unreadable|untrusted|unacceptable|nonexistent|no such|"
    r"missing|mismatched|faulty|broken|ambiguous|unterminated|unbalanced|unclosed|unmatched)"
)


_OF_A_THING: Final = (
    rf"\b(?:{_WRONG}|^(?:is )?not an?(?: valid)?|\bno (?:matching|known|valid)|^no) "
    r"(?P<thing>(?:[\w'`\"./\[\]$-]+ ?){1,5}?)(?= ?$| (?:in|for|of|from|at|on|to|by|with|near|given|"
    r"received|supplied|provided|found|passed|sent|was|were|is|are|value|named|called|detected)\b)"
)


_IS_WRONG: Final = (
    r"(?P<thing>[\w'`\"./\[\]$-]+) (?:(?:field|value|parameter|entry|one) )?(?:(?:is|are|was|were|looks?|seems?|"
    r"appears?|has been|have been|being|be|contains?|had|has|must be|should be)(?: to be)?(?: an?)? "
    rf"(?:{_WRONG}|not (?:an? )?\w+|no \w+|neither\b.*|one of\b.*|either\b.*|an? [\w ]+|of (?:the )?type\b.*)|"
    r"not (?:an? )?(?:valid|allowed|supported|permitted|accepted|known|found|defined|recogni[sz]\w+|registered)\b|"
    r"(?:does|do|did|could|can|must|should|may|will)(?: not|n't) (?:match|exist|contain|start|end|begin|be|have|"
    r"conform|parse|resolve|validate|look)\b.*|cannot (?:be|contain|start|end|have)\b.*|"
    r"must (?:match|start|end|contain|be)\b.*|"
    r"(?:expected|required|should)\b.*)"
)


_IS_LONG: Final = r"(?P<thing>\w+) (?:is|are|was|were) (?:far |much )?too (?:long|large|big)\b"


_GIVEN: Final = (
    rf"^{_GIVEN_ALONE}$|"
    r"\b(?:expect\w*|must|should|instead of|rather than)\b.*\b(?:got|received|given|found|saw|was|were|had)$"
)


def without_shown_value(text: str) -> str:
    """The text up to the value shown after a complaint; all of it without one. O(size)."""
    start = 0
    for mark in _MARKS.finditer(text):
        if mark[0][0] in ".;!?" or mark[0][0].isspace():
            start = mark.end()
            continue
        clause = text[start : mark.start()] if mark.start() - start <= _CLAUSE_CHARS else ""
        is_colon = mark[0] == ":"
        if not is_colon and _SHORT_NAME.match(text, mark.start()):
            continue
        if _FIGURE.match(text, mark.end()) and re.fullmatch(_GIVEN_ALONE, clause.strip().lower()):
            continue
        if clause and _complains(clause) and not _STATES.match(text, mark.end()):
            return text[: mark.end()]
        if is_colon:
            start = mark.end()
    return text


def _complains(clause: str) -> bool:
    """Whether a clause complains about one value, not about the request or its size."""
    # From the sure signs to the weak ones. A clause about a size ends the search before the weak ones: what follows it
    # is the server's own figure, which must not be cut away.
    words = " ".join(clause.lower().replace("_", " ").split())
    if re.search(_FORM_ERROR, clause.lower()):
        return True
    if re.search(_CANNOT, words):
        return re.search(_OF_ANOTHER, words) is None
    if any(_last_noun(found["thing"]) in _SHORT_THINGS for found in re.finditer(_IS_LONG, words)):
        return True
    if re.search(_SPEAKS_OF_SIZE, words):
        return False
    if re.search(_GIVEN, words):
        return True
    return any(_is_value(found, words) for found in re.finditer(_OF_A_THING, words)) or any(
        _is_value(found, words) for found in re.finditer(_IS_WRONG, words)
    )


def _is_value(found: re.Match[str], words: str) -> bool:
    """Whether the subject of a complaint is one value: not the request, an error, or a bare "argument"."""
    noun = _last_noun(found["thing"])
    if re.search(_PART, words[: found.end("thing")].rstrip()) and not noun.startswith(("input", "request", "error")):
        return True
    if not noun or noun in _WHOLE or noun.isdecimal() or noun.endswith(("error", "exception", "request")):
        return False
    is_bare = noun in _BARE and re.match(r"(?:invalid|illegal|incorrect|unknown|unsupported)\b", found[0]) is not None
    return not (is_bare and len(found["thing"].split()) == 1)


def _last_noun(thing: str) -> str:
    words = [word.strip(_EDGES) for word in thing.split()]
    return re.split(r"[./\[\]]+", words[-1].strip(".[]/"))[-1] if words else ""
