"""The output of `foldline tune`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

from foldline.cli.console import Column, print_table, terminal
from foldline.messages import Json
from foldline.text.formatting import DASH, compact, money, plain_line, plural, share
from foldline_bench.measure.intervals import FEWEST, enough
from foldline_bench.tuning.candidates import OURS, own_figures
from foldline_bench.tuning.carry_over import CarryOver, HeldOutPart, warnings
from foldline_bench.tuning.front import ResampledFigure, SettingFigures
from foldline_bench.tuning.search import ExcludedSession, TuneResult
from foldline_bench.tuning.values import Conditions, Setting

__all__ = ["SCHEMA", "agents_yaml", "block_comments", "left_out_lines", "plain_report", "print_found"]


SCHEMA: Final = 1
"""That of the JSON report: it goes up when a field changes its meaning or goes away."""

# The characters of a part's name in the table.
_PART_CHARS: Final = 24

_RANGES: Final = "ranges"
_NEAR: Final = "near lines"
_ARRIVAL: Final = "on arrival"
_OWN: Final = "trigger, landing and keep"


def print_found(tuned: TuneResult, conditions: Conditions) -> None:
    """Print the table of results, the meaning of its columns, and the choice."""
    console = terminal()
    for line in _about(tuned, conditions):
        console.print(line, soft_wrap=True)
    console.print()
    columns = _columns(tuned)
    there = {column.group for column in columns}
    gone = print_table(console, columns, tuple(group for group in (_RANGES, _ARRIVAL, _OWN, _NEAR) if group in there))
    console.print()
    for line in _legend(tuned, gone):
        console.print(line, style="dim")
    console.print()
    console.print(f"chosen: {tuned.chosen.setting.name}\n({tuned.why})\n", soft_wrap=True)
    if tuned.carry_over is not None:
        _print_carry_over(console, tuned.carry_over)


def _print_carry_over(console: Any, found: CarryOver) -> None:
    """Print the figures of each part under the choice that was made without it, and what they warn of."""
    console.print("Each part of the sessions with the setting that was chosen without it")
    console.print(f"({found.parts.about()})\n", soft_wrap=True)
    rows = [
        *(_carried(_part(one), one.tuned, one.left_out) for one in found.held_out),
        _carried("all sessions", found.tuned, found.left_out),
    ]
    heads = ("left out", "with reads\nothers", "", "\nhere", "", "far\nothers", "", "\nhere", "")
    columns = [
        Column(head, cells, left=not number, group="" if head else _RANGES)
        for number, (head, cells) in enumerate(zip(heads, list(zip(*rows, strict=True)), strict=True))
        if head or set(cells) != {DASH}
    ]
    print_table(console, columns, (_RANGES,))
    console.print()
    said = warnings(found)
    for line in said:
        console.print(f"warning: {line}", soft_wrap=True)
    if not said:
        console.print("The choice carries over: no part is worse than the others lead to expect.")
    console.print()


def _part(one: HeldOutPart) -> str:
    names = ", ".join(name.rpartition("/")[2] or "unknown" for name in one.sources)
    return plain_line(f"{len(one.sessions)} of {names}", _PART_CHARS)


def _carried(name: str, tuned: SettingFigures, left_out: SettingFigures) -> tuple[str, ...]:
    return (
        name,
        share(tuned.with_rereads.value),
        _interval(tuned.with_rereads),
        share(left_out.with_rereads.value),
        _interval(left_out.with_rereads),
        share(tuned.far.value if tuned.far else None),
        _interval(tuned.far),
        share(left_out.far.value if left_out.far else None),
        _interval(left_out.far),
    )


def left_out_lines(left_out: Sequence[ExcludedSession]) -> Iterator[str]:
    """A line for each session that was left out."""
    return (plain_line(f"left out: {one.place}: {one.reason}", 400) for one in left_out)


def _about(tuned: TuneResult, conditions: Conditions) -> Iterator[str]:
    requests = sum(tuned.requests.values())
    yield (
        f"{plural(len(tuned.looks), 'session')}, {plural(requests, 'request')}; window {conditions.window:,} tokens; "
        f"{_prices(tuned, conditions)}"
    )
    yield f"{tuned.settings} settings tried; {tuned.unfit} of them broke the window or a rule"
    yield (
        f"{tuned.replayed + tuned.known:,} of all {plural(tuned.whole, 'replay')} needed: "
        f"{tuned.replayed:,} run, {tuned.known:,} known from before"
    )
    yield from left_out_lines(tuned.left_out)


def _prices(tuned: TuneResult, conditions: Conditions) -> str:
    """The model whose prices make the bill, or the models without a price."""
    models = {conditions.model or look.model or "": conditions.model_of(look) for look in tuned.looks}
    unknown = sorted(name for name, model in models.items() if model.input_usd_per_million is None)
    if unknown == [""]:
        return "no price is known, since no model is named"
    shown = ", ".join(plain_line(name or "sessions without a model", 60) for name in unknown or sorted(models))
    return f"no price is known of {shown}" if unknown else f"prices of {shown}"


def _columns(tuned: TuneResult) -> list[Column]:
    rows = [_row(figures, chosen=figures is tuned.chosen) for figures in tuned.front]
    cells = list(zip(*rows, _row(tuned.none, chosen=False), strict=True))
    unit = _unit(tuned)
    heads = ("", "policy", "fold\nat", "land\nat", "keep", "on\narrival", "with\nreads", "", "near", "far", "", unit)
    groups = {2: _OWN, 3: _OWN, 4: _OWN, 5: _ARRIVAL, 7: _RANGES, 8: _NEAR, 10: _RANGES}
    return [
        Column(head, column, left=number < 2, group=groups.get(number, ""))
        for number, (head, column) in enumerate(zip(heads, cells, strict=True))
        if groups.get(number) != _RANGES or set(column) != {DASH}
    ]


def _unit(tuned: TuneResult) -> str:
    """The heading of the cost column: without prices it is no money."""
    return "tokens" if tuned.none.reply_usd is None else "bill"


def _row(figures: SettingFigures, *, chosen: bool) -> tuple[str, ...]:
    setting = figures.setting
    own: tuple[str, ...] = ("", "", "", "")
    if setting.policy in OURS:
        values = own_figures(setting.value())
        arrival = f"{values['arrival_share']:.2f}+{values['arrival_of_result']:.2f}"
        own = (*(share(values[name]) for name in ("trigger", "landing", "keep")), arrival)
    return (
        ">" if chosen else "",
        setting.policy,
        *own,
        share(figures.with_rereads.value),
        _interval(figures.with_rereads),
        share(figures.near_line),
        share(figures.far.value if figures.far else None),
        _interval(figures.far),
        _bill(figures),
    )


def _interval(span: ResampledFigure | None) -> str:
    return DASH if span is None or not span.is_conclusive else f"{span.low:.2f}-{span.high:.2f}"


def _bill(figures: SettingFigures) -> str:
    """The whole bill in money; without prices, the cost of the input in tokens at the full price."""
    if figures.input_usd is None or figures.reply_usd is None:
        return compact(figures.cost_tokens)
    return money(figures.input_usd.value + figures.reply_usd)


def _legend(tuned: TuneResult, gone: Sequence[str]) -> Iterator[str]:
    none = tuned.none
    yield "with reads: input price with prompt caching, all sessions together, against"
    yield "      none, and one more request for each line that has to be read again"
    yield "near  of lines that replies refer to and that stood near, the share still sent"
    yield "far   of names in replies that last stood far back, the share still sent:"
    mean = f"      mean over the {plural(tuned.telling, 'session')} with 3 or more"
    ranges = not enough(none.sessions) or _RANGES in gone
    yield mean if ranges else f"{mean}; ranges are 95 % intervals"
    if not enough(none.sessions):
        yield f"no ranges: they are told of {FEWEST} sessions or more"
    if none.reply_usd is not None:
        yield "bill  expected for these sessions together, at the catalogue's prices;"
        yield f"      {_replies(tuned)}"
    else:
        yield "tokens: input at the full price, for no price is known; name a --model"
    if _ARRIVAL not in gone:
        yield "on arrival: what a result may take of the room that is left, + of its own size"
    if gone:
        yield f"no room here for {', '.join(gone)}; a wider terminal or --json has them"
    if none.over_budget:
        yield f"none: {none.over_budget:,} of its requests would not fit into the window"
    if not tuned.telling:
        yield "no session has far references enough: only the cost was compared"


def _replies(tuned: TuneResult) -> str:
    """The replies' share of a bill. They are the recorded ones, so only the price step of long requests changes it."""
    found = [each.reply_usd for each in (*tuned.front, tuned.none) if each.reply_usd is not None]
    least, most = money(min(found)), money(max(found))
    if least == most:
        return f"{least} of it is for the replies, the same for all"
    return f"{least} to {most} of it is for the same replies, dearer to long requests"


def block_comments(tuned: TuneResult, conditions: Conditions) -> tuple[str, ...]:
    """Comment lines above the settings: how they were measured, and with what result."""
    best = tuned.chosen
    cost, far = f"{best.cost.value:.2f}", "not measurable" if best.far is None else f"{best.far.value:.2f}"
    return (
        f"foldline tune: {plural(len(tuned.looks), 'session')} at a window of {conditions.window:,} tokens.",
        f"Input costs {cost} of no management, {best.with_rereads.value:.2f} with re-reads; far recall {far}.",
        "Measured without a model that sums up: hence no summariser.",
    )


def plain_report(tuned: TuneResult, conditions: Conditions, block: str, *, min_far: float | None) -> dict[str, Any]:
    """The results as plain JSON values; docs/tune.md documents each."""
    return {
        "schema": SCHEMA,
        "made": {"date": datetime.now(UTC).isoformat(timespec="seconds"), "foldline": version("foldline")},
        "window": conditions.window,
        "max_output_tokens": conditions.max_output_tokens,
        "exact": conditions.exact,
        "min_far": min_far,
        "models": sorted({conditions.model or look.model or "" for look in tuned.looks}),
        "sessions": [
            {
                "place": look.source.shown,
                "sha256": look.sha256,
                "name": look.name,
                "requests": tuned.requests[look.sha256],
            }
            for look in tuned.looks
        ],
        "left_out": [{"place": one.place, "reason": one.reason} for one in tuned.left_out],
        "replays": {"run": tuned.replayed, "known": tuned.known, "all_on_all": tuned.whole, "aside": tuned.aside},
        "telling": tuned.telling,
        "settings": tuned.settings,
        "unfit": tuned.unfit,
        "none": tuned.none.as_json(),
        "front": [figures.as_json() for figures in tuned.front],
        "chosen": {**tuned.chosen.as_json(), "why": tuned.why},
        "carry_over": None if tuned.carry_over is None else tuned.carry_over.as_json(),
        "agents_yaml": block,
    }


def agents_yaml(setting: Setting, *, model: str | None, window: int | None, comments: tuple[str, ...] = ()) -> str:
    """Return an `agents.yaml` for an agent "main" with this setting; model and window only if they were named.

    `comments` are lines at its head.
    """
    # Its summariser is off because it was off in the replays: with one, the figures would not hold.
    named: dict[str, Json] = {}
    if model is not None:
        named["name"] = model
    if window is not None:
        named["max_input_tokens"] = window
    main: dict[str, Json] = {
        **({"model": named} if named else {}),
        "policy": {"name": setting.policy, **dict(setting.settings)},
        "summariser": False,
        **({"session": {"context": dict(setting.context)}} if setting.context else {}),
    }
    lines = [*(f"# {line}" for line in comments), *_lines({"agents": {"main": main}})]
    return "\n".join(lines) + "\n"


def _lines(block: Mapping[str, Json], indent: str = "") -> Iterator[str]:
    """Yield YAML of nested blocks."""
    # Values are written as JSON, a subset of YAML: no quoting rules of our own, and no dependency.
    for key, value in block.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _lines(value, f"{indent}  ")
        else:
            yield f"{indent}{key}: {'off' if value is False and key == 'summariser' else json.dumps(value)}"
