"""What each promise finds wrong with a round: the first fault, or None."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from foldline.codecs.dialect import caps_of
from foldline.engine.one_shot import check, count
from foldline.errors import InvalidInput
from foldline.messages import Image, Text
from foldline_bench.promises.rounds import MadeRequest, Round
from foldline_bench.promises.shapes import SYSTEM
from foldline_bench.promises.wire_forms import FORMS

__all__ = [
    "errors_fault",
    "fits_fault",
    "huge_fault",
    "images_fault",
    "kept_fault",
    "mended_fault",
    "order_fault",
    "parallel_fault",
    "pins_fault",
    "prefix_fault",
    "system_fault",
    "unicode_fault",
    "valid_fault",
    "words_fault",
]

REWRITES_SHARE: Final = 0.5
"""Of the requests from the first fold on, the most that may send another beginning than the one before."""
UNTOUCHED_SHARE: Final = 0.5
"""Of the window: what is smaller is sent as it is."""


def _some_of(text: str, shown: str) -> bool:
    """Whether any line of a text is still there."""
    return text in shown or any(line in shown for line in text.splitlines() if line)


def _sent(found: Round) -> Iterator[MadeRequest]:
    return (exchange for exchange in found.exchanges if exchange.sent is not None)


def _at(exchange: MadeRequest, fault: str) -> str:
    return f"request {exchange.number}: {fault}"


def _unmade(found: Round) -> str | None:
    """Why the last request was not made, if it was not."""
    last = found.exchanges[-1]
    return _at(last, f"none was made: {last.declined or last.broken}") if last.sent is None else None


def fits_fault(found: Round) -> str | None:
    """Every request fits; where that is impossible, none is made and the tool says so."""
    for exchange in found.exchanges:
        if exchange.sent is None:
            if found.history.feasible and not exchange.broken:
                return _at(exchange, f"none was made, though it can be: {exchange.declined}")
        elif exchange.sent.tokens > found.most_tokens:
            return _at(exchange, f"{exchange.sent.tokens:,} tokens in a window of {found.history.window_tokens:,}")
        elif not found.history.feasible:
            return _at(exchange, "was sent, though the words of the user alone are larger than the window")
    return None


def valid_fault(found: Round) -> str | None:
    """Every request keeps the rules of its dialect."""
    history = found.history
    caps = caps_of(history.dialect, history.window_tokens)
    for exchange in found.exchanges:
        if exchange.broken:
            return _at(exchange, exchange.broken)
        if exchange.sent is None:
            continue
        try:
            broken = check(
                exchange.sent.messages, dialect=history.dialect, system=exchange.sent.system or None, caps=caps
            )
        except InvalidInput as error:
            return _at(exchange, str(error))
        if broken:
            return _at(exchange, f"{broken[0].rule}, message {broken[0].index}: {broken[0].detail}")
    return None


def mended_fault(found: Round) -> str | None:
    """A request is made of a history that no provider takes, and it keeps the rules."""
    return valid_fault(found) or _unmade(found)


def words_fault(found: Round) -> str | None:
    """The newest words of the user are in every request, whole."""
    for exchange in _sent(found):
        words = found.history.words_until(exchange.stop)
        if words is None:
            continue
        shown = [p.text for m in exchange.read if m.role == "user" for p in m.parts if isinstance(p, Text)]
        for text in words.texts:
            if not any(text in one for one in shown):
                return _at(exchange, f"the newest words of the user are not there whole: {text[:60]!r}")
    return None


def images_fault(found: Round) -> str | None:
    """The images of the newest message of the user are in the request; an older one may be in another form."""
    for exchange in _sent(found):
        words = found.history.words_until(exchange.stop)
        if words is None or not words.images:
            continue
        shown = [message for message in exchange.read if message.role == "user"]
        near = [one for one in shown if any(isinstance(p, Text) and words.texts[0] in p.text for p in one.parts)]
        images = sum(isinstance(part, Image) for one in near for part in one.parts)
        if images < len(words.images):
            return _at(exchange, f"{images} of the {len(words.images)} images of the newest question are there")
    return valid_fault(found) or _unmade(found)


def system_fault(found: Round) -> str | None:
    """The system text is in every request, word for word."""
    wanted = found.history.system or SYSTEM
    for exchange in _sent(found):
        beside = json.dumps(exchange.sent.system, ensure_ascii=False) if exchange.sent else ""
        inside = [message.text for message in exchange.read if message.role == "system"]
        if wanted not in _unescaped(beside) and not any(wanted in text for text in inside):
            return _at(exchange, "the system text is not there word for word")
    return None


def _unescaped(text: str) -> str:
    return text.replace('\\"', '"').replace("\\n", "\n")


def pins_fault(found: Round) -> str | None:
    """A pinned message is in every request, whole."""
    for exchange in _sent(found):
        for index in found.history.pinned:
            message = found.history.read[index]
            if message is not None and not any(message.text in one.text for one in exchange.read):
                return _at(exchange, f"the pinned message {index} is not there whole")
    return None


def prefix_fault(found: Round) -> str | None:
    """A request begins with the bytes of the one before, except at a fold, which pays with room for more requests."""
    before: MadeRequest | None = None
    rewrites, first = 0, 0
    for exchange in _sent(found):
        if before is None or before.sent is None or exchange.sent is None:
            before = exchange
            continue
        history = found.history
        if exchange.dumped[: len(before.dumped)] != before.dumped:
            if history.tokens(exchange.stop) <= UNTOUCHED_SHARE * history.window_tokens:
                return _at(exchange, "its beginning has changed, though the window is half empty")
            new = count(history.messages[before.stop : exchange.stop], dialect=history.dialect)
            if exchange.sent.tokens >= before.sent.tokens + new:
                return _at(exchange, "its beginning has changed, and it is no smaller for that")
            rewrites, first = rewrites + 1, first or exchange.number
        before = exchange
    since = found.exchanges[-1].number - first + 1
    if rewrites > max(2, REWRITES_SHARE * since):
        return f"request {first} and later: {rewrites} of {since} requests have another beginning than the one before"
    return None


def kept_fault(found: Round) -> str | None:
    """What was given is as it was, and can be read back."""
    if found.changed is not None:
        return f"after request {found.exchanges[-1].number}: message {found.changed} of the caller has been changed"
    return found.lost or None


def parallel_fault(found: Round) -> str | None:
    """Calls that were made at once are shown with all their results; of the newest at least a part is left."""
    for exchange in _sent(found):
        for result in found.history.newest_results(exchange.step):
            shown = exchange.results.get(result.call_id)
            if result.call_id not in exchange.calls or shown is None:
                return _at(exchange, f"call {result.call_id} or its result is not there")
            if not _some_of(result.text, shown.text):
                return _at(exchange, f"nothing of the newest result of {result.call_id} is left")
    return valid_fault(found) or _unmade(found)


def errors_fault(found: Round) -> str | None:
    """The newest error is there in its own words, and no result that failed is shown as one that did not."""
    failed = {
        part.call_id
        for step in range(len(found.history.steps))
        for part in found.history.newest_results(step)
        if part.text.startswith("Error") or part.is_error
    }
    marked = FORMS[found.history.dialect].marks_failures
    for exchange in _sent(found):
        for result in found.history.newest_results(exchange.step):
            shown = exchange.results.get(result.call_id)
            if shown is None or not _some_of(result.text, shown.text):
                return _at(exchange, f"the newest result, of {result.call_id}, is not there in its own words")
        for call_id, shown in exchange.results.items():
            if marked and call_id in failed and not shown.is_error:
                return _at(exchange, f"the result of {call_id} is no longer marked as an error")
    return valid_fault(found) or _unmade(found)


def huge_fault(found: Round) -> str | None:
    """A result of three windows leaves a request that fits, with as much of the result as there is room for."""
    for exchange in _sent(found):
        if exchange.sent is not None and exchange.sent.tokens > found.most_tokens:
            return _at(exchange, f"{exchange.sent.tokens:,} tokens in a window of {found.history.window_tokens:,}")
        for result in found.history.newest_results(exchange.step):
            shown = exchange.results.get(result.call_id)
            if shown is None:
                return _at(exchange, f"the newest result, of {result.call_id}, is not there")
            if not _some_of(result.text.partition("\n")[2] or result.text, shown.text):
                return _at(exchange, f"nothing of the newest result, of {result.call_id}, is left")
    return valid_fault(found) or _unmade(found)


def unicode_fault(found: Round) -> str | None:
    """Wherever a text was cut, it is still text: UTF-8 can hold it, and no character was replaced."""
    for exchange in _sent(found):
        for index, text in enumerate(exchange.dumped):
            plain = json.dumps(json.loads(text), ensure_ascii=False)
            try:
                plain.encode()
            except UnicodeEncodeError:
                return _at(exchange, f"message {index} has half a character, which no JSON body can hold")
            if "\ufffd" in plain:
                return _at(exchange, f"message {index} has a character that was replaced (U+FFFD)")
    return valid_fault(found) or fits_fault(found)


def order_fault(found: Round) -> str | None:
    """Results that came late or in another order stand with their calls."""
    for exchange in _sent(found):
        asked = {call.id for message in found.history.read[: exchange.stop] if message for call in message.calls}
        for result in found.history.newest_results(exchange.step):
            shown = exchange.results.get(result.call_id)
            if result.call_id in asked and (shown is None or not _some_of(result.text, shown.text)):
                return _at(exchange, f"the newest result of {result.call_id} does not stand with its call")
    return mended_fault(found)
