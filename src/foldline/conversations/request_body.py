"""The body of a client's request: its parsed JSON, and the position of every field and message in its text.

Unchanged parts are sent as the client's own bytes, so changes are spliced into the text and the rest is never
serialised again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn

from foldline.codecs.base import BodyForm
from foldline.codecs.dialect import ROWS
from foldline.codecs.gemini.parts import field_in, key_of
from foldline.errors import InvalidInput
from foldline.messages import Json, Wire
from foldline.view.system_and_tools import System, Tools

__all__ = ["FORMS", "RequestBody", "lowered_cap", "read_body", "title_of", "to_json"]

_SPACE: Final = re.compile(r"[ \t\n\r]*")

_REFERENCE: Final = "item_reference"
_MESSAGE_FIELDS: Final = ("role", "content")  # an item without a type but with one of these is a message

# Some later readers of the body cannot parse deeper JSON, and no client sends it on purpose.
_MAX_LEVELS: Final = 100

_TITLE_CHARS: Final = 80  # one line of a list


# `json` reads NaN and Infinity, which JSON does not have (RFC 8259, section 6): an upstream would refuse them.
def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODE: Final = json.JSONDecoder(parse_constant=_no_constant).raw_decode


FORMS: Final[Mapping[str, BodyForm]] = {name: row.body for name, row in ROWS.items()}
"""The names of the fields of a request, by dialect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBody:
    """A request and its text. `spans` are the positions of the field values in `text`, `item_spans` of the messages.

    `end` is the position of the closing brace. `addressed` is the model that the path of the request names;
    `streamed_by_path` says that the path asks for a stream.
    """

    form: BodyForm
    text: str
    fields: Mapping[str, Json]
    spans: Mapping[str, tuple[int, int]]
    messages: Sequence[Wire]
    item_spans: Sequence[tuple[int, int]]
    end: int
    raw: bytes = field(repr=False)
    addressed: str = ""
    streamed_by_path: bool = False

    @property
    def dialect(self) -> str:
        """The dialect of the request."""
        return self.form.dialect

    @property
    def model(self) -> str:
        """The model named by the body, or else by the path; "" without one."""
        named = self.fields.get("model")
        return named if isinstance(named, str) and named else self.addressed

    @property
    def elsewhere(self) -> str:
        """The field that refers to messages held by the server, which cannot be known here; "" without one."""
        # An item with an id and nothing else is a reference even without a type (OpenAI, "Create a model response":
        # Item reference).
        named = next((name for name in self.form.elsewhere if self.fields.get(name) is not None), "")
        return named or (_REFERENCE if self.form.references and any(map(_is_reference, self.messages)) else "")

    @property
    def streamed(self) -> bool:
        """Whether the client asked for a streamed reply."""
        return self.streamed_by_path or self.fields.get("stream") is True

    @property
    def system(self) -> System:
        """The system text outside the messages. Raises InvalidInput for a value that is no system text."""
        value = self.fields.get(self.form.system) if self.form.system else None
        value = self.form.system_in(value)
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, list) and all(isinstance(block, dict) for block in value):
            return value
        raise InvalidInput("is no system text", place=self.form.system)

    @property
    def tools(self) -> Tools:
        """The tool schemas. Raises InvalidInput for a value that is no list of them."""
        value = self.fields.get("tools")
        if value is None:
            return None
        if isinstance(value, list) and all(isinstance(tool, dict) for tool in value):
            return value
        raise InvalidInput("are no tools", place="tools")

    def system_json(self, system: System) -> str:
        """The JSON of another system text, in the form in which the dialect has it."""
        return to_json(self.form.system_json(system, self.fields.get(self.form.system or "")))

    @property
    def cap_field(self) -> str:
        """The field that holds the output cap, or would hold it."""
        return next((name for name in self.form.caps if self.fields.get(name) is not None), self.form.caps[-1])

    @property
    def cap_tokens(self) -> int | None:
        """The client's output cap; None without one, or for an invalid value, which the upstream will report."""
        if self.form.caps_in:
            config = self.fields.get(self.form.caps_in)
            value = field_in(config, self.form.caps[0]) if isinstance(config, dict) else None
        else:
            value = self.fields.get(self.cap_field)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

    def item(self, at: int) -> str:
        """Return the JSON text of one message."""
        start, stop = self.item_spans[at]
        return self.text[start:stop]

    def changed(self, changes: Mapping[str, str]) -> bytes:
        """Return the body with some fields replaced by other JSON. New fields come last. O(size)."""
        pieces, at = [], 0
        present = sorted((self.spans[name], name) for name in changes if name in self.spans)
        for (start, stop), name in present:
            pieces += [self.text[at:start], changes[name]]
            at = stop
        pieces.append(self.text[at : self.end])
        for name in changes:
            if name not in self.spans:
                pieces.append(f"{',' if self.spans else ''}{json.dumps(name)}:{changes[name]}")
        pieces.append(self.text[self.end :])
        # The text came from UTF-8, so lone surrogates can only be in what was put in; they must not raise here.
        return "".join(pieces).encode("utf-8", "surrogatepass")


def _is_reference(item: Wire) -> bool:
    kind = item.get("type")
    return kind == _REFERENCE or (kind is None and "id" in item and not any(map(item.get, _MESSAGE_FIELDS)))


def read_body(form: BodyForm, raw: bytes, *, addressed: str = "", streamed: bool = False) -> RequestBody:
    """Parse a request whose path names the model `addressed`, and asks for a stream if `streamed`. O(size).

    Raises InvalidInput with the position; such a request can only be passed on unchanged.
    """
    try:
        text = raw.decode()
        return replace(_object(form, text, raw, addressed), streamed_by_path=streamed)
    except InvalidInput:  # a ValueError too
        raise
    except UnicodeDecodeError:
        raise InvalidInput("is no UTF-8", place="body") from None
    except (IndexError, ValueError):  # ValueError too: a number of more digits than Python reads
        raise InvalidInput("is no JSON", place="body") from None
    except RecursionError:
        raise InvalidInput("is nested too deeply", place="body") from None


def to_json(value: Json) -> str:
    """Serialise a value as compact JSON, with lone surrogates as escapes."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text


def _object(form: BodyForm, text: str, raw: bytes, addressed: str) -> RequestBody:
    # The outer object and the list of messages are parsed here, because `json` reports no positions. Every value inside
    # goes through the C scanner of `json`.
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
        if name in fields:  # parsers differ in which of two values counts
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
        form=form.spelled(fields),
        text=text,
        fields=fields,
        spans=spans,
        messages=_messages(form, messages),
        item_spans=item_spans,
        end=at,
        raw=raw,
        addressed=addressed,
    )


def _messages(form: BodyForm, value: Json) -> list[Wire]:
    if isinstance(value, str) and form.messages == "input":  # Responses takes a text for one message of the user
        return [{"role": "user", "content": value}]
    if not isinstance(value, list) or not value:
        raise InvalidInput("is no list of messages", place=form.messages)
    for number, message in enumerate(value):
        if not isinstance(message, dict):
            raise InvalidInput("is no message", place=f"{form.messages}[{number}]")
    return value


def _scan(text: str, at: int) -> tuple[Json, int]:
    """Return a value and the position after it."""
    value, stop = _DECODE(text, at)
    # Counting brackets is cheap, and only a text with many of them can be nested too deeply.
    if text.count("[", at, stop) + text.count("{", at, stop) > _MAX_LEVELS:
        level, levels = [value], 0
        while level:
            if levels > _MAX_LEVELS:
                raise RecursionError
            inner = (one.values() if isinstance(one, dict) else one for one in level)
            level = [one for ones in inner for one in ones if isinstance(one, dict | list)]
            levels += 1
    return value, stop


def _items(text: str, at: int, spans: list[tuple[int, int]]) -> tuple[list[Json], int]:
    """Return an array and the position after it, and append the position of each item to `spans`."""
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
    """Return the changes for a lower output cap."""
    # A thinking budget must stay below the cap (Anthropic, "Extended thinking").
    if body.form.caps_in:
        value = body.fields.get(body.form.caps_in)
        config = value if isinstance(value, dict) else {}
        return {body.form.caps_in: to_json({**config, key_of(config, body.form.caps[0]): cap_tokens})}
    changes = {body.cap_field: str(cap_tokens)}
    thinking = body.fields.get("thinking")
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    if isinstance(thinking, dict) and isinstance(budget, int) and budget >= cap_tokens:
        least: Json = max(1, cap_tokens // 2)
        changes["thinking"] = to_json({**thinking, "budget_tokens": least})
    return changes


def title_of(messages: Sequence[Wire]) -> str:
    """Return the first words of the user, as a title for people; "" if there are none."""
    for wire in messages:
        if wire.get("role") == "user":
            content = wire.get("content", wire.get("parts"))
            blocks = content if isinstance(content, list) else [{"text": content}]
            texts = (block.get("text") for block in blocks if isinstance(block, dict))
            text = " ".join(" ".join(text for text in texts if isinstance(text, str)).split())
            if text:
                return text if len(text) <= _TITLE_CHARS else f"{text[: _TITLE_CHARS - 1]}…"
    return ""
