"""Which fields of a request leave its answer a text that the model writes by itself.

A question that nobody sees, as one for a summary, is full of what tools and pages said. So nothing may act on it: no
search that a provider runs, no server that it calls. Nor may the answer be held to a form, for that would be taken for
a summary. New fields come with every version of an API, so those that do no harm are listed, and no other is trusted.

Sources: API references of OpenAI (Chat, Responses), Anthropic (Messages), OpenRouter, Mistral, DeepSeek, Qwen, Z.ai,
vLLM, llama.cpp (server) and Ollama; the clients of docs/clients.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from foldline.messages import Json

__all__ = ["is_text_only", "text_only"]

_KNOWN: Final = frozenset(
    # How much is written, how it is sampled, and where it ends.
    "max_tokens max_completion_tokens max_output_tokens n seed random_seed stop stop_sequences temperature top_p top_k "
    "min_p top_a typical_p presence_penalty frequency_penalty repetition_penalty repeat_penalty logit_bias logprobs "
    "top_logprobs prediction verbosity "
    # How much is thought before.
    "thinking reasoning reasoning_effort reasoning_format reasoning_split include_reasoning enable_thinking "
    "thinking_budget preserve_thinking chat_template_kwargs chat_template_args prompt_mode "
    # How calls of tools are written: which tools there are is looked at elsewhere.
    "parallel_tool_calls max_tool_calls tool_stream "
    # What comes back beside the text, and how.
    "include stream_options usage timings_per_token return_progress "
    # Where, how fast and for whom it is computed.
    "service_tier speed inference_geo provider user user_id safety_identifier metadata client_metadata store "
    "session_id user_profile_id anthropic_version anthropic_beta safe_prompt moderation diagnostics "
    # What is kept or left out of the prompt.
    "cache_control prompt_cache_key prompt_cache_retention prompt_cache_options cache_prompt id_slot truncation "
    "transforms context_management keep_alive options num_ctx".split()
)

_CHOICES: Final = (None, "auto", "none")


def text_only(fields: Mapping[str, Json]) -> dict[str, Json]:
    """Those of some fields that are known to do no harm."""
    return {name: value for name, value in fields.items() if _is_harmless(name, value)}


def is_text_only(fields: Mapping[str, Json]) -> bool:
    """Whether all of some fields are. Those of the conversation itself (model, messages, tools) are not for here."""
    return all(_is_harmless(name, value) for name, value in fields.items())


def _is_harmless(name: str, value: Json) -> bool:
    if value is None or value is False or value == []:  # switched off, whatever it is
        return True
    check = _CHECKED.get(name)
    return name in _KNOWN if check is None else check(value)


def _is_free(choice: Json) -> bool:
    named = choice.get("type") if isinstance(choice, Mapping) else choice
    return named in _CHOICES


def _is_plain(form: Json) -> bool:
    """Whether a form of the answer is none."""
    return not form or (isinstance(form, Mapping) and form.get("type") == "text")


def _holds(*names: str) -> Callable[[Json], bool]:
    """A check for an object with no other fields than `format`, which is none, and these."""

    def check(value: Json) -> bool:
        return isinstance(value, Mapping) and value.keys() <= {"format", *names} and _is_plain(value.get("format"))

    return check


_CHECKED: Final[Mapping[str, Callable[[Json], bool]]] = {
    "tool_choice": _is_free,
    "response_format": _is_plain,
    "text": _holds("verbosity"),
    "output_config": _holds("effort", "task_budget"),
    "modalities": lambda value: value == ["text"],
}
