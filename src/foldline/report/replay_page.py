"""The page about replayed sessions: the figures of each policy, then the size of each request.

It is self-contained, without script, font or picture from elsewhere, and tells the browser so, because strangers wrote
the texts of a session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from foldline.replay import NONE, Replay
from foldline.replay.recall import FAR_MESSAGES, FAR_TOKENS
from foldline.replay.results import ENOUGH
from foldline.replay.rows import PolicyRow, rows
from foldline.report.chart import chart, fold_text
from foldline.report.document import document
from foldline.text.formatting import DASH, compact, escaped, milliseconds, plural, share

__all__ = ["limits", "replay_page"]

_LISTED_FOLDS: Final = 40  # below a chart; a policy that folds at every request would fill the page

_COST: Final = (
    "Input price relative to no management, with the provider's prompt cache: the median over the sessions. The part "
    "of a request that equals the beginning of the last one is read from the cache. Refused requests cost nothing, so "
    "read this figure beside their number."
)
_WITH_REREADS: Final = (
    "Cost and the price of all that the agent has to read again, low to high: one more request for each earlier "
    "message that held a fact (low), or a line with it (high), which the reply uses and the request lacks."
)
_NEAR_LINE: Final = (
    "Of the facts that recorded replies name and that occurred nearer than far ones, the share whose whole line is "
    "still in the request, by the most that any request of this size can show."
)
_FAR: Final = (
    f"Far recall: of the facts that recorded replies name and that last occurred at least {FAR_TOKENS:,} tokens and "
    f"{FAR_MESSAGES} messages back, the share still in the request. "
    f"Mean over the sessions with {ENOUGH} or more such references."
)
# One row per column of the table: its name, its explanation in the legend, its cell. So no column lacks an explanation.
_COLUMNS: Final[tuple[tuple[str, str, Callable[[PolicyRow], str]], ...]] = (
    ("cost", _COST, lambda row: _price(row.cost_ratio)),
    (
        "cost, all",
        "The same for the sums over all sessions: the longest one weighs most.",
        lambda row: _price(row.pooled_cost_ratio),
    ),
    ("with re-reads", _WITH_REREADS, lambda row: _span(row.with_rereads_low, row.with_rereads_high)),
    ("re-reads", "Those messages by requests, low to high.", lambda row: _span(row.rereads_low, row.rereads_high)),
    ("near line", _NEAR_LINE, lambda row: _ratio(row.near_line)),
    ("far", _FAR, lambda row: _ratio(row.far)),
    ("far line", "The same for the whole line of that occurrence.", lambda row: _ratio(row.line)),
    (
        "far tool",
        "The same as far, for facts that occurred in tool results only.",
        lambda row: _ratio(row.far_tool),
    ),
    (
        "invalid",
        "Requests that the provider would refuse for their form.",
        lambda row: _count(row.invalid),
    ),
    (
        "over limit",
        "Requests larger than the window minus the room for the answer.",
        lambda row: _count(row.over_budget),
    ),
    (
        "refused",
        "Requests not sent, because the parts that may not be folded exceed the limit.",
        lambda row: _count(row.refused),
    ),
    (
        "breaks",
        "Requests that did not begin with the whole last request: from there on nothing is read from the cache.",
        lambda row: f"<td>{row.prefix_breaks:,}</td>",
    ),
    ("folds", "Folds made.", lambda row: f"<td>{row.folds:,}</td>"),
    (
        "requests",
        "Requests: one for each recorded reply.",
        lambda row: f"<td>{row.requests:,}</td>",
    ),
    (
        "tokens sent",
        "Input tokens, summed over all requests.",
        lambda row: f"<td>{compact(row.tokens)}</td>",
    ),
    (
        "ms, median",
        "CPU time of append and prepare per request, in milliseconds.",
        lambda row: f"<td>{milliseconds(row.cpu_p50_seconds)}</td>",
    ),
    (
        "ms, p95",
        "The same; 95 % of the requests take at most this.",
        lambda row: f"<td>{milliseconds(row.cpu_p95_seconds)}</td>",
    ),
)


def replay_page(replays: Sequence[Replay], *, prices: str = "") -> str:
    """The whole page as text, to be saved as UTF-8; `prices` names the provider of the cache prices. O(turns)."""
    # In the order of the replays: of sessions as they were named, of policies as they were asked for.
    sessions: dict[str, list[Replay]] = {}
    for replay in replays:
        sessions.setdefault(replay.session, []).append(replay)
    body = [
        "<h1>Foldline replay</h1>",
        f'<p class="faint">{_setting(replays, len(sessions), prices)}</p>',
        _table(rows(replays), f"All sessions ({len(sessions):,})"),
        _legend(),
        *(_session(number, name, own, len(sessions) > 1) for number, (name, own) in enumerate(sessions.items())),
    ]
    return document("Foldline replay", body)


def _setting(replays: Sequence[Replay], sessions: int, prices: str) -> str:
    if not replays:
        return "Nothing was replayed."
    # Window and counter are those of the command, so one replay speaks for all.
    one = replays[0]
    words = [
        plural(sessions, "recorded session"),
        limits(replays),
        f"sizes by {escaped(one.counter)}",
    ]
    if prices:
        words.append(f"cache prices of {escaped(prices)}")
    return "; ".join(words) + "."


def _legend() -> str:
    sample = '<svg viewBox="0 0 28 12" aria-hidden="true">{}</svg>'
    key = (
        ('<polyline class="sent" points="0,6 28,6"/>', "sent"),
        ('<polyline class="recorded" points="0,6 28,6"/>', "recorded: the size without management"),
        ('<line class="limit" x1="0" y1="6" x2="28" y2="6"/>', "limit"),
        (
            '<g class="fold"><path d="M14 11l-4 -8h8z"/></g>',
            "folds, or ticks at the foot when there are many (point at one for the reasons, or open “Folds of …”)",
        ),
        ('<g class="refused"><path d="M11 3l6 6m0 -6l-6 6"/></g>', "does not fit, not sent"),
    )
    items = "".join(f"<li>{sample.format(drawing)}{words}</li>" for drawing, words in key)
    terms = "".join(f"<dt>{name}</dt><dd>{meaning}</dd>" for name, meaning, _ in _COLUMNS)
    return (
        f"<details><summary>What the columns mean</summary><dl>{terms}</dl></details>\n"
        f'<ul class="key" aria-label="Key to the charts">{items}</ul>'
    )


def _session(number: int, name: str, replays: Sequence[Replay], with_table: bool) -> str:
    """The charts of one session, and its figures when there are several sessions."""
    one = replays[0]
    # Every chart shows the size without management as its thin line: "none" needs no chart of its own.
    managed = [replay for replay in replays if replay.policy != NONE]
    # A policy that folded nothing sent what was recorded: its chart would show one line twice.
    drawn = [replay for replay in managed if replay.folds or replay.refused] if managed else [one]
    alike = ", ".join(escaped(replay.policy) for replay in managed if not (replay.folds or replay.refused))
    rest = f'<p class="faint">Nothing to fold under {alike if drawn else "any policy"}.</p>' if alike else ""
    size = f"{plural(one.requests, 'request')}, {one.recorded_tokens:,} tokens recorded, {escaped(one.dialect)}"
    return "\n".join(
        (
            f'<section aria-labelledby="s{number}">',
            f'<h2 id="s{number}"><bdi>{escaped(name)}</bdi></h2>',
            f'<p class="faint">{size}</p>',
            _table(rows(replays), "This session") if with_table else "",
            '<div class="charts">',
            *(_figure(replay, f"s{number}p{place}") for place, replay in enumerate(drawn)),
            "</div>",
            rest,
            "</section>",
        )
    )


def _figure(replay: Replay, identifier: str) -> str:
    figures = f"{plural(replay.folds, 'fold')}, {plural(replay.prefix_breaks, 'break')}, at most "
    caption = f"<h3>{escaped(replay.policy)}</h3><span>{figures}{compact(replay.peak_tokens)} tokens</span>"
    drawn = chart(replay, identifier=identifier)
    return f"<figure><figcaption>{caption}</figcaption>\n{drawn}\n{_fold_list(replay)}</figure>"


def _fold_list(replay: Replay) -> str:
    # For phones, which have no pointer to hover with: the list repeats what the marks of the chart say.
    texts = [(turn.index + 1, fold_text(mark)) for turn in replay.turns for mark in turn.folds]
    if not texts:
        return ""
    listed = "".join(
        f'<tr><td>{request}</td><td class="text">{escaped(words)}</td></tr>' for request, words in texts[:_LISTED_FOLDS]
    )
    more = len(texts) - _LISTED_FOLDS
    rest = f'<p class="faint">and {plural(more, "more fold")}</p>' if more > 0 else ""
    head = '<thead><tr><th scope="col">before request</th><th scope="col" class="text">fold</th></tr></thead>'
    label = f"Folds of {escaped(replay.policy)}"
    return (
        f"<details><summary>{label} ({len(texts):,})</summary>"
        f'<div class="scroll" role="region" tabindex="0" aria-label="{label}">'
        f"<table>{head}<tbody>{listed}</tbody></table></div>{rest}</details>"
    )


def _table(policies: Iterable[PolicyRow], caption: str) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in ("policy", *(name for name, _, _ in _COLUMNS)))
    body = "\n".join(
        f'<tr><th scope="row">{escaped(row.policy)}</th>{"".join(cell(row) for _, _, cell in _COLUMNS)}</tr>'
        for row in policies
    )
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}">\n<table><caption>{caption}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _count(faults: int) -> str:
    return f'<td class="bad">{faults:,}</td>' if faults else "<td>0</td>"


def _price(ratio: float | None) -> str:
    """The cell of a price, in the colour of faults when it exceeds that of no management."""
    # From 100.5 % on, where the rounded figure shows 101 %: "100 %" in the colour of a fault would look like a mistake.
    return f'<td class="bad">{share(ratio)}</td>' if ratio and ratio >= 1.005 else f"<td>{share(ratio)}</td>"


def _ratio(value: float | None) -> str:
    if value is None:
        return f"<td>{DASH}</td>"
    return f'<td class="bar" style="--share:{min(value, 1.0):.3f}">{share(value)}</td>'


def _span(low: float | None, high: float | None) -> str:
    return f"<td>{DASH if low is None else f'{share(low)}–{share(high)}'}</td>"


def limits(replays: Sequence[Replay]) -> str:
    """The window of some replays, its share for input, and the limit that the policies observed."""
    one = replays[0]
    words = f"window {one.window:,} tokens, {one.limit_tokens:,} of them for input"
    # "none" keeps to no limit of its own; any policy tells it.
    policy_tokens = next((replay.kept_tokens for replay in replays if replay.kept_tokens is not None), one.limit_tokens)
    if policy_tokens == one.limit_tokens:
        return words
    margin = 1 - policy_tokens / one.limit_tokens
    return f"{words};\npolicies keep to {policy_tokens:,}: {margin:.0%} is margin for errors of the count"
