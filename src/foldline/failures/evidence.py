"""The evidence in a failed response or exception: status, codes, texts and figures, from any shape.

A body may be an object, JSON text, bytes, an event stream, a page of HTML, another provider's body as a string inside
it, or junk; an exception may carry any of these. Only fields about the error are read: a body may echo the request, and
a user's text that says "context length exceeded" is no failure (see `foldline.failures.request_echoes`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import unescape

from foldline.failures.request_echoes import stands_in, strip_echoes, strip_values, without_shown_value

__all__ = ["PARSED_CHARS", "SEARCHED_CHARS", "Evidence", "read_body", "read_error"]

PARSED_CHARS = 1_048_576
"""Longer text is searched but not parsed as JSON. The largest bodies seen echo a request of about this size."""

SEARCHED_CHARS = 16_384
"""A longer text is searched in its start (three quarters of this) and its end (one quarter).

A wording is at the start, or after an echo of the request. The limit bounds the time of a classification.
"""

_MAX_DEPTH = 8  # gateways nest client, gateway and provider, with JSON in a string at each step
_MAX_VALUES = 400  # values visited in one body
_MAX_ITEMS = 20  # items of one list
_MAX_TEXTS = 40

# Fields whose text is about the error; a gateway may put a prefix before the name (`external_model_error`).
_TEXT_KEY = (
    r"(?:message|msg|error|errors|detail|details|reason|desc|description|title|cause|raw|body|fault|faultstring)$"
)
# Fields that repeat the request or hold a reply. Nothing in them is about the error.
_ECHO_KEYS = frozenset(
    "input inputs inputvalue value values received ctx messages contents content prompt request requestbody tools "
    "functions parameters params arguments choices output candidates query headers usermessage lastmessage "
    "lastusermessage inputmessage systemmessage assistantmessage text delta".split()
)
_HINT_KEYS = frozenset(("quotaid", "quotametric", "param"))  # searched but not shown
# The parameter that the error is about.
_PLACE_KEYS = frozenset(("param", "field", "parameter", "loc", "path", "fieldpath"))
_STATUS_KEYS = frozenset(("code", "status", "statuscode", "httpstatus", "httpstatuscode", "httpcode"))
_CODE_RANKS = {
    "code": 0, "errorcode": 0, "errcode": 0, "statuscode": 0, "type": 1, "errortype": 1, "status": 2, "reason": 3
}  # fmt: skip
_FIGURES = frozenset(("n_prompt_tokens", "n_ctx", "n_tokens"))  # of llama-server: integers next to the message
_STRUCTURAL = frozenset(("error", "errors", "response.failed", "response.error", "none", "null"))  # types, not codes

# Compiled on first use: `import foldline` loads this module.
_STATUS_IN_TEXT = r"(?i)(?:\berror code|\bstatus(?: code)?|\bhttp(?:/[\d.]{1,3})?)[:=]? ?([1-5]\d\d)\b|^([45]\d\d)\b"
_CODE_IN_TEXT = r"""(?i)['"](?:code|type|status|__type)['"] ?: ?['"]?([\w.\-]{1,64})"""
_CODE_OF_PYDANTIC = r"\[type=([a-z_]{1,64})\b"
_PLACE_IN_TEXT = r"""(?i)['"](?:param|field)['"] ?: ?['"]([\w.\-\[\]]{1,200})['"]"""
_PYTHON = r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+"|\bTrue\b|\bFalse\b|\bNone\b|[()]|,(?=\s{0,9}[)\]}])"""
_FIGURE_IN_TEXT = r"""['"](n_prompt_tokens|n_ctx|n_tokens)['"] ?: ?(\d{1,12})\b"""

# Reading an attribute of an unknown object may raise any of these (httpx: RuntimeError for the body of an unread
# stream). An unreadable part of a failure must not become a failure of its own.
_UNREADABLE = (
    ArithmeticError, AssertionError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError,
)  # fmt: skip

_QUOTED_BRACE = r"(?i)\b(?:value|got|received|input|unsupported|invalid)\s?[:=]?\s?\[?['\"`]\[?\s?$"
_URL = r"https?://\S{1,300}"  # a link to a page about rate limits says nothing about this failure


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence: HTTP status, codes and class names in lower case, texts, and figures from fields.

    `code` is the most specific code as written. `places` are the named parameters as dotted paths in lower case. `text`
    is the text to search, without echoes of the request, with single spaces as white space.
    """

    status: int | None = None
    code: str | None = None
    codes: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    message: str = ""
    text: str = ""
    figures: Mapping[str, int] = field(default_factory=dict)
    retry_after_seconds: float | None = None


def read_body(body: object, request: object = None) -> Evidence:
    """Read a body of any type; text that `request` contains too is no evidence. Never raises.

    O(size of both), with the body bounded by the constants above.
    """
    reader = _Collector(request)
    if isinstance(body, BaseException):
        reader.error(body)
    else:
        reader.value(body, 0)
    return reader.evidence()


def read_error(error: BaseException, request: object = None) -> Evidence:
    """Read one exception: its status, codes, body, response and, without text in these, its message. Never raises."""
    reader = _Collector(request)
    reader.error(error)
    return reader.evidence()


def _clip(text: str) -> str:
    if len(text) <= SEARCHED_CHARS:
        return text
    tail = SEARCHED_CHARS // 4
    return f"{text[: SEARCHED_CHARS - tail]} {text[-tail:]}"


def _parsed(text: str) -> object:
    """The JSON value that a text is, or that begins at its first brace; None without one.

    Python's `repr` of one is read too: its clients and servers embed one error in another that way.
    """
    start = text.find("{") if text[:1] not in "{[" else 0
    if start < 0 or len(text) > PARSED_CHARS:
        return None
    decoder = json.JSONDecoder()
    try:
        return decoder.raw_decode(text, start)[0]
    except (ValueError, RecursionError):  # not JSON, or nested too deeply for Python
        if "'" not in text:
            return None
    try:
        return decoder.raw_decode(re.sub(_PYTHON, _as_json, text[start:]))[0]
    except (ValueError, RecursionError):
        return None


def _as_json(found: re.Match[str]) -> str:
    token = found[0]
    if token[0] not in "'\"":
        return {"True": "true", "False": "false", "None": "null", "(": "[", ")": "]", ",": ""}[token]
    escapes = {"n": "\n", "r": "\r", "t": "\t"}
    return json.dumps(re.sub(r"(?s)\\(.)", lambda escape: escapes.get(escape[1], escape[1]), token[1:-1]))


def _attribute(thing: object, name: str) -> object:
    try:
        return getattr(thing, name, None)
    except _UNREADABLE:
        return None


class _Collector:
    """Collects evidence. Every method accepts any value."""

    def __init__(self, request: object = None) -> None:
        self._request = request
        self._places: list[str] = []
        self._texts: list[str] = []
        self._hints: list[str] = []
        self._codes: list[tuple[int, str]] = []
        self._statuses: list[int] = []
        self._figures: dict[str, int] = {}
        self._retry_after_seconds: float | None = None
        self._left = _MAX_VALUES

    def evidence(self) -> Evidence:
        shown: list[str] = []
        for text in self._texts[:_MAX_TEXTS]:
            if not any(text in other for other in shown):
                shown.append(text)
        message = "; ".join(shown)
        text = self._own(_clip(" ".join([message, *self._hints[:_MAX_TEXTS]])))
        for pattern in (_CODE_IN_TEXT, _CODE_OF_PYDANTIC):
            for found in re.findall(pattern, text):
                self.label("code", found)
        for name, digits in re.findall(_FIGURE_IN_TEXT, text):
            self._figures.setdefault(name, int(digits))
        self._places += re.findall(_PLACE_IN_TEXT, text)
        if re.fullmatch(r"[\w.\-]{4,64}", text.strip()):  # some servers send a code and nothing else
            self._codes.append((4, text.strip()))
        text = re.sub(_URL, "", text).strip()
        if not self._statuses and (found := re.search(_STATUS_IN_TEXT, text)):
            self._statuses.append(int(found[1] or found[2]))
        if self._request is not None:
            echoed = stands_in(self._request, frozenset(code.lower() for _, code in self._codes))
            self._codes = [each for each in self._codes if each[1].lower() not in echoed]
        code = min(self._codes, key=lambda entry: entry[0], default=(9, ""))
        return Evidence(
            # In a stream with status 200 the body has the status of the failure.
            status=next((status for status in self._statuses if status >= 400), None)
            or next(iter(self._statuses), None),
            code=code[1] if code[0] < 4 else None,
            codes=tuple(dict.fromkeys(value.lower() for _, value in self._codes)),
            places=tuple(dict.fromkeys(place.lower() for place in self._places if place)),
            message=message,
            text=text,
            figures=self._figures,
            retry_after_seconds=self._retry_after_seconds,
        )

    def _own(self, text: str) -> str:
        """The server's own words, without quoted values and echoes of the request."""
        text = strip_values(text)
        # Echoes are removed first: what remains of one after another cut is no longer recognised.
        return without_shown_value(text if self._request is None else strip_echoes(text, self._request))

    def value(self, value: object, depth: int) -> None:
        self._left -= 1
        if depth > _MAX_DEPTH or self._left < 0 or value is None or isinstance(value, int | float):
            return
        if isinstance(value, str):
            self.text(value, depth)
        elif isinstance(value, bytes | bytearray | memoryview):
            self.text(bytes(value)[: 4 * PARSED_CHARS].decode("utf-8", "replace"), depth)
        elif isinstance(value, Mapping):
            self.mapping(value, depth)
        elif isinstance(value, list | tuple):
            for item in value[:_MAX_ITEMS]:
                self.value(item, depth + 1)
        elif isinstance(value, BaseException):
            self.error(value, depth + 1)
        else:
            self.thing(value, depth)

    def mapping(self, mapping: Mapping[object, object], depth: int) -> None:
        try:
            pairs = list(mapping.items())[:_MAX_VALUES]
        except _UNREADABLE:
            return
        for name, value in pairs:
            if not isinstance(name, str):
                continue
            key = name.lower().replace("_", "").replace("-", "")
            if name in _FIGURES and isinstance(value, int) and not isinstance(value, bool):
                self._figures.setdefault(name, value)
            self.label(key, value)
            if key in _PLACE_KEYS:
                self.place(value)
            if key in _HINT_KEYS or key in ("retrydelay", "retryafter"):
                if isinstance(value, str):
                    self._hints.append(f"{name}: {_clip(value)}")
                elif isinstance(value, int | float):
                    self._hints.append(f"retry after {value} seconds")
            elif key == "retryafterseconds" and isinstance(value, int | float):
                self._hints.append(f"retry after {value} seconds")
            elif (
                key not in _ECHO_KEYS
                and "request" not in key
                and key not in _PLACE_KEYS
                and self._is_about_error(key, value)
            ):
                self.value(value, depth + 1)

    @staticmethod
    def _is_about_error(key: str, value: object) -> bool:
        return not isinstance(value, str) or re.search(_TEXT_KEY, key) is not None or _parsed(value.strip()) is not None

    def place(self, value: object) -> None:
        """Note a parameter as a dotted path: "messages[3].role", or ("body", "messages", 3, "role") in FastAPI."""
        if isinstance(value, str) and " " not in value.strip():
            self._places.append(value.strip()[:200])
        elif isinstance(value, list | tuple) and all(isinstance(step, str | int) for step in value):
            steps = [str(step)[:64] for step in value[:_MAX_ITEMS]]
            self._places.append(".".join(steps[1:] if steps[:1] == ["body"] and len(steps) > 1 else steps))

    def label(self, key: str, value: object) -> None:
        """Note a status or a code, by the name of its field."""
        if isinstance(value, bool) or not isinstance(value, int | str):
            return
        # Neither a status nor a code, and str() of a huge one may raise.
        if isinstance(value, int) and abs(value) >= 10**9:
            return
        digits = value.strip()[:64] if isinstance(value, str) else str(int(value))
        if not digits:
            return
        if key in _STATUS_KEYS and len(digits) == 3 and digits.isdecimal() and 100 <= int(digits) <= 599:
            self._statuses.append(int(digits))
        elif key in _CODE_RANKS and digits.lower() not in _STRUCTURAL and " " not in digits:
            self._codes.append((_CODE_RANKS[key], digits))
            if (last := re.split(r"[.#/]", digits)[-1]) not in ("", digits):  # AWS and Alibaba prefix it with names
                self._codes.append((4, last))

    def text(self, text: str, depth: int) -> None:
        text = text.strip()
        if not text:  # no body: the message of the exception may tell
            return
        if text.startswith(("data:", "event:", "id:", "retry:", ": ")):
            # A recorded event stream: the data of its events.
            for line in text[:PARSED_CHARS].splitlines():
                if line.startswith("data:"):
                    self.value(_parsed(line[5:].strip()), depth + 1)
            return
        if text.startswith("<"):  # an HTML page of a gateway
            text = re.sub(r"<[^<>]{1,500}>", " ", unescape(_clip(text))).strip()
        if (depth or text[:1] not in ("{", "[")) and self._is_echo(text):
            text = text[: text.find("{")]
        value = _parsed(text)
        if isinstance(value, dict | list):
            before = len(self._texts)
            self.value(value, depth + 1)
            start = text.find("{") if text[:1] not in "{[" else 0
            (self._hints if len(self._texts) > before else self._texts).append(" ".join(_clip(text[:start]).split()))
            if start == 0:
                return
        else:
            self._texts.append(" ".join(_clip(text).split()))

    def _is_echo(self, text: str) -> bool:
        """Whether the object in a text is a value that the server quotes, or a part of the request."""
        start = text.find("{")
        if start < 0:
            return False
        if re.search(_QUOTED_BRACE, text[max(0, start - 60) : start]):
            return True
        if self._request is None:
            return False
        # By half: a server may put a word or two of its own around what it repeats.
        quoted = _clip(text[start:])
        return len(strip_echoes(quoted, self._request)) < len(quoted) // 2

    def error(self, error: BaseException, depth: int = 0) -> None:
        names = [cls.__name__ for cls in type(error).__mro__ if cls.__module__ != "builtins"]
        self._codes += [(4, name) for name in names]
        before = len(self._texts)
        self.thing(error, depth)
        if len(self._texts) == before:
            for argument in error.args[:_MAX_ITEMS]:
                self.value(argument, depth + 1)
        if len(self._texts) == before:
            try:
                self.text(str(error), depth + 1)
            except _UNREADABLE:
                return

    def thing(self, thing: object, depth: int) -> None:
        """Read an exception, response or error object by the attributes that clients use."""
        for name in ("status_code", "status", "http_status", "code", "type", "statusCode"):
            self.label(name.lower().replace("_", ""), _attribute(thing, name))
        headers = _attribute(thing, "headers")
        if isinstance(headers, Mapping):
            self.headers(headers)
        for name in ("body", "error", "response", "details", "text", "content"):
            value = _attribute(thing, name)
            if isinstance(value, str | bytes | Mapping | list) or name in ("error", "response"):
                self.value(value, depth + 1)
            if self._texts and name in ("details", "text"):
                return
        message = _attribute(thing, "message")
        if not self._texts and isinstance(message, str):
            self.text(message, depth + 1)

    def headers(self, headers: Mapping[str, object]) -> None:
        """Read Retry-After in seconds or milliseconds. A date is ignored: it would need a clock."""
        for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0), ("Retry-After", 1.0)):
            value = str(headers.get(name, ""))
            if self._retry_after_seconds is None and re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", value):
                self._retry_after_seconds = float(value) / scale
