"""A summariser from any provider, for `Context.prepare_async` and `compact_async`, and the fields it may send.

Nobody reads the answer to a summary question before it is used, and its prompt is full of text from tools and web
pages. So nothing may act on it: no search by the provider, no server that it calls. Nor may the answer have a format,
because a formatted answer would be taken for a summary. Every version of an API brings new fields, so harmless ones are
listed, and all others are left out.

Sources of the list: API references of OpenAI (Chat, Responses), Anthropic (Messages), OpenRouter, Mistral, DeepSeek,
Qwen, Z.ai, vLLM, llama.cpp (server) and Ollama; the clients of docs/clients.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from foldline.codecs import codec
from foldline.engine.context import Completion, Request
from foldline.errors import InvalidInput
from foldline.messages import Json, Wire
from foldline.providers.base import Provider, Reply
from foldline.text.redaction import redact
from foldline.tokens import ESTIMATE, Counter, message_tokens, system_tokens
from foldline.view.system_and_tools import System
from foldline.view.transcript import Usage
from foldline.view.usage import usage_of

__all__ = ["ProviderSummariser", "is_text_only", "summariser", "text_only"]

_BETWEEN: Final = "\n\n"

OnReply: TypeAlias = Callable[[Reply], Awaitable[None] | None]


def summariser(
    provider: Provider, *, on_reply: OnReply | None = None, counter: Counter = ESTIMATE
) -> ProviderSummariser:
    """Return a summariser that asks the provider. `on_reply` receives each reply, for its usage, and may be async."""
    return ProviderSummariser(provider, on_reply, counter)


class ProviderSummariser:
    """Asks a provider for summaries, in a prompt of their own or as a continuation of a request.

    Secrets of known shapes are removed from summaries. The context treats a ProviderError as a failed summary, and
    rejects a reply that was cut off, refused, or calls a tool.
    """

    def __init__(self, provider: Provider, on_reply: OnReply | None, counter: Counter) -> None:
        self._provider, self._on_reply, self._counter = provider, on_reply, counter

    @property
    def model(self) -> str:
        """The name of the model that writes."""
        return self._provider.model

    @property
    def dialect(self) -> str:
        """The dialect of the provider."""
        return self._provider.dialect

    async def __call__(self, messages: list[dict[str, str]], max_output_tokens: int) -> Completion:
        """Summarise plain texts."""
        return await self._complete(_request(self.dialect, messages, max_output_tokens, self._counter))

    async def continued(self, request: Request) -> Completion:
        """Summarise by a request of the session that ends with the question."""
        return await self._complete(request)

    async def _complete(self, request: Request) -> Completion:
        reply: Reply | None = None
        async for piece in self._provider.stream(request):
            if isinstance(piece, Reply):
                reply = piece
        if reply is None:
            return Completion("", "length")
        if self._on_reply is not None:
            pending = self._on_reply(reply)
            if pending is not None:
                await pending
        reason = "tool_calls" if reply.calls else reply.finish_reason
        return Completion(redact(reply.text), reason, _usage(reply))


def _usage(reply: Reply) -> Usage | None:
    """Return the usage report, or None if there is none or it cannot be parsed."""
    try:
        return None if reply.usage is None else usage_of(reply.usage)
    except InvalidInput:
        return None


def _request(dialect: str, messages: list[dict[str, str]], max_output_tokens: int, counter: Counter) -> Request:
    """Return plain texts as a request. System text is outside the messages, from where each dialect places it."""
    reader = codec(dialect)
    texts = [message["content"] for message in messages if message["role"] == "system"]
    system: System = _BETWEEN.join(texts) if texts else None
    others = (message for message in messages if message["role"] != "system")
    # Written by the codec: Gemini refuses a message whose text is not in parts.
    notes = [reader.note(message["content"], role=message["role"]) for message in others]
    wires: list[Wire] = [reader.write(note) for note in notes]
    tokens = system_tokens(system, counter) + sum(message_tokens(note, counter) for note in notes)
    return Request(
        messages=wires,
        system=system,
        tools=None,
        tokens=tokens,
        max_output_tokens=max_output_tokens,
        stable_until=0,
        folds=(),
        repairs=(),
        once=len(wires),
    )


_KNOWN: Final = frozenset(
    # Length, sampling and end of the reply.
    "max_tokens max_completion_tokens max_output_tokens n seed random_seed stop stop_sequences temperature top_p top_k "
    "min_p top_a typical_p presence_penalty frequency_penalty repetition_penalty repeat_penalty logit_bias logprobs "
    "top_logprobs prediction verbosity "
    # Amount of thinking.
    "thinking reasoning reasoning_effort reasoning_format reasoning_split include_reasoning enable_thinking "
    "thinking_budget preserve_thinking chat_template_kwargs chat_template_args prompt_mode "
    # Form of tool calls. The tools themselves are checked elsewhere.
    "parallel_tool_calls max_tool_calls tool_stream "
    # Additional output, and its form.
    "include stream_options usage timings_per_token return_progress "
    # Place, speed and owner of the computation.
    "service_tier speed inference_geo provider user user_id safety_identifier metadata client_metadata store "
    "session_id user_profile_id anthropic_version anthropic_beta safe_prompt moderation diagnostics "
    # Caching and truncation of the prompt.
    "cache_control prompt_cache_key prompt_cache_retention prompt_cache_options cache_prompt id_slot truncation "
    "transforms context_management keep_alive options num_ctx "
    # Gemini.
    "safetySettings labels".split()
)

_CHOICES: Final = (None, "auto", "none")


def text_only(fields: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields that are known to be harmless."""
    return {name: value for name, value in fields.items() if _is_harmless(name, value)}


def is_text_only(fields: Mapping[str, Json]) -> bool:
    """Whether all fields are harmless. Pass none of the conversation itself (model, messages, tools)."""
    return all(_is_harmless(name, value) for name, value in fields.items())


def _is_harmless(name: str, value: Json) -> bool:
    if value is None or value is False or value == []:  # switched off, so harmless even if unknown
        return True
    check = _CHECKED.get(name)
    return name in _KNOWN if check is None else check(value)


def _is_free(choice: Json) -> bool:
    named = choice.get("type") if isinstance(choice, Mapping) else choice
    return named in _CHOICES


def _is_plain(form: Json) -> bool:
    """Whether an output format is plain text."""
    return not form or (isinstance(form, Mapping) and form.get("type") == "text")


def _holds(*names: str) -> Callable[[Json], bool]:
    """Return a check for an object with only these fields and a plain `format`."""

    def check(value: Json) -> bool:
        return isinstance(value, Mapping) and value.keys() <= {"format", *names} and _is_plain(value.get("format"))

    return check


_CHECKED: Final[Mapping[str, Callable[[Json], bool]]] = {
    "tool_choice": _is_free,
    "response_format": _is_plain,
    "text": _holds("verbosity"),
    "output_config": _holds("effort", "task_budget"),
    "modalities": lambda value: value == ["text"],
    "generationConfig": _holds(
        *("maxOutputTokens", "temperature", "topP", "topK", "seed", "stopSequences", "candidateCount"),
        *("thinkingConfig", "presencePenalty", "frequencyPenalty", "mediaResolution"),
    ),
}
