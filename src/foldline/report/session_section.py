"""The section of one session: its chart, its bill with and without Foldline, its folds, and what they hide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from foldline.report.account import Account, Hidden, ReportedFold, Spend
from foldline.report.chart import chart
from foldline.text.formatting import compact, escaped, foreign, money, plural

__all__ = [
    "bill",
    "price",
    "ratio",
    "session_part",
]

# Newest first: what a person asks about happened lately. The log has all of them.
_LISTED_FOLDS: Final = 60

# What each reducer does, in a few words.
_IN_WORDS: Final[Mapping[str, str]] = {
    "archive_results": "oldest tool results taken out, a digest in their place",
    "compact": "compacted on request",
    "dedupe": "a result that was repeated later",
    "describe": "a tool result replaced by a model's description",
    "digest": "a span replaced by a digest, made without a model",
    "drop_groups": "oldest turns left out",
    "floor": "cut to the minimum",
    "images": "an old image replaced by a line",
    "mask": "a tool result replaced by a one-line description",
    "render_budget": "oldest turns left out",
    "shorten": "a tool result cut to the lines that bring names",
    "spill": "a large output cut to its beginning",
    "sum_up": "a span replaced by a model's summary",
    "summarize": "a span replaced by a model's summary",
    "truncate": "a long text cut",
    "window": "oldest turns left out",
}


def session_part(account: Account, identifier: str) -> str:
    """The section of one session; `identifier` is unique in the page. O(requests + folds listed)."""
    parts = (
        f'<section aria-labelledby="{identifier}">',
        f'<h2 id="{identifier}"><bdi>{escaped(account.name)}</bdi></h2>',
        f'<p class="said">{foreign(account.title)}</p>' if account.title else "",
        f'<p class="faint">{_about(account)}</p>',
        '<div class="pair">',
        f"<figure>{chart(account.sent, identifier=f'{identifier}c', whole='without')}</figure>",
        "<div>",
        bill(
            account.managed,
            account.unmanaged,
            replayed=account.origin == "replayed",
            fitted=account.refused_from is None,
        ),
        _facts(account),
        "</div>",
        "</div>",
        _folds(account),
        _hidden(account),
        "</section>",
    )
    return "\n".join(part for part in parts if part)


def _about(account: Account) -> str:
    sent = account.sent
    words = [
        f"model {foreign(account.model, 60)}" if account.model else "no model named",
        f"policy {foreign(sent.policy, 60)}",
        f"window {sent.window:,} tokens, {sent.limit_tokens:,} of them for input",
    ]
    words += [f"last written {foreign(account.updated[:16].replace('T', ' '), 20)} UTC"] if account.updated else []
    return ", ".join(words) + "."


def _facts(account: Account) -> str:
    sent = account.sent
    # `max` against a session whose provider reported zeros.
    share = account.managed.cached_tokens / max(account.managed.input_tokens, 1)
    rows = [
        ("requests", f"{sent.requests:,}"),
        ("sent", f"{compact(account.managed.input_tokens)} tokens, {share:.0%} of them from the cache"),
        ("largest", f"{sent.peak_tokens:,} tokens, {sent.peak_tokens / max(sent.limit_tokens, 1):.0%} of the limit"),
        ("folds", f"{len(account.folds):,}"),
    ]
    if sent.refused:
        rows.append(("not sent", f"{plural(sent.refused, 'request')}: what must stay is too large"))
    rows.append(("without Foldline", _without(account)))
    listed = "".join(f"<div><dt>{name}</dt><dd>{words}</dd></div>" for name, words in rows)
    more = "".join(f'<p class="faint">{escaped(words)}</p>' for words in account.more)
    return f'<dl class="facts">{listed}</dl>{more}'


def _without(account: Account) -> str:
    # From that request on all would have been refused: histories only grow.
    largest = max((turn.recorded_tokens for turn in account.sent.turns), default=0)
    if account.refused_from is None:
        return f"all requests fit, the largest with {largest:,} tokens"
    return (
        f'<strong class="bad">refused from request {account.refused_from:,} of {account.sent.requests:,} on</strong>: '
        f"it would have grown to {largest:,} tokens. Priced as if the window were large enough"
    )


def _folds(account: Account) -> str:
    if not account.folds:
        return '<p class="faint">Nothing was folded.</p>'
    listed = "".join(map(_fold, account.folds[: -_LISTED_FOLDS - 1 : -1]))
    more = len(account.folds) - _LISTED_FOLDS
    rest = f'<p class="faint">{plural(more, "older fold")} left out.</p>' if more > 0 else ""
    head = "".join(f'<th scope="col">{name}</th>' for name in ("request", "messages", "tokens"))
    return _closed(
        f"Folds and why, newest first ({len(account.folds):,})",
        f'<table class="stack"><thead><tr>{head}<th scope="col" class="text">what and why</th></tr></thead>'
        f"<tbody>{listed}</tbody></table>",
        rest,
    )


def _fold(fold: ReportedFold) -> str:
    mark = fold.mark
    request = "later" if fold.request is None else f"{fold.request:,}"
    since = f' <span class="faint">({fold.since} since)</span>' if fold.since else ""
    return (
        f'<tr{" class=gone" if fold.since else ""}><td data-is="request">{request}</td>'
        f'<td data-is="messages">{_span(mark.start, mark.stop)}</td>'
        f'<td data-is="tokens">{mark.before_tokens:,} → {mark.tokens:,}</td>'
        f'<td class="text">{_what(mark.reducer)}: {foreign(mark.reason, 300)}{since}</td></tr>'
    )


def _what(reducer: str) -> str:
    """What a reducer does, in words; the name alone for a user's own."""
    words = _IN_WORDS.get(reducer)
    return f"{escaped(words)} (<code>{escaped(reducer)}</code>)" if words else foreign(reducer, 60)


def _span(start: int, stop: int) -> str:
    return f"{start:,}" if stop - start == 1 else f"{start:,}–{stop - 1:,}"


def _hidden(account: Account) -> str:
    if not account.hidden:
        return ""
    counts = [(account.hidden_messages, "hidden message"), (account.shortened_messages, "shortened message")]
    words = " and ".join(plural(count, noun) for count, noun in counts if count)
    listed = [one for one in account.hidden if one.messages]
    how = f"<p>Message N with its folds: <code>{escaped(account.read_one)}</code></p>" if account.read_one else ""
    more = len(account.hidden) - len(listed)
    rest = f'<p class="faint">Messages under {plural(more, "further fold")} are not listed.</p>' if more else ""
    return _closed(
        f"Still readable: {words}, {compact(account.hidden_tokens)} tokens",
        how + "".join(map(_one, listed)),
        rest,
    )


def _one(hidden: Hidden) -> str:
    mark = hidden.mark
    state = "shortened" if hidden.shortened else "hidden"
    key = f'<span class="faint">archive {escaped(hidden.archive)}</span>' if hidden.archive else ""
    rows = "".join(
        f'<tr><th scope="row">{message.seq:,}</th><td class="who">{foreign(message.who, 20)}</td>'
        f'<td data-is="tokens">{message.tokens:,}</td><td class="text">{foreign(message.line)}</td></tr>'
        for message in hidden.messages
    )
    # The command above the list reads all of them, so a cut list loses nothing.
    left = hidden.count - len(hidden.messages)
    more = f'<tr><td class="text" colspan="4">and {left:,} more</td></tr>' if left else ""
    return (
        f'<div class="fold-of"><p>{_span(mark.start, mark.stop)}, {state}: {_what(mark.reducer)}</p>'
        f"<p><code>{escaped(hidden.read)}</code> {key}</p>"
        f'<table class="stack"><tbody>{rows}{more}</tbody></table></div>'
    )


def _closed(summary: str, inside: str, rest: str) -> str:
    # Closed at first, so that a page of forty sessions can be scanned; `region` and `tabindex` let a keyboard scroll
    # it.
    label = escaped(summary)
    return (
        f'<details><summary>{label}</summary><div class="scroll" role="region" tabindex="0" aria-label="{label}">'
        f"{inside}</div>{rest}</details>"
    )


def price(spend: Spend) -> str:
    """A bill in a few characters: money, or tokens at the full input price when the catalogue lacks a price."""
    about = "~" if spend.estimated else ""
    return about + (f"{compact(spend.paid_tokens)} tokens" if spend.usd is None else money(spend.usd))


def ratio(managed: Spend, unmanaged: Spend) -> float | None:
    """The ratio of two bills, in money if both have it, else in tokens at the full price; None for an empty bill."""
    # Both in one unit, or the ratio means nothing: a price for one of them only is not used.
    one, other = _amounts(managed, unmanaged)
    return one / other if other else None


def bill(managed: Spend, unmanaged: Spend, *, replayed: bool, fitted: bool) -> str:
    """Both bills as bars. Without `fitted` the second is for requests that would have been refused."""
    amounts = _amounts(managed, unmanaged)
    largest = max(*amounts, 1e-12)  # both bills may be 0
    in_money = managed.usd is not None and unmanaged.usd is not None
    # An estimate looks different from a figure: hatched in the chart, ~ before the number, a note beside it.
    rows = (
        ("with Foldline", "with", amounts[0], managed, "replayed" if replayed else ""),
        ("without", "without", amounts[1], unmanaged, "estimate" if fitted else "estimate, had it fitted"),
    )
    drawn = "".join(
        f'<div><dt>{name}</dt><dd><span class="track"><span class="{kind}" style="--share:{amount / largest:.4f}">'
        f"</span></span></dd><dd><b>{_written(amount, spend.estimated, in_money)}</b></dd><dd>{note}</dd></div>"
        for name, kind, amount, spend, note in rows
    )
    unit = "" if in_money else '<p class="faint">Input, in tokens at its full price: the catalogue has no price.</p>'
    return f'<dl class="bills">{drawn}</dl>{unit}'


def _amounts(managed: Spend, unmanaged: Spend) -> tuple[float, float]:
    if managed.usd is None or unmanaged.usd is None:
        return managed.paid_tokens, unmanaged.paid_tokens
    return managed.usd, unmanaged.usd


def _written(amount: float, estimated: bool, in_money: bool) -> str:
    return f"{'~' if estimated else ''}{money(amount) if in_money else compact(amount)}"
