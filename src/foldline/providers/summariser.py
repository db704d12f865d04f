"""A summariser out of any provider: what `Context.prepare_async` and `compact_async` ask for a summary."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from foldline.codecs import codec
from foldline.engine.context import Completion, Request
from foldline.errors import InvalidInput
from foldline.failures import redact
from foldline.messages import Json, Wire
from foldline.providers.base import Provider, Reply
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
    """What asks the provider for a summary; `on_reply` gets each reply, for its usage, and may be awaitable."""
    return ProviderSummariser(provider, on_reply, counter)


class ProviderSummariser:
    """Asks a provider for summaries, by a prompt of their own or by going on from a request of the session.

    Keys and tokens in known shapes are taken out of a summary. ProviderError is raised, which the context takes for a
    failed summary. A text that was cut off or refused is said to be so, and rejected there, as is a call of a tool.
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
        """A summary for plain texts."""
        return await self._asked(_request(self.dialect, messages, max_output_tokens, self._counter))

    async def continued(self, request: Request) -> Completion:
        """A summary for a request of the session with the question at its end."""
        return await self._asked(request)

    async def _asked(self, request: Request) -> Completion:
        reply: Reply | None = None
        async for piece in self._provider.stream(request):
            if isinstance(piece, Reply):
                reply = piece
        if reply is None:
            return Completion("", "length")
        if self._on_reply is not None:
            heard = self._on_reply(reply)
            if heard is not None:
                await heard
        reason = "tool_calls" if reply.calls else reply.finish_reason
        return Completion(redact(reply.text), reason, _usage(reply))


def _usage(reply: Reply) -> Usage | None:
    """What was reported, if anything was that can be read."""
    try:
        return None if reply.usage is None else usage_of(reply.usage)
    except InvalidInput:
        return None


def _request(dialect: str, messages: list[dict[str, str]], max_output_tokens: int, counter: Counter) -> Request:
    """Plain texts as a request of the dialect: system text beside the messages, which is right in all three."""
    reader = codec(dialect)
    texts = [message["content"] for message in messages if message["role"] == "system"]
    system: System = _BETWEEN.join(texts) if texts else None
    wires: list[Wire] = [dict(message) for message in messages if message["role"] != "system"]
    tokens = system_tokens(system, counter) + sum(message_tokens(reader.read(wire), counter) for wire in wires)
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
