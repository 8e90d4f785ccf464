"""What the pages say about a GPU: ratios to the peers, and a table of training steps."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from comparison_tables import TITLES, markdown, number
from points import GOALS, Point

__all__ = ["faster_than_pyjuice", "peer_precision", "short_table", "summary", "table"]

NAMES = ("einet", "pyjuice", "spflow-adam", "spflow-em", "baseline")
# Those that others publish, of which the front page tells.
_PUBLISHED = NAMES[:-1]

Row = dict


def summary(rows: Sequence[Row]) -> str:
    """How many times less the study's points cost here than with each of the others."""
    ours = _by_point(rows, "einet")
    juice = _by_point(rows, "pyjuice")
    others = [_by_point(rows, name) for name in ("baseline", "spflow-em", "spflow-adam")]
    fastest = sum(
        all(row["train_ms"] <= other[point]["train_ms"] for other in others if point in other)
        for point, row in juice.items()
    )
    failed = sorted(row["K"] for row in rows if row["implementation"] == "pyjuice" and row["error"])
    failures = f" (it fails at K {_listed(failed)})" if failed else ""
    return (
        f"Of the others PyJuice trains in the least time at {fastest} of its {len(juice)} points"
        f"{failures}. A training step takes {_span(ours, juice, 'train_ms')} less than with it, "
        f"with {_span(ours, juice, 'peak_mib')} less memory; the log-likelihoods of 100 samples "
        f"take {_span(ours, juice, 'infer_ms')} less. Against SPFlow's Einet (Adam) a step is "
        f"{_span(ours, others[2], 'train_ms')} faster, against a log-domain network that stores "
        f"its products {_span(ours, others[0], 'train_ms')}."
    )


def peer_precision(sweep: Sequence[Row], goals: Sequence[Row]) -> str:
    """What PyJuice computes in, and how large its blocks of nodes are."""
    reduced = [
        sorted(
            {row["K"] for row in rows if row["implementation"] == "pyjuice" and _is_reduced(row)}
        )
        for rows in (sweep, goals)
    ]
    sizes = [row["K"] for row in sweep if row["implementation"] == "pyjuice"]
    odd = sorted({size for size in sizes if size & (size - 1)})
    blocks = [size & -size for size in odd]
    share = sum(size in odd for size in sizes)
    return (
        "`einet`'s products keep the bits of float32. PyJuice computes in float32 too at all "
        f"points but K {_listed(reduced[0])} (and {_listed(reduced[1])} in the larger table), "
        f"where its kernels take bf16 or tf32. K {_listed(odd)} are no powers of two: they leave "
        f"PyJuice blocks of {_listed(blocks)} nodes, with which it is slow, and {share} of the "
        f"{len(sizes)} points have such a K."
    )


def table(rows: Sequence[Row]) -> str:
    """Milliseconds of a training step and peak MiB at the points with a goal."""
    return _compared(rows, NAMES, every=True)


def short_table(rows: Sequence[Row]) -> str:
    """The same of libraries that can be installed, at points where all of them have a number."""
    return _compared(rows, _PUBLISHED, every=False)


def _compared(rows: Sequence[Row], names: Sequence[str], every: bool) -> str:
    lines = []
    for goal in GOALS:
        if goal.point.precision != "highest":
            continue
        found = []
        for name in names:
            of = [row for row in rows if row["implementation"] == name]
            found.append(next((row for row in of if _is_about(row, goal.point)), None))
        if every or all(row is not None and not row["error"] for row in found):
            cells = [
                _cell(row, bold=name == "einet") for name, row in zip(names, found, strict=True)
            ]
            lines.append((_workload(goal.point), *cells))
    return markdown(("workload", *(TITLES[name] for name in names)), lines)


def faster_than_pyjuice(rows: Sequence[Row]) -> str:
    """Where the larger table has a peer with a faster training step than PyJuice's."""
    juice = _by_point(rows, "pyjuice")
    lost = []
    for point, row in juice.items():
        others = {name: _by_point(rows, name).get(point) for name in NAMES[2:]}
        faster = [
            f"{TITLES[name]} ({number(other['train_ms'])} ms)"
            for name, other in others.items()
            if other is not None and other["train_ms"] < row["train_ms"]
        ]
        if faster:
            lost.append(f"at K {row['K']}, batch {row['batch']} {' and '.join(faster)}")
    if not lost:
        return "Of the others, PyJuice has the fastest training step at all of these points."
    return f"PyJuice is not always the fastest of the others here: {'; '.join(lost)} train faster."


def _by_point(rows: Iterable[Row], name: str) -> dict[tuple, Row]:
    """The rows of an implementation that did not fail."""
    fields = ("K", "depth", "replicas", "batch")
    return {
        tuple(row[field] for field in fields): row
        for row in rows
        if row["implementation"] == name and not row["error"]
    }


def _span(ours: dict[tuple, Row], theirs: dict[tuple, Row], field: str) -> str:
    """Smallest, largest and median ratio over the points that both have."""
    ratios = [row[field] / ours[point][field] for point, row in theirs.items() if point in ours]
    low, high, middle = min(ratios), max(ratios), statistics.median(ratios)
    return f"{_two(low)} to {_two(high)} times (median {number(middle)})"


def _two(value: float) -> str:
    """Two digits or all of the integer part."""
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _listed(values: Sequence[int]) -> str:
    *first, last = map(str, values)
    return f"{', '.join(first)} and {last}" if first else last


def _is_reduced(row: Row) -> bool:
    return row["precision"] != "float32"


def _is_about(row: Row, point: Point) -> bool:
    """Whether a row is about the point; einet's precision is none of a peer's concern."""
    precision = row["precision"] if row["implementation"] == "einet" else "highest"
    return Point.from_row({**row, "precision": precision}) == point


def _workload(point: Point) -> str:
    if not point.is_random_trees:
        return f"Poon–Domingos 32×32×3, Δ 8, K {point.num_sums}, batch {point.batch}"
    parts = [f"depth {point.depth}"] if point.depth != Point.depth else []
    parts += [f"R {point.replicas}"] if point.replicas != Point.replicas else []
    return ", ".join([*parts, f"K {point.num_sums}", f"batch {point.batch}"])


def _cell(row: Row | None, bold: bool) -> str:
    if row is None:
        return "not measured"
    if row["error"]:
        return "–" if row["error"].startswith("unsupported") else row["error"]
    cell = f"{number(row['train_ms'])} · {number(row['peak_mib'])}"
    return f"**{cell}**" if bold else cell
