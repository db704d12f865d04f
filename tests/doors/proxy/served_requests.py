"""The records of a working day of a proxy: several clients, with folds, recoveries, refusals and faults."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from foldline.doors.proxy.served_request import ServedRequest
from foldline.view.transcript import Fold

MARKUP = "<img src=x onerror=\"document.title='broken in'\"><script>document.title='broken in'</script><b>bold</b>"

BEGAN = datetime(2026, 11, 28, 9, 0, tzinfo=UTC)


def fold(start: int, stop: int, before: int, after: int, *why: str) -> Fold:
    """Messages [start, stop) of `before` tokens, shown in `after`; `why`: the reducer and its reason."""
    reducer, reason = why
    return Fold(start=start, stop=stop, shown=(), tokens=after, reducer=reducer, reason=reason, before_tokens=before)


def served_request(number: int = 1, **given: Any) -> ServedRequest:
    """One successful request, with some fields changed."""
    usual: dict[str, Any] = {
        "at": BEGAN + timedelta(seconds=number),
        "method": "POST",
        "path": "/v1/chat/completions",
        "dialect": "openai-chat",
        "model": "gpt-5",
        "session": "4f1c9a20b7d3e865",
        "title": "Find the leak",
        "status": 200,
        "streamed": True,
        "given_tokens": 1_000,
        "sent_tokens": 1_000,
        "window_tokens": 128_000,
        "own_seconds": 0.0012,
        "first_byte_seconds": 0.34,
        "seconds": 2.5,
    }
    return ServedRequest(number=number, **(usual | given))


def day(now: datetime | None = None) -> list[ServedRequest]:
    """Two hundred and some requests of seven conversations, the last one of them now."""
    now = now or datetime.now(UTC)
    numbers = count(1)
    found: list[ServedRequest] = []

    def add(minutes_ago: float, **given: Any) -> None:
        found.append(served_request(next(numbers), at=now - timedelta(minutes=minutes_ago), **given))

    _long(add)
    _claude(add)
    _others(add)
    return sorted(found, key=lambda one: one.at)


def _long(add: Any) -> None:
    """An agent in a small window: folded again and again."""
    whole = 4_000
    sent = 4_000
    folds = 0
    for step in range(120):
        whole += 1_900
        sent += 1_900
        new: tuple[Fold, ...] = ()
        if sent > 27_000:
            new = (
                fold(4, 4 + step, 9_400, 310, "mask", "old tool results are shown shortened: the newest 6 stay whole"),
                fold(
                    4 + step, 30 + step, 11_200, 1_480, "summarize", "26 messages were summed up at 85 % of the window"
                ),
            )
            sent = 9_600
            folds += 1
        add(
            118 - step * 0.95,
            session="9b2e61d07c44a1f3",
            title="Rewrite the importer so that it streams",
            model="qwen3-coder-30b",
            window_tokens=32_768,
            given_tokens=whole,
            sent_tokens=sent,
            folds=folds,
            new_folds=new,
            outcome="folded" if folds else "passed",
            input_tokens=sent + 40,
            cached_tokens=sent - 1_900,
            output_tokens=210 + step,
            recoveries=1 if step == 30 else 0,
            failure="prompt_overflow" if step == 30 else "",
            own_seconds=0.0016 if not new else 1.9,
            seconds=3.2 + step / 40,
        )


def _claude(add: Any) -> None:
    whole = 21_000
    for step in range(60):
        whole += 5_200
        sent = whole if whole < 170_000 else 61_000 + (step % 20) * 5_200
        new = (
            (fold(2, 64, 118_400, 6_200, "summarize", "62 messages were summed up; 3 that are pinned stay"),)
            if sent != whole and step % 20 == 9
            else ()
        )
        add(
            75 - step * 1.2,
            path="/v1/messages",
            dialect="anthropic",
            model="claude-sonnet-4-5",
            session="c0ffee5107a9d2be",
            title="Why does the build fail on macOS only?",
            window_tokens=200_000,
            given_tokens=whole,
            sent_tokens=sent,
            folds=2 if sent != whole else 0,
            new_folds=new,
            outcome="folded" if sent != whole else "passed",
            input_tokens=sent + 220,
            cached_tokens=sent - 5_000,
            output_tokens=900,
            seconds=8.4,
            first_byte_seconds=1.1,
        )


def _others(add: Any) -> None:
    add(
        40,
        status=429,
        failure="rate",
        title="Translate the manual",
        session="aa01",
        given_tokens=14_200,
        sent_tokens=14_200,
    )
    add(39, title="Translate the manual", session="aa01", given_tokens=14_200, sent_tokens=14_200, output_tokens=880)
    add(
        22,
        path="/v1/responses",
        dialect="openai-responses",
        model="gpt-5-codex",
        session="5e55101d",
        title="Write tests for the parser, then run them, then mend what fails; do not stop before all of them pass",
        window_tokens=400_000,
        given_tokens=290_400,
        sent_tokens=290_400,
        input_tokens=291_000,
        cached_tokens=280_000,
        output_tokens=1_400,
    )
    add(
        14, outcome="refused", status=400, first_byte_seconds=0.002, seconds=0.002, own_seconds=0.0,
        title="One log of 3 MB", session="b16", model="llama-3.1-8b", window_tokens=8_192, given_tokens=812_000,
        sent_tokens=812_000, warning="the newest message alone is larger than the window",
    )  # fmt: skip
    add(
        9, title=MARKUP, session="e011", model="<script>alert(1)</script>", given_tokens=2_400, sent_tokens=2_400,
        window_tokens=4_096, truncated="2,400 tokens were sent, 1,024 were read", input_tokens=1_024,
    )  # fmt: skip
    add(
        6,
        outcome="open",
        faulty=True,
        warning="passed on as it came: a fault of the proxy",
        session="",
        title="",
        given_tokens=0,
    )
    add(5, outcome="cut", status=502, session="aa01", title="Translate the manual", seconds=61.2)
    add(
        4, outcome="left", streamed=False, session="", title="", dialect="", method="GET", path="/v1/models",
        given_tokens=0, sent_tokens=0, model="", own_seconds=0.0,
    )  # fmt: skip
    add(
        0.2, path="/v1/messages", dialect="anthropic", model="claude-haiku-4-5", session="f5", title="",
        given_tokens=640, sent_tokens=640, window_tokens=200_000, input_tokens=655, output_tokens=12,
    )  # fmt: skip
