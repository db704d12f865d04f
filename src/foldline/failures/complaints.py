"""Where an error has said what is wrong with a value and begins to show it: the rest is the value.

"Could not parse: …", "Bad argument: …", "stop sequence is invalid: …": such a clause complains of one thing that the
client wrote, and what stands behind its colon or its quotation mark is that thing. Clauses that complain of the request
as a whole ("Invalid request: …"), name a status ("INVALID_ARGUMENT: …") or wrap another error ("Input validation
error: …") are followed by the server's own words; so are those that speak of a size themselves.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["without_shown_value"]

_CLAUSE_CHARS: Final = 160
"""A longer text before a colon is no clause that introduces a value."""

_MARKS: Final = re.compile(r":(?=\s|$|[\"'`“«‘(\[])|(?<=\s)[\"'`“«](?=\S)|[.;!?](?=\s)|\s[-–—>]{1,2}(?=\s)")
_SHORT_NAME: Final = re.compile(r"[\"'`][\w.\[\]/$-]{1,80}[\"'`]")
_STATES: Final = re.compile(
    r"\s*(?:string|array|list|integer|decimal|number|object|empty \w+) (?:too|above|below|does|is|length|exceeds)\b",
    re.IGNORECASE,
)
"""How OpenAI goes on after "Invalid 'messages[0].content': " (its API reference, "Error codes"): it shows no value."""

_FIGURE: Final = re.compile(r"\s*[~(\[]{0,2}\d")
_GIVEN_ALONE: Final = r"(?:but )?(?:got|found|received|given|saw|you sent|actual(?: value)?)"
"""Before a figure it tells how much was sent; before anything else, what."""

_EDGES: Final = " \t\"'`()[]{}<>,*"

# What a request is made of as a whole, what wraps an error, and what a status is called.
_WHOLE: Final = frozenset(
    "request requests input inputs prompt prompts message messages content contents body payload context conversation "
    "history text chat call calls response responses reply error errors exception failure status code operation query "
    "completion completions generation usage state gateway server upstream provider backend config configuration data "
    "entity it this that total size length limit window instance batch sequence sequences tokens result results "
    "argument_error model_error bedrock openai".split()
)
_BARE: Final = frozenset("argument arguments parameter parameters param params".split())
"""What is a status behind "invalid" (gRPC's INVALID_ARGUMENT, DashScope's InvalidParameter): then no value is named."""

_PART: Final = r"\b(?:stop|tool|function|escape|byte|control|media|cache|image|user|session) \w+$"
"""What is no whole request, whatever its last word: "stop sequence", "tool call"."""

_SHORT_THINGS: Final = frozenset(
    "sequence name id identifier description header key label tag role url uri title metadata user field value".split()
)
"""What may be too long without being the prompt."""

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
_OF_ANOTHER: Final = (
    r"\b(?:errors?|exception|request|failure|response|reply|answer|stream|upstream)(?: stream| body| from \w+)?$"
)
"""What could not be read is an answer of another server, which follows."""

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
    """The text up to the value that it shows after a complaint; all of it where it shows none. O(size)."""
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
    """Whether a clause says that something is wrong with one value, and not with the request or its size."""
    said = " ".join(clause.lower().replace("_", " ").split())
    if re.search(_FORM_ERROR, clause.lower()):
        return True
    if re.search(_CANNOT, said):
        return re.search(_OF_ANOTHER, said) is None
    if any(_last_noun(found["thing"]) in _SHORT_THINGS for found in re.finditer(_IS_LONG, said)):
        return True
    if re.search(_SPEAKS_OF_SIZE, said):
        return False
    if re.search(_GIVEN, said):
        return True
    return any(_is_value(found, said) for found in re.finditer(_OF_A_THING, said)) or any(
        _is_value(found, said) for found in re.finditer(_IS_WRONG, said)
    )


def _is_value(found: re.Match[str], said: str) -> bool:
    """Whether what is complained of is one value: neither the request, an error, nor a bare "argument"."""
    noun = _last_noun(found["thing"])
    if re.search(_PART, said[: found.end("thing")].rstrip()) and not noun.startswith(("input", "request", "error")):
        return True
    if not noun or noun in _WHOLE or noun.isdecimal() or noun.endswith(("error", "exception", "request")):
        return False
    is_bare = noun in _BARE and re.match(r"(?:invalid|illegal|incorrect|unknown|unsupported)\b", found[0]) is not None
    return not (is_bare and len(found["thing"].split()) == 1)


def _last_noun(thing: str) -> str:
    words = [word.strip(_EDGES) for word in thing.split()]
    return re.split(r"[./\[\]]+", words[-1].strip(".[]/"))[-1] if words else ""
