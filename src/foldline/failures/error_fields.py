"""The subject of an error by its codes and the parameter that it names, which precede its text.

A refusal of `reasoning_effort` is no overflow, whatever its text quotes. Wordings of sizes apply only when no field of
the error names another subject.
"""

from __future__ import annotations

import re
from typing import Final

from foldline.failures.evidence import Evidence
from foldline.failures.wordings import Kind

__all__ = ["is_of_output", "kind_of_codes", "kinds_excluded"]

_SIZES: Final[frozenset[Kind]] = frozenset(("prompt_overflow", "output_overflow", "ambiguous"))
_ANY_SIZE: Final[frozenset[Kind]] = _SIZES | {"bytes_overflow"}

# OpenAI: error codes of the API reference; Anthropic: error types; pydantic 2: "Validation Errors" (what FastAPI and
# with it vLLM, SGLang and LiteLLM answer with). A length (`string_too_long`, `too_long`) may be the prompt's.
_OTHER_CODES: Final = (
    r"(?:invalid|unsupported|unknown|unrecogni[sz]ed|missing|duplicate|deprecated|disallowed)_(?:required_)?"
    r"(?:values?|types?|param|parameters?|enum(?:_value)?|fields?|model|json|base64(?:_\w{1,20})?|"
    r"function_parameters|tools?|tool_\w{1,20}|schema|response_format|url|encoding|mime_type|media_type|header|role)|"
    r"(?:decimal|integer|number|array|string)_(?:below|under)_min\w{0,20}|empty_\w{1,20}|invalid_prompt|"
    r"not_found(?:_error)?|model_not_found|(?:\w{1,30}_)?content_?(?:policy|filter)\w{0,20}|\w{0,20}moderation\w{0,20}|"
    r"(?:string|int|float|bool|boolean|number|bytes|list|tuple|set|dict|mapping|model|date|time|datetime|json|enum|url|"
    r"literal|decimal|dataclass|iterable|callable|none|is_instance|model_attributes|frozen_field|uuid|union_tag|"
    r"arguments?)_(?:type|parsing|error|invalid|of|from_float|sub_type|pattern_mismatch|required|unicode|not_found|"
    r"unexpected)|missing|extra_forbidden|enum|multiple_of|finite_number|greater_than(?:_equal)?|"
    r"(?:type|value)_error\.(?!any_str\.max_length|list\.max_items|number\.not_le)[\w.]{1,60}"
)
_OVERFLOW_CODES: Final = (
    r"(?:model_?)?context_?(?:length|window|size|limit)?_?(?:exceeded|overflow)\w{0,9}|exceed\w{0,2}_?context\w{0,20}|"
    r"prompt_too_long"
)
_MONEY: Final = r"\w{0,40}(?:quota|billing|credit|balance|payment)\w{0,40}"
_AUTH: Final = r"\w{0,40}(?:auth(?!or)|permission|forbidden|api_?key|access_?denied)\w{0,40}"

# Last steps of paths to a parameter: those of the output cap, and those of parts of a request that have a size.
_OUTPUT_PLACES: Final = frozenset(
    "max_tokens max_completion_tokens max_output_tokens max_new_tokens maxoutputtokens maxtokens maxtokenstosample "
    "max_tokens_to_sample n_predict num_predict max_gen_len max_length".split()
)
_SIZED_PLACES: Final = frozenset(
    "messages message input inputs input_text prompt prompts contents content text parts system instructions body "
    "conversation history chat_history context query documents request data num_ctx n_ctx max_input_tokens tools "
    "generate chatcompletionrequest inputtext input_tokens prompt_tokens".split()
)


def kinds_excluded(evidence: Evidence) -> frozenset[Kind]:
    """The kinds that the fields of an error rule out. O(codes and parameters)."""
    codes, places = evidence.codes, [_last(place) for place in evidence.places]
    if any(re.fullmatch(_OVERFLOW_CODES, code) for code in codes):
        return frozenset()
    of_output = any(place in _OUTPUT_PLACES for place in places)
    if places and not of_output and not any(place in _SIZED_PLACES for place in places):
        return _ANY_SIZE
    if any(re.fullmatch(_OTHER_CODES, code) for code in codes):
        return _SIZES - {"output_overflow"} if of_output or not places else _SIZES
    return frozenset()


def is_of_output(evidence: Evidence) -> bool:
    """Whether the refused parameter is the output cap."""
    return any(_last(place) in _OUTPUT_PLACES for place in evidence.places)


def kind_of_codes(evidence: Evidence) -> Kind | None:
    """The kind of a code that the table lacks, when its name speaks of money or of a key."""
    for code in evidence.codes:
        if re.fullmatch(_MONEY, code):
            return "quota"
        if re.fullmatch(_AUTH, code):
            return "auth"
    return None


def _last(place: str) -> str:
    """The last step of a path that is a name: "content" of "messages[3].content[0]"."""
    steps = [step for step in re.split(r"[.\[\]/]+", place) if step and not step.isdecimal()]
    return steps[-1] if steps else ""
