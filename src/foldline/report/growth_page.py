"""The page about the growth of a session's requests: a chart of their tokens, and a table of the newest calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from foldline.report.document import document
from foldline.store.calls import REPLY, RecordedCall
from foldline.text.formatting import compact, escaped, plural

__all__ = ["growth_page", "in_words", "notes", "replies_of"]

# Wider than the charts of a replay, for it stands alone: a record may have thousands of calls.
_WIDTH: Final = 760
_LEFT: Final = 44
_RIGHT: Final = 752
_TOP: Final = 16
_BOTTOM: Final = 210
_HEIGHT: Final = 232

_CROWDED: Final = 100  # calls with folds; more triangles would hide the line

_COLUMNS: Final = ("call", "time (UTC)", "messages", "bytes", "prompt", "cached", "answer", "seconds")


def growth_page(calls: Sequence[RecordedCall], *, newest: int) -> str:
    """The page about the calls of one session (at least one, oldest first); the table has the `newest`. O(calls)."""
    # The figures count all calls, since all are paid; the line shows replies only.
    replies = replies_of(calls)
    body = [
        "<h1>Foldline growth</h1>",
        f'<p>Session <bdi>{escaped(calls[0].session_id)}</bdi></p><p class="faint">{escaped(in_words(calls))}.</p>',
        _KEY,
        f'<div class="scroll" role="region" tabindex="0" aria-label="Chart">{_chart(replies)}</div>',
        _table(calls[-newest:][::-1]),
    ]
    return document("Foldline growth", body)


def replies_of(calls: Sequence[RecordedCall]) -> list[RecordedCall]:
    """The successful replies, whose sizes form one line; all calls when there are none."""
    # Summaries have other sizes, and failed calls had no answer: both would make the line jump.
    replies = [call for call in calls if call.purpose == REPLY]
    return [call for call in replies if not call.error] or replies or list(calls)


def in_words(calls: Sequence[RecordedCall]) -> str:
    """The figures of the calls in one sentence."""
    sent = sum(call.prompt_tokens for call in calls)
    cached = sum(call.cached_tokens for call in calls)
    folds = sum(call.folds for call in calls)
    words = [
        f"{plural(len(calls), 'call')}, {plural(folds, 'fold')}",
        f"{compact(sent)} tokens sent, {cached / max(sent, 1):.0%} of them from the cache",
        f"at most {compact(max(call.prompt_tokens for call in calls))} in one call",
    ]
    # Said only when there are any: a page that always mentions failures would make people look for one.
    failed = sum(bool(call.error) for call in calls)
    return "; ".join(words + ([f"{failed:,} failed"] if failed else []))


def _chart(calls: Sequence[RecordedCall]) -> str:
    # A twentieth of room above the highest point; `or 1` for calls whose sizes nobody counted.
    top = max((call.prompt_tokens for call in calls), default=0) * 1.05 or 1

    def point(at: int, tokens: float) -> tuple[float, float]:
        return _LEFT + (_RIGHT - _LEFT) * at / max(len(calls) - 1, 1), _BOTTOM - (_BOTTOM - _TOP) * tokens / top

    def line(kind: str, sizes: Sequence[int]) -> str:
        points = [point(at, size) for at, size in enumerate(sizes)]
        if len(points) == 1:
            return f'<circle class="{kind} point" cx="{points[0][0]:.1f}" cy="{points[0][1]:.1f}" r="3"/>'
        return f'<polyline class="{kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'

    def folds() -> Iterable[str]:
        folding = [at for at, call in enumerate(calls) if call.folds]
        for at in folding:
            x, y = point(at, calls[at].prompt_tokens)
            before = f"{calls[at - 1].prompt_tokens:,} → " if at else ""
            title = f"Before call {calls[at].id}, {plural(calls[at].folds, 'fold')}: "
            mark = (
                f'<path d="M{x - 0.75:.1f} {_BOTTOM}v-7h1.5v7z"/>'
                if len(folding) > _CROWDED
                else f'<circle cx="{x:.1f}" cy="{y - 5:.1f}" r="8"/><path d="M{x:.1f} {y - 1.5:.1f}l-4 -7h8z"/>'
            )
            yield f'<g class="fold"><title>{title}{before}{calls[at].prompt_tokens:,} tokens</title>{mark}</g>'

    # Three lines: nothing, half of the highest point, the highest point.
    scale = [
        f'<line class="axis" x1="{_LEFT}" y1="{point(0, value)[1]:.1f}" x2="{_RIGHT}" y2="{point(0, value)[1]:.1f}"/>'
        f'<text x="{_LEFT - 6}" y="{point(0, value)[1] + 4:.1f}" text-anchor="end">{compact(value)}</text>'
        for value in (0, top / 2.1, top / 1.05)
    ]
    sizes = f"from {calls[0].prompt_tokens:,} to {calls[-1].prompt_tokens:,} tokens" if calls else "nothing"
    return "\n".join(
        (
            f'<svg style="min-width: 36rem" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="growth">',
            f'<title id="growth">Size of {plural(len(calls), "request")}, {sizes}</title>',
            *scale,
            f'<text x="{_LEFT}" y="{_BOTTOM + 16}">call {calls[0].id}</text>',
            f'<text x="{_RIGHT}" y="{_BOTTOM + 16}" text-anchor="end">call {calls[-1].id}</text>',
            line("recorded", [call.cached_tokens for call in calls]),
            line("sent", [call.prompt_tokens for call in calls]),
            *folds(),
            "</svg>",
        )
    )


_SAMPLE: Final = '<li><svg viewBox="0 0 28 12" aria-hidden="true">{}</svg>{}</li>'
_KEY: Final = (
    '<ul class="key" aria-label="Key to the chart">'
    + _SAMPLE.format('<polyline class="sent" points="0,6 28,6"/>', "tokens sent")
    + _SAMPLE.format('<polyline class="recorded" points="0,6 28,6"/>', "of them from the cache")
    + _SAMPLE.format('<g class="fold"><path d="M14 11l-4 -8h8z"/></g>', "folds before this call (point at one)")
    + "</ul>"
)


def _table(calls: Sequence[RecordedCall]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in _COLUMNS) + '<th scope="col" class="text">notes</th>'
    body = "\n".join(_row(call) for call in calls)
    caption = f"The newest {plural(len(calls), 'call')}; ~ marks counts of our own, where the server reported none"
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="Calls">\n<table><caption>{caption}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _row(call: RecordedCall) -> str:
    about = "~" if call.estimated else ""
    cells = (
        f"{call.created_at:%Y-%m-%d %H:%M:%S}",
        f"{call.message_count:,}",
        f"{call.request_bytes:,}",
        f"{about}{call.prompt_tokens:,}",
        f"{call.cached_tokens:,}",
        f"{about}{call.completion_tokens:,}",
        f"{call.seconds:,.1f}",
    )
    plain = "".join(f"<td>{cell}</td>" for cell in cells)
    kind = "text bad" if call.error else "text"
    words = notes(call) + (f": {call.error}" if call.error else "")
    return f'<tr><th scope="row">{call.id}</th>{plain}<td class="{kind}">{escaped(words)}</td></tr>'


def notes(call: RecordedCall) -> str:
    """The notes on a call: its purpose, the folds before it, its failure."""
    words = [] if call.purpose == REPLY else [call.purpose]
    words += [plural(call.folds, "fold")] if call.folds else []
    words += ["failed"] if call.error else []
    return ", ".join(words)
