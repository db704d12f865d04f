"""The page about sessions: sums, a table of all, and a section for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Final

from foldline.report.account import Account, Spend
from foldline.report.document import document
from foldline.report.session_section import bill, price, ratio, session_part
from foldline.text.formatting import DASH, compact, escaped, foreign, plural, share

__all__ = ["DETAILED", "SkippedSession", "sessions_page"]

DETAILED: Final = 40
# The most sessions with a section, and the size of these: the page must open on a phone. The table has more rows.
_MAX_CHARS: Final = 2_500_000

# A row has about 500 bytes, so the table of all sessions of a year stays below the sections in size.
_ROWS: Final = 1_000

_COLUMNS: Final = ("requests", "sent", "largest", "folds", "hidden", "with", "without", "ratio", "fits without")


@dataclass(frozen=True, slots=True)
class SkippedSession:
    """A session that is not on the page, and why."""

    name: str
    reason: str


def sessions_page(accounts: Sequence[Account], *, skipped: Sequence[SkippedSession] = (), created: str = "") -> str:
    """The whole page as text, to be saved as UTF-8, newest sessions first, with sections as far as there is room.

    `created` is the time, in words. O(requests of the sessions with a section).
    """
    # Recorded sessions have no time and keep their order: the sort is stable.
    newest = sorted(accounts, key=lambda one: one.updated, reverse=True)
    parts: list[str] = []
    # Rendered until the page is full: the size of a section is not known before, and sessions differ widely.
    chars = 0
    for number, account in enumerate(newest[:DETAILED]):
        part = session_part(account, f"s{number}")
        chars += len(part)
        if parts and chars > _MAX_CHARS:  # the first section is shown however long it is
            break
        parts.append(part)
    body = [
        "<h1>Foldline report</h1>",
        f'<p class="faint">{_setting(newest, created)}</p>',
        *([_head(newest)] if newest else []),
        *_skipped(skipped),
        *([_table(newest, len(parts))] if len(newest) > 1 else []),
        *parts,
    ]
    return document("Foldline report", body, style=_STYLE)


def _setting(accounts: Sequence[Account], created: str) -> str:
    if not accounts:
        return "No sessions."
    # Days of ISO 8601 sort as text.
    times = sorted(one.updated[:10] for one in accounts if one.updated)
    words = [plural(len(accounts), "session"), plural(sum(one.sent.requests for one in accounts), "request")]
    if times:
        words.append(f"written {escaped(times[0])}" + (f" to {escaped(times[-1])}" if times[-1] != times[0] else ""))
    words += [f"page made {escaped(created)}"] if created else []
    return "; ".join(words) + "."


# --- sums -------------------------------------------------------------------------------------------------------------


def _head(accounts: Sequence[Account]) -> str:
    # Money and tokens cannot be added: sessions without a price are left out of the sums, which say so.
    priced = [one for one in accounts if one.managed.usd is not None and one.unmanaged.usd is not None]
    counted = priced or accounts
    managed, unmanaged = _sum(one.managed for one in counted), _sum(one.unmanaged for one in counted)
    others = len(accounts) - len(counted)
    note = (
        f'<p class="faint">Not in these sums, because the catalogue has no price: {plural(others, "session")}.</p>'
        if others
        else ""
    )
    replayed = all(one.origin == "replayed" for one in counted)
    fitted = all(one.refused_from is None for one in counted)
    return "\n".join(
        (
            '<section class="head" aria-label="Sums">',
            f"<div>{bill(managed, unmanaged, replayed=replayed, fitted=fitted)}{note}</div>",
            f'<dl class="tiles">{_tiles(accounts)}</dl>',
            "</section>",
            _meaning(accounts),
        )
    )


def _sum(bills: Iterable[Spend]) -> Spend:
    return reduce(add, bills, Spend())


def _tiles(accounts: Sequence[Account]) -> str:
    tokens = sum(one.managed.input_tokens for one in accounts)
    cached = sum(one.managed.cached_tokens for one in accounts)
    hidden = sum(one.hidden_messages + one.shortened_messages for one in accounts)
    refused = sum(one.refused_from is not None for one in accounts)
    tiles = (
        ("tokens sent", compact(tokens)),
        ("of them from the cache", f"{cached / max(tokens, 1):.0%}"),
        ("folds", f"{sum(len(one.folds) for one in accounts):,}"),
        ("messages hidden or shortened, none lost", f"{hidden:,}"),
        ("sessions that would not have fitted without", f"{refused:,} of {len(accounts):,}"),
    )
    return "".join(f"<div><dt>{name}</dt><dd>{figure}</dd></div>" for name, figure in tiles)


_ESTIMATE: Final = (
    "<b>Without</b> is an estimate: the same requests and replies with nothing folded, at the same prices, as if every "
    "history had fitted the window."
)
_REPORTED: Final = (
    "With Foldline: the real requests, with the tokens that the provider reported, summaries included, at the list "
    "prices of the catalogue. ~ marks sums with counts of our own, where nothing was reported."
)
_REPLAYED: Final = (
    "For a session that was only recorded, with Foldline is a replay: the requests that the policy would have sent, in "
    "our own count; the part that equals the beginning of the last request is read from the prompt cache."
)
_ASSUMED: Final = (
    "Without Foldline each request has the whole history so far, in our own count, scaled by the ratio of the "
    "provider's counts to ours. The last request is read from the prompt cache by the rule of the model, unless the "
    "cache has expired; if no request read from a cache, none is assumed. The replies are the real ones. A request "
    "that does not fit the window would have been refused, and the session would have ended: “fits without” names the "
    "last one that fits."
)


def _meaning(accounts: Sequence[Account]) -> str:
    """The meaning of the figures, and their assumptions."""
    # Only the assumptions that hold for a session on the page: few readers get through one paragraph of them.
    origins = {one.origin for one in accounts}
    texts = [_REPORTED] if origins - {"replayed"} else []
    texts += [_REPLAYED] if "replayed" in origins else []
    paragraphs = "".join(f"<p>{words}</p>" for words in (*texts, _ASSUMED))
    return (
        f'<p class="faint">{_ESTIMATE}</p>\n<details class="meaning"><summary>How the figures come about</summary>'
        f"{paragraphs}</details>\n{_KEY}"
    )


_SAMPLE: Final = '<li><svg viewBox="0 0 28 12" aria-hidden="true">{}</svg>{}</li>'
_FOLDS: Final = "all folds made before this request (point at it to list them, or open “Folds and why”)"
_KEY: Final = (
    '<ul class="key" aria-label="Key to the charts">'
    + _SAMPLE.format('<polyline class="sent" points="0,6 28,6"/>', "sent")
    + _SAMPLE.format('<polyline class="recorded" points="0,6 28,6"/>', "without Foldline")
    + _SAMPLE.format('<line class="limit" x1="0" y1="6" x2="28" y2="6"/>', "limit")
    + _SAMPLE.format('<g class="fold"><path d="M14 11l-4 -8h8z"/></g>', _FOLDS)
    + "</ul>"
)


def _skipped(skipped: Sequence[SkippedSession]) -> list[str]:
    if not skipped:
        return []
    listed = "".join(f"<li>{foreign(one.name)}: {foreign(one.reason, 300)}</li>" for one in skipped[:_ROWS])
    return [
        f"<details><summary>{plural(len(skipped), 'session')} not on this page</summary><ul>{listed}</ul></details>"
    ]


# --- all sessions -----------------------------------------------------------------------------------------------------


def _table(accounts: Sequence[Account], detailed: int) -> str:
    dated = any(account.updated for account in accounts)
    listed = "\n".join(
        _row(account, f"s{number}" if number < detailed else "", dated)
        for number, account in enumerate(accounts[:_ROWS])
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("session", *_columns(dated)))
    notes = []
    if detailed < len(accounts):
        notes.append(
            f"The newest {detailed:,} have sections below. For an older one: "
            "<code>foldline report</code> with its name."
        )
    if len(accounts) > _ROWS:
        notes.append(f"{plural(len(accounts) - _ROWS, 'older session')} in the sums only.")
    below = f'<p class="faint">{" ".join(notes)}</p>' if notes else ""
    caption = f"All sessions ({len(accounts):,}){', newest first' if dated else ''}"
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}">\n'
        f'<table class="stack tiled"><caption>{caption}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{listed}\n</tbody></table></div>\n{below}"
    )


_BAD: Final = ' class="bad"'


def _columns(dated: bool) -> tuple[str, ...]:
    """The names of the columns; on a phone each is above its figure."""
    return (*(("last written",) if dated else ()), *_COLUMNS)


def _row(account: Account, identifier: str, dated: bool) -> str:
    sent = account.sent
    name = foreign(account.name, 60)
    link = f'<a href="#{identifier}">{name}</a>' if identifier else name
    by = ratio(account.managed, account.unmanaged)
    fits = "yes" if account.refused_from is None else f"to {account.refused_from - 1:,}"
    cells = (
        *((escaped(account.updated[:10]) or DASH,) if dated else ()),
        f"{sent.requests:,}",
        compact(account.managed.input_tokens),
        f"{sent.peak_tokens / max(sent.limit_tokens, 1):.0%}",
        f"{len(account.folds):,}",
        f"{account.hidden_messages + account.shortened_messages:,}",
        price(account.managed),
        price(account.unmanaged),
        share(by),
        fits,
    )
    # From the figure that is shown as 101 %, as in the page of replays.
    bad = {"ratio": by is not None and by >= 1.005, "fits without": account.refused_from is not None}
    shown = "".join(
        f'<td data-is="{name}"{_BAD if bad.get(name) else ""}>{cell}</td>'
        for name, cell in zip(_columns(dated), cells, strict=True)
    )
    return f'<tr><th scope="row">{link}</th>{shown}</tr>'


_STYLE: Final = """
a { color: var(--sent); }
.head { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 1rem 3rem; align-items: start;
  padding: 1rem 0; margin: .75rem 0; border-block: 1px solid var(--rule); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .75rem 1.5rem; margin: 0; }
.tiles div { display: flex; flex-direction: column-reverse; justify-content: flex-end; }
.tiles dt { font-weight: 400; font-size: .8125rem; color: var(--faint); line-height: 1.3; }
.tiles dd { margin: 0; font-size: 1.375rem; font-weight: 600; line-height: 1.2; color: var(--ink); }
.bills { display: grid; grid-template-columns: auto minmax(3rem, 22rem) auto fit-content(6rem);
  gap: .4rem .75rem; margin: 0 0 .5rem;
  align-items: center; justify-content: start; font-variant-numeric: tabular-nums; }
.bills div { display: contents; }
.bills dt { font-weight: 400; white-space: nowrap; }
.bills dt, .bills dd:last-child { font-size: .875rem; color: var(--faint); }
.bills dd { margin: 0; color: var(--ink); } .bills b { display: block; text-align: end; }
.head .bills b { font-size: 1.375rem; line-height: 1.2; }
.track span { display: block; height: .8rem; border-radius: .2rem; min-width: 2px; width: calc(var(--share) * 100%); }
.track .with { background: var(--sent); }
.track .without { background: repeating-linear-gradient(-55deg, var(--recorded) 0 2px, transparent 2px 6px);
  border: 1px solid var(--recorded); }
.pair { display: grid; grid-template-columns: minmax(0, 38rem) minmax(19rem, 1fr); gap: 1rem 2rem; align-items: start; }
.pair polyline { vector-effect: non-scaling-stroke; }
.facts + .faint, .meaning p { font-size: .875rem; }
section > p { max-width: 62rem; }
.meaning p { color: var(--faint); }
.facts { margin: 0; font-size: .875rem; }
.facts div { display: grid; grid-template-columns: 8rem minmax(0, 1fr); gap: .75rem; }
.facts dt { font-weight: 400; color: var(--faint); } .facts dd { color: var(--ink); }
.bad { color: var(--fold); }
tbody th { max-width: 20rem; overflow: hidden; text-overflow: ellipsis; }
.said { overflow-wrap: anywhere; }
code { font: .8125rem ui-monospace, monospace; overflow-wrap: anywhere; }
tr.gone td { color: var(--faint); }
.fold-of { margin: 0 0 1rem; padding-inline-start: .6rem; border-inline-start: 3px solid var(--fold); }
.fold-of p { margin: 0; max-width: none; overflow-wrap: anywhere; }
td.who { text-align: start; color: var(--faint); }
.stack th { vertical-align: top; }
@media (min-width: 48rem) { .pair svg text { font-size: 8px; } }
@media (max-width: 47.99rem) {
  tbody th { max-width: 47vw; font-size: .75rem; }
  .head, .pair { grid-template-columns: minmax(0, 1fr); } body { padding: 1rem .75rem; }
  .facts div { grid-template-columns: 7rem minmax(0, 1fr); }
  .stack thead { display: none; } .stack tr { display: block; padding: .3rem 0; border-bottom: 1px solid var(--rule); }
  .stack :is(td, th) { display: inline-block; border: 0; padding: 0 .75rem 0 0; position: static; }
  .stack td.text { display: block; padding: 0; }
  .stack [data-is]::before { content: attr(data-is) " "; color: var(--faint); }
  .tiled, .tiled :is(caption, tbody) { display: block; }
  .tiled tr { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: .2rem .75rem; }
  .tiled th { grid-column: 1 / -1; max-width: none; white-space: normal; overflow-wrap: anywhere; }
  .tiled [data-is] { text-align: start; padding: 0; white-space: normal; }
  .tiled [data-is]::before { display: block; font-weight: 400; } }
@media (max-width: 55.99rem) { .head { grid-template-columns: minmax(0, 1fr); } }
@media print { body { max-width: none; font-size: 10pt; } table { font-size: 7pt; } th, td { padding: .1rem .25rem; }
  section { break-inside: auto; } .scroll { overflow: visible; }
  details .scroll { max-height: none; } a { color: inherit; text-decoration: none; }
  details::details-content { content-visibility: visible; display: block; } summary { list-style: none; }
  .track span, td.bar { print-color-adjust: exact; } }
"""
