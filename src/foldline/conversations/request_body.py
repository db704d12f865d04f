"""The body of a client's request: its JSON as it came, with the place of every message in it.

What is not changed is sent as the very bytes that came, so the text is kept and cut, never written anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

from foldline.errors import InvalidInput
from foldline.messages import Json, Wire
from foldline.view.system_and_tools import System, Tools

__all__ = ["FORMS", "Form", "RequestBody", "lowered_cap", "read_body", "written"]

_SPACE: Final = re.compile(r"[ \t\n\r]*")

_REFERENCE: Final = "item_reference"
_SAID: Final = ("role", "content")
"""What an item without a type has that says something."""

_MOST_LEVELS: Final = 100
"""Deeper JSON cannot be read by all that look at it later, and no client means it."""


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODE: Final = json.JSONDecoder(parse_constant=_no_constant).raw_decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What the fields of a dialect's request are called. Sources: the API references of Chat, Responses, Messages.

    `caps` are the names of the output cap, the one that counts first. `elsewhere` are fields that say that the
    server holds a part of the conversation: what it was sent cannot be known here. `references` says that items may
    stand for what it holds.
    """

    dialect: str
    messages: str
    system: str | None
    caps: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()
    references: bool = False


FORMS: Final[Mapping[str, Form]] = {
    "openai-chat": Form(
        dialect="openai-chat", messages="messages", system=None, caps=("max_completion_tokens", "max_tokens")
    ),
    "openai-responses": Form(
        dialect="openai-responses",
        messages="input",
        system="instructions",
        caps=("max_output_tokens",),
        elsewhere=("previous_response_id", "conversation"),
        references=True,
    ),
    "anthropic": Form(dialect="anthropic", messages="messages", system="system", caps=("max_tokens",)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBody:
    """A request as it came. `spans` are the places of the fields' values in `text`, `item_spans` those of messages."""

    form: Form
    text: str
    fields: Mapping[str, Json]
    spans: Mapping[str, tuple[int, int]]
    messages: Sequence[Wire]
    item_spans: Sequence[tuple[int, int]]
    end: int
    """The place of the closing brace."""
    raw: bytes = field(repr=False)
    addressed: str = ""
    """The model that the path of the request names."""

    @property
    def dialect(self) -> str:
        """The dialect that it is in."""
        return self.form.dialect

    @property
    def model(self) -> str:
        """The model that is asked; "" where neither the body nor the path names one."""
        named = self.fields.get("model")
        return named if isinstance(named, str) and named else self.addressed

    @property
    def elsewhere(self) -> str:
        """What says that the server holds a part of the conversation, so that it cannot be known here; "" for nothing.

        An item with an id and nothing else is a reference (OpenAI, "Create a model response": Item reference), whether
        it names its type or not.
        """
        named = next((name for name in self.form.elsewhere if self.fields.get(name) is not None), "")
        return named or (_REFERENCE if self.form.references and any(map(_is_reference, self.messages)) else "")

    @property
    def streamed(self) -> bool:
        """Whether the reply is to come piece by piece."""
        return self.fields.get("stream") is True

    @property
    def system(self) -> System:
        """The system text beside the messages. Raises InvalidInput for what is none."""
        given = self.fields.get(self.form.system) if self.form.system else None
        if given is None or isinstance(given, str):
            return given
        if isinstance(given, list) and all(isinstance(block, dict) for block in given):
            return given
        raise InvalidInput("is no system text", place=self.form.system)

    @property
    def tools(self) -> Tools:
        """The schemas of the tools. Raises InvalidInput for what are none."""
        given = self.fields.get("tools")
        if given is None:
            return None
        if isinstance(given, list) and all(isinstance(tool, dict) for tool in given):
            return given
        raise InvalidInput("are no tools", place="tools")

    @property
    def cap_field(self) -> str:
        """The field with the output cap, or the one that it would stand in."""
        return next((name for name in self.form.caps if self.fields.get(name) is not None), self.form.caps[-1])

    @property
    def cap_tokens(self) -> int | None:
        """The output cap that the client set; None where it set none, or nonsense that the upstream will name."""
        given = self.fields.get(self.cap_field)
        return given if isinstance(given, int) and not isinstance(given, bool) and given > 0 else None

    def item(self, at: int) -> str:
        """The text of one message."""
        start, stop = self.item_spans[at]
        return self.text[start:stop]

    def changed(self, changes: Mapping[str, str]) -> bytes:
        """The body with the JSON of some fields in place of what stands there; new ones come last. O(size)."""
        pieces, at = [], 0
        there = sorted((self.spans[name], name) for name in changes if name in self.spans)
        for (start, stop), name in there:
            pieces += [self.text[at:start], changes[name]]
            at = stop
        pieces.append(self.text[at : self.end])
        for name in changes:
            if name not in self.spans:
                pieces.append(f"{',' if self.spans else ''}{json.dumps(name)}:{changes[name]}")
        pieces.append(self.text[self.end :])
        return "".join(pieces).encode("utf-8", "surrogatepass")


def _is_reference(item: Wire) -> bool:
    kind = item.get("type")
    return kind == _REFERENCE or (kind is None and "id" in item and not any(map(item.get, _SAID)))


def read_body(form: Form, raw: bytes, *, addressed: str = "") -> RequestBody:
    """Read a request, to the model that its path names. O(size).

    Raises InvalidInput that names the place: then it can only be passed on as it is.
    """
    try:
        text = raw.decode()
        return _object(form, text, raw, addressed)
    except InvalidInput:  # a ValueError too
        raise
    except UnicodeDecodeError:
        raise InvalidInput("is no UTF-8", place="body") from None
    except (IndexError, ValueError):  # ValueError too: a number of more digits than Python reads
        raise InvalidInput("is no JSON", place="body") from None
    except RecursionError:
        raise InvalidInput("is nested too deeply", place="body") from None


def written(value: Json) -> str:
    """A value as the JSON that we send: no spaces, lone surrogates as escapes."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text


def _object(form: Form, text: str, raw: bytes, addressed: str) -> RequestBody:
    at = _skip(text, 0)
    if text[at] != "{":
        raise InvalidInput("is no object", place="body")
    fields: dict[str, Json] = {}
    spans: dict[str, tuple[int, int]] = {}
    item_spans: list[tuple[int, int]] = []
    at = _skip(text, at + 1)
    while text[at] != "}":
        name, at = _scan(text, at)
        if not isinstance(name, str):
            raise InvalidInput("is no JSON", place="body")
        if name in fields:  # which of them counts is not the same everywhere
            raise InvalidInput("stands there twice", place=name)
        at = _skip(text, _expect(text, _skip(text, at), ":"))
        start = at
        if name == form.messages and text[at] == "[":
            value, at = _items(text, at, item_spans)
        else:
            value, at = _scan(text, at)
        fields[name], spans[name] = value, (start, at)
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
            _expect(text, at, '"')
        elif text[at] != "}":
            raise InvalidInput("is no JSON", place="body")
    if _skip(text, at + 1) != len(text):
        raise InvalidInput("has something after its end", place="body")
    messages = fields.get(form.messages)
    return RequestBody(
        form=form,
        text=text,
        fields=fields,
        spans=spans,
        messages=_messages(form, messages),
        item_spans=item_spans,
        end=at,
        raw=raw,
        addressed=addressed,
    )


def _messages(form: Form, given: Json) -> list[Wire]:
    if isinstance(given, str) and form.messages == "input":  # Responses takes a text for one message of the user
        return [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise InvalidInput("is no list of messages", place=form.messages)
    for number, message in enumerate(given):
        if not isinstance(message, dict):
            raise InvalidInput("is no message", place=f"{form.messages}[{number}]")
    return given


def _scan(text: str, at: int) -> tuple[Json, int]:
    """A value, and the place after it."""
    value, stop = _DECODE(text, at)
    if text.count("[", at, stop) + text.count("{", at, stop) > _MOST_LEVELS:
        level, levels = [value], 0
        while level:
            if levels > _MOST_LEVELS:
                raise RecursionError
            inner = (one.values() if isinstance(one, dict) else one for one in level)
            level = [one for ones in inner for one in ones if isinstance(one, dict | list)]
            levels += 1
    return value, stop


def _items(text: str, at: int, spans: list[tuple[int, int]]) -> tuple[list[Json], int]:
    """An array, the place after it, and that of each item."""
    items: list[Json] = []
    at = _skip(text, at + 1)
    if text[at] == "]":
        return items, at + 1
    while True:
        start = at
        value, at = _scan(text, at)
        items.append(value)
        spans.append((start, at))
        at = _skip(text, at)
        if text[at] == "]":
            return items, at + 1
        at = _skip(text, _expect(text, at, ","))


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _expect(text: str, at: int, what: str) -> int:
    if text[at] != what:
        raise InvalidInput("is no JSON", place="body")
    return at + 1


def lowered_cap(body: RequestBody, cap_tokens: int) -> dict[str, str]:
    """A lower output cap; what the model may think has to stay below it (Anthropic: "Extended thinking")."""
    changes = {body.cap_field: str(cap_tokens)}
    thinking = body.fields.get("thinking")
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    if isinstance(thinking, dict) and isinstance(budget, int) and budget >= cap_tokens:
        least: Json = max(1, cap_tokens // 2)
        changes["thinking"] = written({**thinking, "budget_tokens": least})
    return changes
