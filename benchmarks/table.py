"""What a measurement found: rows with the median, the spread, the reference measured between them, and the limit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median, quantiles


@dataclass(frozen=True)
class Row:
    """One thing that was measured. `limit` and `aim` bound the ratio, or the value where there is no reference."""

    what: str
    value: float
    low: float
    high: float
    unit: str = "ms"
    reference: str = ""
    reference_value: float = 0.0
    ratio: float | None = None
    limit: float | None = None
    aim: float | None = None

    @property
    def is_over(self) -> bool:
        return self.limit is not None and self._judged > self.limit

    @property
    def verdict(self) -> str:
        if self.limit is None:
            return ""
        if self.is_over:
            return "MISSED"
        return "ok, aim missed" if self.aim is not None and self._judged > self.aim else "ok"

    @property
    def _judged(self) -> float:
        return self.value if self.ratio is None else self.ratio


@dataclass(frozen=True)
class Group:
    """The rows of one module, in the order they are shown."""

    name: str
    title: str
    note: str
    rows: list[Row] = field(default_factory=list)


def compare(
    what: str,
    ours: Sequence[float],
    reference: str,
    theirs: Sequence[float],
    *,
    limit: float | None = None,
    aim: float | None = None,
) -> Row:
    """Seconds against seconds. The ratio is the median of the pairs': a change of load in between cancels out."""
    ratio = median(one / other for one, other in zip(ours, theirs, strict=True))
    return Row(
        what, *_spread([1e3 * one for one in ours]), "ms", reference, 1e3 * median(theirs), ratio, limit=limit, aim=aim
    )


def state(what: str, seconds: Sequence[float], *, limit: float | None = None) -> Row:
    """Seconds by themselves."""
    return Row(what, *_spread([1e3 * one for one in seconds]), "ms", limit=limit)


def state_size(what: str, sizes: Sequence[float], *, limit: float | None = None) -> Row:
    """Bytes by themselves, shown as MB (10^6)."""
    return Row(what, *_spread([one / 1e6 for one in sizes]), "MB", limit=limit)


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, first and last decile."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    tenths = quantiles(values, n=10, method="inclusive")
    return median(values), tenths[0], tenths[-1]


HEAD = ("measured", "median", "10 % … 90 %", "beside", "its median", "ratio", "limit", "")


def render_cells(row: Row) -> tuple[str, ...]:
    return (
        row.what,
        f"{_number(row.value)} {row.unit}",
        f"{_number(row.low)} … {_number(row.high)}",
        row.reference,
        f"{_number(row.reference_value)} {row.unit}" if row.reference else "",
        _ratio(row.ratio),
        _limit(row),
        row.verdict,
    )


def render_text(group: Group) -> str:
    """For a terminal."""
    table = [HEAD, *map(render_cells, group.rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
    return "\n".join([group.title, "-" * len(group.title), *lines])


def render_markdown(group: Group) -> str:
    """For docs/performance.md."""
    lines = [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    lines += [f"| {' | '.join(render_cells(row))} |" for row in group.rows]
    return "\n".join([f"## {group.title}", "", group.note, "", *lines])


def dump(group: Group) -> str:
    return json.dumps(asdict(group))


def load(text: str) -> Group:
    raw = json.loads(text)
    return Group(raw["name"], raw["title"], raw["note"], [Row(**row) for row in raw["rows"]])


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _ratio(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"1/{1 / ratio:.1f}" if ratio < 0.5 else f"{ratio:.2f} x"


def _limit(row: Row) -> str:
    if row.limit is None:
        return ""
    if row.ratio is None:
        return f"{row.limit:g} {row.unit}"
    return f"1/{1 / row.limit:g}" if row.limit < 0.5 else f"{row.limit:g} x"
