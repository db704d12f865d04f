"""What a request may hold: fields that check a value and describe themselves, so that check and document are one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from foldline.doors.http.problems import Problem
from foldline.messages import Json

__all__ = ["LARGEST", "Field", "refused"]

LARGEST: Final = 2**53 - 1
"""The largest whole number that every reader of JSON keeps exactly."""

_UNFIT: Final = re.compile("[\x00\ud800-\udfff]")
_NO_NUL: Final = "^[^\\u0000]*$"
_DIGITS: Final = re.compile(r"-?[0-9]{1,16}")
_FLAGS: Final = {"true": True, "false": False}
_TYPES: Final = {"text": "string", "whole": "integer", "flag": "boolean"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One value of a request: of the body, the query, the path or a header.

    `kind` is a text, a whole number or true/false. A text has from `least` to `most` characters and matches `pattern`
    (which is searched for), or is one of `choices`; a number lies between them. `default` stands for an absent one.
    """

    name: str
    kind: Literal["text", "whole", "flag"] = "text"
    about: str
    required: bool = False
    default: Json = None
    least: int = 0
    most: int = LARGEST
    pattern: str | None = None
    choices: tuple[str, ...] = ()
    example: Json = None

    def schema(self) -> dict[str, Json]:
        """It as JSON Schema, for the document."""
        out: dict[str, Json] = {"type": _TYPES[self.kind], "description": self.about}
        if self.kind == "whole":
            out |= {"minimum": self.least, "maximum": self.most}
        elif self.choices:
            out["enum"] = list(self.choices)
        elif self.kind == "text":
            out |= {"minLength": self.least} if self.least else {}
            out |= {"maxLength": self.most} if self.most < LARGEST else {}
            out["pattern"] = self.pattern or _NO_NUL
        if self.default is not None:
            out["default"] = self.default
        if self.example is not None:
            out["example"] = self.example
        return out

    def check(self, value: Json) -> Json:
        """The value, as handlers take it. Raises Problem with the field named."""
        if self.kind == "flag":
            if not isinstance(value, bool):
                raise refused(self.name, "must be true or false")
            return value
        if self.kind == "whole":
            return self._number(value)
        if not isinstance(value, str):
            raise refused(self.name, f"must be a text, not {_named(value)}")
        if _UNFIT.search(value):
            raise refused(self.name, "holds a character that is none (NUL, or half of a surrogate pair)")
        if self.choices and value not in self.choices:
            raise refused(self.name, f"must be one of {', '.join(self.choices)}")
        if len(value) < self.least:
            raise refused(self.name, "is empty" if not value else f"has fewer than {self.least} characters")
        if len(value) > self.most:
            raise refused(self.name, f"has {len(value):,} characters, more than {self.most:,}")
        if self.pattern is not None and re.search(self.pattern, value) is None:
            raise refused(self.name, "there is nothing in it" if not value.strip() else f"must match {self.pattern}")
        return value

    def read(self, text: str) -> Json:
        """The value in the text of a query, a path or a header. Raises Problem with the field named."""
        if self.kind == "flag":
            return self.check(_FLAGS.get(text, text))
        if self.kind == "whole":
            if not _DIGITS.fullmatch(text):
                raise refused(self.name, "must be a whole number")
            return self.check(int(text))
        return self.check(text)

    def _number(self, value: Json) -> int:
        if isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST:
            value = int(value)  # 1.0 is a whole number to JSON Schema
        if isinstance(value, bool) or not isinstance(value, int):
            raise refused(self.name, f"must be a whole number, not {_named(value)}")
        if not self.least <= value <= self.most:
            raise refused(self.name, f"must be from {self.least:,} to {self.most:,}")
        return value


def refused(field: str, detail: str) -> Problem:
    """The problem that a field of the request is."""
    return Problem(name="bad-request", detail=detail, field=field)


def _named(value: Json) -> str:
    if value is None:
        return "null"
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list"}
    return kinds.get(type(value), "an object")
