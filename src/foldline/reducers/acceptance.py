"""Accepts or rejects the reply of a summariser: a summary is words about what happened, and nothing else.

A model that reasons may be cut off while it thinks, one that works with tools may write a call, and servers put a
placeholder in an empty reply. None of these may replace hundreds of messages.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any, Final

from foldline.errors import SummaryError

__all__ = ["accepted", "refusal"]

_REFUSALS: Final = (
    "i'm sorry",
    "i am sorry",
    "i cannot",
    "i can't",
    "i can not",
    "as an ai",
    "sorry, ",
    "i'm unable",
    "i am unable",
)


def accepted(text: str) -> str:
    """The summary in a reply, without the thinking before it. Raises SummaryError if there is none. O(size)."""
    out = _without_thinking(text.strip())
    if not out:
        raise SummaryError("the summary is empty" if not text.strip() else "the reply is thinking, and no summary")
    if refusal(out):
        raise SummaryError("the model refused to summarise")
    out = _without_calls(out)
    if not _says_something(out):
        raise SummaryError("the reply says nothing in words")
    return out


def refusal(text: str) -> bool:
    """Whether a short answer is a refusal and not a summary."""
    return len(text) < 300 and text.strip().lower().replace("\u2019", "'").startswith(_REFUSALS)


# Patterns are strings here, which `re` compiles at their first use and caches: most sessions never ask for a summary,
# and to compile these took three of the milliseconds in which `Context` is imported.

# --- thinking ---------------------------------------------------------------------------------------------------------

# Thinking as text, where a server does not take it apart: DeepSeek and Qwen <think>, Mistral [THINK], Kimi ◁think▷,
# Cohere <|START_THINKING|>, Seed <seed:think>, OpenThinker <|begin_of_thought|>, Gemma <unused94>thought, others
# <thinking>, <reasoning>, <thought>, <reflection>, <scratchpad> (chat templates of these models).
_THOUGHT: Final = r"(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflection|scratchpad|inner_thoughts|analysis|cot)"
_OPENS: Final = (
    rf"(?i)\s*(?:[<\u25c1]\|?\s*(?:[a-z]{{1,20}}:)?(?:start_|begin_of_|begin_)?{_THOUGHT}"
    r"(?:\s[^<>\n]{0,200})?\|?[>\u25b7]"
    r"|\[THINK(?:ING)?\]|<unused94>(?:thought)?)"
)
_CLOSES: Final = (
    rf"(?i:[<\u25c1]\|?\s*(?:/\s*(?:[a-z]{{1,20}}:)?|end_of_|end_){_THOUGHT}\s*\|?[>\u25b7]"
    r"|\[/THINK(?:ING)?\]|<unused95>)"
)
# The end of thinking that the chat template had opened in the prompt (DeepSeek R1).
_BARE_CLOSE: Final = rf"(?<![`'\"\w])(?:{_CLOSES})[ \t]*(?:\n|\Z)"
# OpenAI, "harmony response format": thinking in the channel "analysis", the answer in "final"; without its special
# tokens the names run into the texts.
_HARMONY: Final = r"\s*(?:<\|start\|>\s*assistant\s*)?<\|channel\|>\s*(?:analysis|commentary)\b"
_HARMONY_FINAL: Final = r"<\|channel\|>\s*final\s*(?:<\|constrain\|>\w+\s*)?<\|message\|>"
_HARMONY_END: Final = r"(?:<\|(?:return|end)\|>\s*)+\Z"
_HARMONY_BARE: Final = r"\s*analysis(?=[A-Z\u201c\"])"
_HARMONY_BARE_FINAL: Final = "assistantfinal"


def _without_thinking(text: str) -> str:
    """A text without its leading thinking; "" when it is nothing else."""
    if re.match(_HARMONY, text) or re.match(_HARMONY_FINAL, text):
        *_, rest = re.split(_HARMONY_FINAL, text)
        text = re.sub(_HARMONY_END, "", rest) if re.search(_HARMONY_FINAL, text) else ""
    elif re.match(_HARMONY_BARE, text) and _HARMONY_BARE_FINAL in text:
        text = text.rpartition(_HARMONY_BARE_FINAL)[2]
    while opened := re.match(_OPENS, text):
        rest = text[opened.end() :]
        closed = re.search(_CLOSES, rest)
        text = "" if closed is None else rest[closed.end() :]
    # Not inside a code block: a summary of work on chat templates may quote such a tag.
    bare = re.search(_BARE_CLOSE, text)
    if bare is not None and text[: bare.start()].count("```") % 2 == 0:
        text = text[bare.end() :]
    return text.strip()


# --- calls as text ----------------------------------------------------------------------------------------------------

# Calls as models write them: Hermes and Qwen <tool_call>, Llama <function=…> and <|python_tag|>, Anthropic's
# <function_calls>, Mistral [TOOL_CALLS], DeepSeek <｜tool▁calls▁begin｜>, LM Studio [TOOL_REQUEST], Gemini's fence
# with tool_code.
_CALL: Final = (
    r"(?mi)^[ \t]*(?:<\s*/?\s*(?:[a-z]{1,20}:)?(?:tool_?calls?|function_?calls?|tool_use|invoke|minimax:tool_call)\b"
    r"|<function\s*=|<\|(?:tool|python_tag|function|channel\|>\s*commentary)|<\uff5ctool|\[TOOL_(?:CALLS?|REQUEST)\]"
    r"|```(?:tool_code|tool_call)\b|functions\.\w+:\d+)"
)
_BARE_CALL: Final = r"[A-Za-z_][\w.]{0,80}\((?:|[^\n]*[\"'={][^\n]*)\)"
_CALL_JSON: Final = (
    r"(?s)[\[{\s]*\"(?:type|name|tool|tool_name|function|tool_calls?|function_call|action|id)\"\s*:.*"
    r"\"(?:arguments|parameters|params|input|args|action_input|function|tool_input)\"\s*:"
)
_CALL_KEYS: Final = ("tool_calls", "tool_call", "function_call")
_NAME_KEYS: Final = ("name", "tool", "tool_name", "function", "action")
_ARGUMENT_KEYS: Final = ("arguments", "parameters", "params", "input", "args", "action_input", "tool_input")
_FENCE: Final = r"(?s)```[\w-]*[ \t]*\n?(.*?)\n?```"
# Text before a call is a summary if it has this many letters, about 35 words.
ENOUGH_LETTERS: Final = 200


def _without_calls(text: str) -> str:
    """The text before a call written as text. Raises SummaryError if little stands before the call."""
    fenced = re.fullmatch(_FENCE, text)
    inner = (fenced[1] if fenced else text).strip()
    if _is_call(inner):
        raise SummaryError("the reply is a call written as text, and no summary")
    found = next((call for call in re.finditer(_CALL, text) if text[: call.start()].count("```") % 2 == 0), None)
    if found is None:
        return text
    before = text[: found.start()].strip()
    if _letters(before) < ENOUGH_LETTERS:
        raise SummaryError("the reply is a call written as text, and no summary")
    return before


def _is_call(text: str) -> bool:
    if text.endswith(")") and "\n" not in text and re.fullmatch(_BARE_CALL, text):
        return True
    if not text.startswith(("{", "[")):
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return re.match(_CALL_JSON, text) is not None
    return _call_in(value[0] if isinstance(value, list) and value else value)


def _call_in(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return any(key in value for key in _CALL_KEYS) or (
        any(key in value for key in _NAME_KEYS) and any(key in value for key in _ARGUMENT_KEYS)
    )


# --- words ------------------------------------------------------------------------------------------------------------

_MARKUP: Final = r"```[\w-]*|<[^<>\n]{0,80}>|\[/?[A-Z_]{2,20}\]"
# Words that are no summary of anything when they stand alone.
_PLACEHOLDERS: Final = frozenset(
    "null none nil na n/a nan undefined empty void blank nothing ok okay done sure yes no true false todo tbd "
    "assistant continue understood acknowledged vide leer vacío пусто нет".split()
)
_PLACEHOLDER: Final = (
    r"(?:no|an?|the|empty|missing|without)(?: [a-z]+)? (?:contents?|text|response|reply|answer|summary|output|message|"
    r"string|checkpoint|data|result)(?: (?:provided|available|generated|returned|found|given|here))?"
)
# The announcement of a summary, without the summary.
_PROMISE: Final = (
    r"(?i)(?:(?:got it|sure|okay|ok|certainly|of course|understood|alright|absolutely)\W{1,3})?"
    r"(?:i(?:'ll| will|'m going to| am going to| can)|let me) (?:\w{1,12} )?"
    r"(?:summari[sz]e|compact|condense|write|create|provide|prepare)\b[^.:\n]{0,120}[.:]?"
)
_HEADING_WORDS: Final = 4
_PLACEHOLDERS_TOGETHER: Final = frozenset(("无", "空", "无内容", "没有内容", "無", "空白", "なし", "内容なし", "없음"))


def _says_something(text: str) -> bool:
    bare = re.sub(_MARKUP, " ", text)
    if _letters(bare) < 2:
        return False
    words = " ".join("".join(sign if _is_word(sign) or sign == "/" else " " for sign in bare).split()).lower()
    if words in _PLACEHOLDERS or words in _PLACEHOLDERS_TOGETHER or re.fullmatch(_PLACEHOLDER, words):
        return False
    if re.fullmatch(_PROMISE, bare.strip()):
        return False
    return any(_is_content(line) for line in bare.split("\n"))


def _is_content(line: str) -> bool:
    """Whether a line is more than a heading or a placeholder under one."""
    words = line.strip(" \t*#-_>\u2022[]().")
    heading = line.lstrip().startswith("#") and len(words.split()) <= _HEADING_WORDS
    return bool(words) and not (heading or words.endswith((":", "\uff1a")) or words.lower() in _PLACEHOLDERS)


def _is_word(sign: str) -> bool:
    return unicodedata.category(sign)[0] in "LNM"


def _letters(text: str) -> int:
    return sum(map(str.isalpha, text))
