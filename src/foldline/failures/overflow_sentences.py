"""Overflows in words that the table lacks: a size, a limit and an excess in one sentence.

The table is exact and comes first. Other texts are judged by the parts of a sentence: it mentions the context, the
prompt or tokens, and says that something exceeds its maximum. Sentences about other limits (files, images, rates,
names) have the same form, so a single word about those rules a sentence out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from foldline.failures.figures import number_of

__all__ = ["Size", "cap_in", "overflow_in"]

LEAST_TOKENS = 256
"""Smaller numbers are versions, or counts of items or seconds, not sizes of a window."""

MOST_TOKENS = 10**9

_SENTENCES = 60  # read in one text
_NEAR = 3  # sentences read together: "… has N tokens. However, the limit is M."

# The subject of the size. `context` alone has other meanings (a deadline, a manager), so it needs a second word.
_INPUT = (
    r"\b(?:prompts?|input|inputs|messages?|conversation|history|chat|request|requested|sequence|text|payload|"
    r"instructions|you (?:passed|sent|requested|provided))\b|\bentrada|\bsolicitud|\beingabe|\bentrée|"
    r"\banfrage|\brequête|\bзапрос|\bввод|"
    r"提示词?|输入|请求|消息|入力|プロンプト"
)
_WINDOW = (
    r"\bcontext[ _-]?(?:window|length|size|limit|len|capacity|budget)?\b|\b(?:n_ctx|num_ctx|ctx|max_model_len|"
    r"model(?:'s)? max(?:imum)? (?:token |sequence |input )?length|max_seq_len|max_input_tokens|max_input_len|"
    r"max_num_tokens|max_position_embeddings|kv cache)\b|上下文|コンテキスト|\bcontexto|\bkontext\w*|\bcontexte|"
    r"\bконтекст\w*|컨텍스트"
)
_TOKENS = r"\btokens?\b|\btok\b|\bjetons?\b|\bтокен\w*|令牌|トークン|토큰|[0-9][km] context"
_EXTENT = (
    r"\b(?:length|size|long|window|limit|capacity|maximum|max|large|big|many)\b|\bдлин\w*|长度|过长|长さ|longitud|"
    r"länge|"
    r"longueur"
)
_OUTPUT = (
    r"\bmax_?(?:completion_|output_|new_|gen_)?(?:tokens|length|len)\b|\bmaxOutputTokens\b|\b(?:n|num)_predict\b|"
    r"\b(?:output|completion|generated|response) tokens?\b|\bmax(?:imum)? (?:output|completion|new) (?:tokens?|"
    r"length)|\b(?:completion|output) (?:length|limit|budget)\b"
)

# An excess. "Must be greater than" demands more, and is none.
_EXCESS = (
    r"\bexceed\w*|\boverflow\w*|\boverrun|\bsurpass\w*|\bover (?:the |its |your |by )|\bbeyond\b|\babove the\b|"
    r"\btoo (?:long|large|big|many)\b|(?<!be )\b(?:longer|larger|greater|bigger|more) than\b|"
    r"\bmore than\b.{0,30}\ballow|\b(?:does not|doesn't|do not|don't|cannot|can't|can not|won't|will not|"
    r"not) fit\b|\bexceso\b|\bexcede\w*|\bsupera\w*|\bdépass\w*|\büberschr\w*|\bran out of\b|\bno room\b|"
    r"\bnot enough (?:room|space)\b|\b(?:is|context|window|cache) full\b|\boutgrew|>=?|›|\bhas reached\b|\bhit the\b|"
    r"\bzu (?:lang|groß)|\btrop long|\bmuito long|\bдлинн\w*|\bпревыш\w*|초과|超[过過出限长長]|过长|過長|超えて|"
    r"長すぎ"
)
# Words before a limit. A larger size next to it is an excess too.
_LIMIT = (
    r"\bonly\b|\bat most\b|\bup to\b|\bno more than\b|\bmax(?:imum)?\b|\blimit\w*\b|\bcapped\b|\bsupports?\b|"
    r"\ballow\w*|\bmust be (?:<=?|less|at most|below|under|no more|shorter|smaller)|\bmust have less|"
    r"\bless than\b|\bbelow\b|\bunder\b|\bcapacity\b|\bavailable\b|\bconfigured\b|\bwindow\b|"
    r"\bcontext[ _](?:length|size)\b|\bn_ctx\b|\bnum_ctx\b|\bctx[ _-]size\b|\bmax_(?:model|seq|input|num|context|"
    r"prompt)_?\w{0,20}|\berlaubt|\bmaxim\w{1,4}\b|\bмаксим\w*|最大|上限|限制|不能|只|仅"
)

# Other things with limits: with one of them the sentence is not about the window.
_OTHER = (
    r"\b(?:requests?|calls?|messages?|queries|tokens?|images?|jobs?) (?:per|/|a|each) ?(?:min|sec|hour|day|week|"
    r"month)|\bper (?:minute|second|hour|day|week|month|user|key|organi[sz]ation)\b|\brate\b|\bquota\b|"
    r"\bcredits?\b|\bbalance\b|\bbilling\b|\bbudget_tokens\b|\bthinking\b|\breasoning\b|\busage limit|"
    r"\bsession limit|\bplan limit|\bspend|\ballowance\b|(?<!tokens )\bper request\b|\bbatch of\b|"
    r"\bvision\b|\bimages?\b|\bphotos?\b|\bpages?\b|\bpdf\b|"
    r"\bfiles?\b|\bfilename|\bupload\w*|\battachments?\b|\bvideos?\b|\baudio\b|\bur[li]s?\b|\bheaders?\b|"
    r"\bcookies?\b|\bquery string\b|\bdimensions?\b|\bpixels?\b|\bmegapixels?\b|\bnames?\b|\bdescriptions?\b|"
    r"\bidentifiers?\b|\b(?:call|tool|user|request|message)_?ids?\b|\bmetadata\b|\bstop sequences?\b|\bschemas?\b|"
    r"\benum\b|\bproperties\b|\bnest\w*|\bdepth\b|\bmarkers?\b|\bcache_control\b|\bcache key\b|\bdeadline\b|"
    r"\btime ?(?:out|d out)|\bseconds?\b|\bminutes?\b|\bconcurren\w*|\bconnections?\b|\bthreads?\b|\bworkers?\b|"
    r"\bqueue\b|\bretr(?:y|ies)\b|\battempts?\b|\biterations?\b|\bsteps?\b|\bturns?\b|\bchoices\b|\bcandidates\b|"
    r"\bn must\b|\btemperature\b|\btop_[pk]\b|\bpenalty\b|\blog_?probs\b|\bseed\b|\bdisk\b|\bstack\b|"
    r"\brecursion\b|\bgpu\b|\bmemory\b|\btoo many (?:requests|tools?|functions?|messages?|stop|arguments|"
    r"redirects|open|parts|items|documents|calls)|\bnumber of (?:requests|tools?|functions?|messages?|items|stop|"
    r"documents|calls|examples|choices)\b|\bminimum\b|\btoo (?:small|short|few|low)\b|"
    r"\bat least\b(?=.{0,20}\b(?:required|needed)\b)|\bpassword|\bsecrets?\b|\b(?:access|bearer|auth|refresh|"
    r"session|id) tokens?\b|\bapi[ _-]?keys?\b|\binvalid token\b|\btoken (?:has )?expired|\bembedding (?:size|"
    r"dim)|\bcolumns?\b|\brows?\b|\btools?\b(?=.{0,20}\b(?:maximum|at most|limit)\b)"
)


_REQUEST_ALONE = r"\b(?:tokens?|prompts?|input|inputs|conversation|history|sequence|text)\b"  # else bytes, perhaps
_ONLY = r"\bonly\b|\bup to\b|\bat most\b"
_SENTENCE_END = r"(?<=[.;!?])\s+|(?<=[。；！])|\n|…"
_DIGITS = (
    r"(?<![\w.,#/:›-])(?P<digits>\d{1,3}(?:[,._ '’\u00a0\u202f]\d{3}){1,3}(?!\d)|"
    r"\d{1,12}(?:\.\d{1,2})?)(?:\s?(?P<unit>[km]i?|万)(?![a-z0-9]))?(?![\w%]|-\d|\.\d)"
)
_MOST = (
    r"(?:less than or equal to|at most|<=|no more than|(?:cannot|must not|may not) (?:exceed|be more than)|maximum"
    r"(?: value)?(?: is| of|:)?|lower than or equal to)\W{0,3}(?P<most>\d{1,9})(?![\d.])"
)
_PASSED = r"exceed\w*|surpass\w*|überschr\w*|excede\w*|supera\w*|dépass\w*|than|over (?:the|its|your)|beyond|超[过過出]"
_STATED = rf"(?:{_LIMIT}|\b(?:{_PASSED})\b)[^.\d]{{0,44}}$|[>›]=?[^.\d]{{0,24}}$"  # before a number: it is the limit's
_STATED_AFTER = r"^[^.\d>()]{0,12}(?:\bmax(?:imum)?\b|\blimit\b|\ballowed\b|\bavailable\b|\bcontext\b)"


@dataclass(frozen=True, slots=True)
class Size:
    """The overflow in a text: its kind, and limit and size of the request in tokens."""

    kind: Literal["prompt_overflow", "output_overflow", "ambiguous"]
    limit: int | None = None
    requested: int | None = None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _has(pattern: str, text: str) -> bool:
    return _compiled(pattern).search(text) is not None


def overflow_in(text: str) -> Size | None:
    """The overflow in a text that no wording matches; None when it is not about the size of a request. O(size)."""
    sentences = [part for part in _compiled(_SENTENCE_END).split(text) if part.strip()][:_SENTENCES]
    found: Size | None = None
    for passage in _passages(sentences):
        size = _read(passage)
        if size is not None and (found is None or _is_more_specific(size, found)):
            found = size
    return found


def cap_in(text: str) -> Size | None:
    """The maximum of a parameter that the error names as the output cap; None without one. O(size)."""
    found = _compiled(_MOST).search(text)
    return Size("output_overflow", int(found["most"])) if found is not None else None


def _passages(sentences: list[str]) -> Iterator[str]:
    """Each sentence, then each two and three in a row, without sentences about other limits."""
    # One by one before together: a number of the next sentence must not join an excess that is complete without it.
    about = ["" if _has(_OTHER, sentence) else sentence for sentence in sentences]
    for count in range(1, _NEAR + 1):
        for at in range(len(about) - count + 1):
            if all(about[at : at + count]):
                yield " ".join(about[at : at + count])


def _is_more_specific(size: Size, than: Size) -> bool:
    if (than.kind == "ambiguous") != (size.kind == "ambiguous"):
        return than.kind == "ambiguous"
    return size.kind == than.kind and than.limit is None and size.limit is not None


def _read(passage: str) -> Size | None:
    excess, window, tokens = _has(_EXCESS, passage), _has(_WINDOW, passage), _has(_TOKENS, passage)
    # A sentence about the output comes first: it names tokens and a maximum too, and only the cap has to be lowered.
    prompt, output = _has(_INPUT, passage), _has(_OUTPUT, passage)
    limit, requested = _numbers(passage)
    above = limit is not None and requested is not None and requested > limit
    if output and not (prompt and (window or _has(_REQUEST_ALONE, passage))):
        if (excess or above) and (limit is not None or requested is not None):
            return Size("output_overflow", limit, requested)
        return None
    if not (window or tokens or (prompt and (above or _has(_EXTENT, passage)))):
        return None
    if excess and (window or prompt):
        sure = window or _has(_REQUEST_ALONE, passage)
        return Size("prompt_overflow" if sure else "ambiguous", limit, requested)
    if above and _has(_LIMIT, passage) and (tokens or window):
        return Size("prompt_overflow", limit, requested)
    if tokens and excess and limit is not None:
        return Size("ambiguous", limit)
    if window and limit is not None and _has(_ONLY, passage):
        return Size("ambiguous", limit)
    return None


def _numbers(passage: str) -> tuple[int | None, int | None]:
    """The limit and the size, if they can be distinguished by the words around them or as smaller and larger."""
    sizes: list[int] = []
    limits: list[int] = []
    for found in _compiled(_DIGITS).finditer(passage):
        value = number_of(found["digits"], found["unit"])
        before, after = passage[max(0, found.start() - 48) : found.start()], passage[found.end() : found.end() + 24]
        if not LEAST_TOKENS <= value < MOST_TOKENS or _is_status(value, before, after) or _has(r"\bby\s*$", before):
            continue
        of_limit = _has(_STATED, before) or _has(_STATED_AFTER, after)
        (limits if of_limit else sizes).append(value)
    # Of two numbers the smaller is the limit, whatever stands around them: nothing that exceeds is the smaller one.
    both = sorted({*limits, *sizes})
    if len(both) == 2:
        return both[0], both[1]
    limit = min(limits) if limits and (len(set(limits)) == 1 or not sizes) else None
    if limit is None:
        return None, (max(sizes) if sizes and len(both) == 1 else None)
    larger = [value for value in sizes if value > limit]
    return limit, (max(larger) if larger else None)


def _is_status(value: int, before: str, after: str) -> bool:
    return 400 <= value <= 599 and not _has(r"^\s*-?tokens?", after) and not _has(r"(?:of|is|:|\() ?$", before)
