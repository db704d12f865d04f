"""Turns the reports of clients into comparable figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from foldline.replay.results import percentile
from foldline_bench.proxy.load import LoadReport

__all__ = ["DIRECT", "RoundReport", "RouteFigures", "figures", "table"]

DIRECT: Final = "direct"
"""The route without a proxy, the baseline of the others."""


@dataclass(frozen=True, slots=True)
class RoundReport:
    """One route under one load, once: the clients' report, and the processor time of each process."""

    way: str
    phase: str
    round: int
    seen: LoadReport
    cpu_seconds: Mapping[str, float | None] = field(default_factory=dict)
    peak_rss_bytes: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteFigures:
    """One way under one load, over all rounds.

    Percentiles are over the requests of all rounds, `rate` (requests per second) is the median of the rounds.
    `added_ms` are differences to the same percentiles of the direct way, None where there is none. No percentiles stand
    where no request that began in time was answered. `over_ms`: what the whole answer took longer than the upstream
    planned. `cpu_ms` is the processor time per request of the proxy.
    """

    way: str
    phase: str
    requests: int
    faults: dict[str, int]
    late: int
    rate: float
    rates: tuple[float, ...]
    first_byte_ms: dict[str, float]
    added_ms: dict[str, float] | None
    over_ms: dict[str, float]
    cores: dict[str, float]
    cpu_ms: float | None
    peak_rss_mib: float | None
    body_bytes: float

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def figures(measured: Iterable[RoundReport]) -> list[RouteFigures]:
    """Return one row per phase and route, in the order of their first measurement. O(n log n)."""
    # Percentiles over the requests of all rounds: a mean of percentiles is no percentile of anything.
    kinds: dict[tuple[str, str], list[RoundReport]] = {}
    for one in measured:
        kinds.setdefault((one.phase, one.way), []).append(one)
    direct = {phase: _shares_ms(_first(rounds)) for (phase, way), rounds in kinds.items() if way == DIRECT}
    return [_row(way, phase, rounds, direct.get(phase)) for (phase, way), rounds in kinds.items()]


def _first(rounds: Sequence[RoundReport]) -> list[float]:
    return [seconds for one in rounds for seconds in one.seen.first_byte_seconds]


def _shares_ms(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {}
    return {name: percentile(seconds, share) * 1e3 for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))}


def _row(way: str, phase: str, rounds: Sequence[RoundReport], direct: dict[str, float] | None) -> RouteFigures:
    requests = sum(one.seen.requests for one in rounds)
    first = _shares_ms(_first(rounds))
    compared = direct and way != DIRECT and first
    rates = tuple(one.seen.requests / one.seen.seconds for one in rounds)
    faults: Counter[str] = Counter()
    for one in rounds:
        faults.update(one.seen.faults)
    seconds: dict[str, float] = {}
    for one in rounds:
        for name, used in one.cpu_seconds.items():
            seconds[name] = seconds.get(name, 0.0) + (used or 0.0)
    # Processor time covers the whole load including the warm-up, so it is divided by the requests of both.
    lasted = sum(one.seen.lasted_seconds for one in rounds)
    answered = sum(one.seen.answered for one in rounds)
    peak = [one.peak_rss_bytes.get("proxy") or 0 for one in rounds]
    return RouteFigures(
        way=way,
        phase=phase,
        requests=requests,
        faults=dict(faults),
        late=sum(one.seen.late for one in rounds),
        rate=median(rates),
        rates=rates,
        first_byte_ms=first,
        added_ms={name: first[name] - direct[name] for name in first} if compared and direct else None,
        over_ms=_shares_ms([each for one in rounds for each in one.seen.over_seconds]),
        cores={name: used / lasted for name, used in seconds.items()} if lasted else {},
        cpu_ms=seconds["proxy"] / answered * 1e3 if answered and "proxy" in seconds else None,
        peak_rss_mib=max(peak) / 2**20 if any(peak) else None,
        body_bytes=sum(one.seen.sent_bytes for one in rounds) / requests if requests else 0.0,
    )


def _number(value: float | None, width: int, digits: int = 1) -> str:
    return f"{value:>{width},.{digits}f}" if value is not None else f"{'–':>{width}}"


def table(rows: Sequence[RouteFigures]) -> str:
    """A table for people: one block a phase, and the ratio between the proxies."""
    lines: list[str] = []
    for phase in dict.fromkeys(row.phase for row in rows):
        here = [row for row in rows if row.phase == phase]
        lines += ["", f"{phase}: milliseconds to the first byte, without what the upstream waits by itself"]
        lines.append(
            f"{'way':<20}{'p50':>8}{'p95':>8}{'p99':>8}{'added p50':>11}{'p95':>8}{'p99':>8}{'requests/s':>12}"
            f"{'requests':>10}{'faults':>8}{'late':>6}{'CPU ms':>8}{'MiB':>7}"
        )
        for row in here:
            first, added = row.first_byte_ms, row.added_ms or {}
            lines.append(
                f"{row.way:<20}{''.join(_number(first.get(name), 8) for name in ('p50', 'p95', 'p99'))}"
                f"{_number(added.get('p50'), 11)}{_number(added.get('p95'), 8)}{_number(added.get('p99'), 8)}"
                f"{_number(row.rate, 12)}{row.requests:>10,}{sum(row.faults.values()):>8,}{row.late:>6,}"
                f"{_number(row.cpu_ms, 8, 2)}{_number(row.peak_rss_mib, 7, 0)}"
            )
        used = (f"{row.way}: " + ", ".join(f"{name} {cores:.2f}" for name, cores in row.cores.items()) for row in here)
        lines.append("cores in use – " + "; ".join(used))
        lines += [f"faults of {row.way}: {row.faults}" for row in here if row.faults]
    return "\n".join((*lines, ""))
