"""smolagents: a model that wraps another. Extra: `smolagents`.

Attached at `Model.generate` and `generate_stream` (smolagents 1.20 and later; tests run 1.26.0), where the view, the
usage and the errors of a call meet; step callbacks see no error. The steps in the memory of an agent stay whole.

smolagents writes calls and observations as text ("Calling tools:", "Observation:"; `ActionStep.to_messages`). They are
read as what they are, calls and results, so that a policy treats them as such, and are written as that text again.
"""

from __future__ import annotations

import ast
import copy
import json
from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Unpack

from foldline.adapters.adapter import Adapter
from foldline.adapters.content_blocks import restored_blocks
from foldline.adapters.model_call import AdapterSettings, ModelCall, ShownCall
from foldline.adapters.streams import StreamEvents
from foldline.engine.context import Context
from foldline.errors import MissingExtra
from foldline.messages import Json, Wire
from foldline.view.transcript import Usage

try:
    from smolagents.models import ChatMessage, MessageRole, Model, get_tool_json_schema
    from smolagents.utils import encode_image_base64, make_image_url
except ImportError as error:
    raise MissingExtra("smolagents", "the adapter for smolagents") from error

__all__ = ["FoldlineAgentModel", "StepMessage", "StepMessages", "step_messages"]

_CALLING: Final = "Calling tools:\n"
_OBSERVED: Final = "Observation:\n"
_SEVERAL: Final = "several_tools"
_MOST_URLS: Final = 64
_CAPS: Final = ("max_completion_tokens", "max_tokens", "max_new_tokens")
_ROLES: Final[Mapping[str, str]] = {"tool-call": "assistant", "tool-response": "user"}


@dataclass(frozen=True, slots=True)
class StepMessage:
    """A message, and for a call or its observation the id that they share. smolagents writes it into neither."""

    message: ChatMessage
    call_id: str | None = None


def step_messages(messages: Sequence[ChatMessage | dict[str, Any]]) -> list[StepMessage]:
    """The messages with the ids of calls and observations; an observation stands before the images of its step."""
    given = [one if isinstance(one, ChatMessage) else ChatMessage.from_dict(dict(one)) for one in messages]
    out: list[StepMessage] = []
    at = 0
    while at < len(given):
        if given[at].role != MessageRole.TOOL_CALL:
            out.append(StepMessage(given[at]))
            at += 1
            continue
        images = given[at + 1 : at + 2] if _shows_images(given[at + 1 : at + 2]) else []
        answer = given[at + 1 + len(images) : at + 2 + len(images)]
        if answer and answer[0].role == MessageRole.TOOL_RESPONSE:
            call_id = f"step_{len(out)}"
            out += [StepMessage(given[at], call_id), StepMessage(answer[0], call_id), *map(StepMessage, images)]
        else:
            out += map(StepMessage, [given[at], *images])
        at += 1 + len(images) + (1 if out[-1 - len(images)].call_id else 0)
    return out


def _shows_images(messages: Sequence[ChatMessage]) -> bool:
    return bool(messages) and messages[0].role == MessageRole.USER and _only(messages[0].content, "image")


def _only(content: Any, kind: str) -> bool:
    return isinstance(content, list) and bool(content) and all(block.get("type") == kind for block in content)


class StepMessages:
    """Messages of smolagents as those of Chat Completions, with calls and results in the place of their texts."""

    dialect: Final = "openai-chat"

    def __init__(self) -> None:
        self._urls: dict[int, tuple[object, str]] = {}

    def read(self, message: StepMessage, /) -> Sequence[Wire]:
        """One object for each message. What a model answered with (`raw`, usage) is left out, as smolagents does."""
        role, content = _role(message.message), message.message.content
        text = _text(content)
        if message.call_id is not None and text is not None:
            if role == "tool-call":
                call = {"id": message.call_id, "type": "function", "function": _function(text)}
                return ({"role": "assistant", "content": None, "tool_calls": [call]},)
            return ({"role": "tool", "tool_call_id": message.call_id, "content": text.removeprefix(_OBSERVED)},)
        if text is None:
            content = [self._block(block) for block in content]
        return ({"role": _ROLES.get(role, role), "content": content if text is None else text},)

    def write(self, wires: Sequence[Wire], original: StepMessage | None, /) -> Sequence[StepMessage]:
        """Copies of the original with other text, or new messages."""
        return [self._written(wire, original) for wire in wires]

    def _written(self, wire: Wire, original: StepMessage | None) -> StepMessage:
        (before,) = ({},) if original is None else self.read(original)
        if original is None or wire["role"] != before["role"]:
            role = MessageRole.ASSISTANT if wire["role"] == "assistant" else MessageRole.USER
            return StepMessage(ChatMessage(role=role, content=_blocks(wire.get("content"))))
        if all(wire.get(field) == before.get(field) for field in ("content", "tool_calls")):
            return original
        given = original.message.content
        content: Any
        if original.call_id is None and isinstance(given, list):
            content = [block for sent in restored_blocks(_listed(wire), _listed(before), given) for block in sent]
        elif wire["role"] == "assistant" and wire.get("tool_calls"):
            content = _blocks(_called(wire["tool_calls"][0]["function"], _text(given) or ""))
        else:
            opening = _OBSERVED if original.call_id and (_text(given) or "").startswith(_OBSERVED) else ""
            content = _blocks(opening + _joined(wire.get("content")))
        return replace(original, message=replace(original.message, content=content))

    def _block(self, block: Mapping[str, Any]) -> Json:
        """A block as it is counted: an image by the URL that smolagents would send."""
        if (image := block.get("image")) is None:
            return block
        if isinstance(image, str):
            return {"type": "image_url", "image_url": {"url": image}}
        # An image is encoded once: that takes milliseconds, and an agent sends it with every step.
        held, url = self._urls.get(id(image), (None, ""))
        if held is not image:
            url = make_image_url(encode_image_base64(image))
            if len(self._urls) >= _MOST_URLS:
                self._urls = {}
            self._urls[id(image)] = (image, url)
        return {"type": "image_url", "image_url": {"url": url}}


def _role(message: ChatMessage) -> str:
    return str(getattr(message.role, "value", message.role))


def _text(content: Any) -> str | None:
    """The text of a message that has nothing else; None for one with images, or of several blocks."""
    if content is None or isinstance(content, str):
        return content or ""
    return content[0]["text"] if len(content) == 1 and isinstance(content[0].get("text"), str) else None


def _blocks(content: Any) -> list[Any]:
    # A list always: smolagents appends the blocks of one message to those of a neighbour of the same role.
    return [{"type": "text", "text": content or ""}] if content is None or isinstance(content, str) else list(content)


def _joined(content: Any) -> str:
    return "\n".join(block["text"] for block in _blocks(content) if isinstance(block.get("text"), str))


def _listed(wire: Mapping[str, Any]) -> Wire:
    return {**wire, "content": _blocks(wire.get("content"))}


def _calls_in(text: str) -> list[Any]:
    """The calls that smolagents has written as the repr of a list; none where somebody else wrote the text."""
    try:
        found = ast.literal_eval(text.removeprefix(_CALLING))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    calls = found if isinstance(found, list) else []
    return calls if all(isinstance(call, dict) and isinstance(call.get("function"), dict) for call in calls) else []


def _function(text: str) -> Json:
    functions = [call["function"] for call in _calls_in(text)]
    names = {str(function.get("name")) for function in functions}
    name = names.pop() if len(names) == 1 else _SEVERAL
    if len(functions) == 1:
        given = functions[0].get("arguments")
        return {"name": name, "arguments": _json(given if isinstance(given, dict) else {"input": given})}
    return {"name": name, "arguments": _json({"calls": [one.get("arguments") for one in functions] or text})}


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _called(function: Json, given: str) -> str:
    """The text for a call whose arguments were shortened."""
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        arguments = {"input": function["arguments"]}
    calls = _calls_in(given) or [{"id": "call", "type": "function", "function": {}}]
    several = arguments.get("calls") if isinstance(arguments, dict) else None
    if len(calls) > 1 and isinstance(several, list) and len(several) == len(calls):
        functions = [{**call["function"], "arguments": one} for call, one in zip(calls, several, strict=True)]
    else:
        functions = [{"name": function["name"], "arguments": arguments}]
    return _CALLING + str([{**call, "function": one} for call, one in zip(calls, functions, strict=False)])


class FoldlineAgentModel(Model):
    """A model that sends what fits to the model that it wraps, and retries an overflow inside the call.

    The settings are those of `AdapterSettings`. `conversation` names the conversation of the agent that has this model;
    without it one is found by its messages, and an edit of them begins another.
    """

    def __init__(
        self, model: Model, *, conversation: Hashable | None = None, **settings: Unpack[AdapterSettings]
    ) -> None:
        self._model = model
        self._conversation = conversation
        self._adapter: Adapter[StepMessage] = Adapter(StepMessages(), settings)
        self._tools: dict[int, tuple[object, Json]] = {}

    def context(self) -> Context | None:
        """The context of the conversation that was asked last, to look into between calls; None while there is none."""
        return self._adapter.context(self._conversation)

    def __getattr__(self, name: str) -> Any:
        # `generate_stream` too: agents ask whether a model has it.
        found = getattr(self.__dict__["_model"], name)
        return self._generate_stream if name == "generate_stream" else found

    def parse_tool_calls(self, message: ChatMessage) -> ChatMessage:
        """The calls in an answer, as the model that is wrapped reads them."""
        return self._model.parse_tool_calls(message)

    def generate(self, messages: list[Any], *given: Any, **named: Any) -> ChatMessage:
        """The answer to what fits of the messages."""
        return self._adapter.call(
            self._call(messages, given, named),
            lambda shown: _capped(self._model, shown).generate(_sent(shown), *given, **named),
            _usage,
        )

    def _generate_stream(self, messages: list[Any], *given: Any, **named: Any) -> Iterator[Any]:
        """The same as a stream."""

        def send(shown: ShownCall[StepMessage]) -> Generator[Any, None, None]:
            yield from _capped(self._model, shown).generate_stream(_sent(shown), *given, **named)

        return self._adapter.stream(self._call(messages, given, named), send, _EVENTS)

    def _call(self, messages: Sequence[Any], given: Sequence[Any], named: Mapping[str, Any]) -> ModelCall[StepMessage]:
        # After the messages: stop sequences, format of the response, tools.
        tools = given[2] if len(given) > 2 else named.get("tools_to_call_from")
        told = {**named, **(getattr(self._model, "kwargs", None) or {})}
        cap = next((told[name] for name in _CAPS if isinstance(told.get(name), int)), None)
        client = getattr(self._model, "client", None)
        endpoint = getattr(self._model, "api_base", None) or getattr(client, "base_url", None)
        return ModelCall(
            messages=step_messages(messages),
            key=self._conversation,
            model=self._model.model_id,
            tools=self._definitions(tools or ()),
            max_output_tokens=cap,
            endpoint=str(endpoint or ""),
        )

    def _definitions(self, tools: Sequence[Any]) -> list[Json]:
        made = {id(tool): self._tools.get(id(tool)) or (tool, get_tool_json_schema(tool)) for tool in tools}
        self._tools = made
        return [made[id(tool)][1] for tool in tools]


def _sent(shown: ShownCall[StepMessage]) -> list[ChatMessage]:
    """The messages in the order of smolagents, which has the images of a step before its observation."""
    out: list[ChatMessage] = []
    for message in shown.messages:
        after_images = len(out) > 1 and out[-2].role == MessageRole.TOOL_CALL
        swapped = after_images and out[-1].role == MessageRole.TOOL_RESPONSE and _shows_images([message.message])
        out.insert(len(out) - 1 if swapped else len(out), message.message)
    return out


def _capped(model: Model, shown: ShownCall[StepMessage]) -> Any:
    """The model, or a copy with a lower cap of the output: what a model was made with stands above what a call says."""
    if shown.max_output_tokens is None:
        return model
    capped = copy.copy(model)
    name = next((name for name in _CAPS if name in model.kwargs), "max_tokens")
    capped.kwargs = {**model.kwargs, name: shown.max_output_tokens}
    return capped


def _usage(answer: Any) -> Usage | None:
    found = answer.token_usage
    if found is None or not found.input_tokens:  # zeros stand for no report
        return None
    return Usage(input_tokens=found.input_tokens, output_tokens=found.output_tokens or 0)


_EVENTS: Final[StreamEvents[Any]] = StreamEvents(
    begins=lambda delta: bool(delta.content or delta.tool_calls), usage_of=_usage
)
