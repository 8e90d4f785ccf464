"""What the efficiency study prints: a line a row, and Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from comparison_tables import markdown, number
from points import GOALS, Point

__all__ = ["goals", "growth", "line", "sweep"]

Row = dict[str, Any]


def line(row: Row) -> str:
    """One measured row, for the screen."""
    head = f"{row['implementation']}: {Point.from_row(row)}: "
    if row["error"]:
        return head + row["error"]
    text = (
        f"train {row['train_ms']:.4g} ms, peak {row['peak_mib']:.4g} MiB, "
        f"infer {row['infer_ms']:.4g} ms, {row['parameters']:,} parameters"
    )
    return head + text + (f" ({row['note']})" if row.get("note") else "")


def sweep(rows: Sequence[Row]) -> str:
    """Every row of the study."""
    header = ("implementation", "precision", "K", "D", "R", "batch", "parameters")
    return markdown(
        (*header, "epoch s", "step ms", "peak MiB", "µs per sample"),
        (
            (
                row["implementation"],
                row["precision"],
                *(row[field] for field in ("K", "depth", "replicas", "batch")),
                f"{row['parameters']:,}" if row.get("parameters") else "",
                row["error"] or number(row["train_epoch_s"]),
                *(number(row[key]) for key in ("train_ms", "peak_mib", "infer_us_per_sample")),
            )
            for row in rows
        ),
    )


def goals(rows: Sequence[Row], device: str) -> str:
    """Goal against measured for `einet`, and what the peers need at the same points."""
    lines = []
    for goal in GOALS:
        for row in rows:
            ours = row["implementation"] == "einet"
            same = Point.from_row(row) == goal.point if ours else _same(row, goal.point)
            if not same:
                continue
            aims = (goal.train_ms, goal.peak_mib, goal.infer_ms)
            if not ours or device != "cuda":
                aims = (None,) * 3
            got = (row["train_ms"], row["peak_mib"], row["infer_ms"])
            cells = [_against(value, aim) for value, aim in zip(got, aims, strict=True)]
            if row["error"]:
                cells[0] = row["error"]
            lines.append((str(goal.point), row["implementation"], *cells))
    return markdown(("point", "implementation", "train ms", "peak MiB", "infer ms"), lines)


def growth(laws: Sequence[Row]) -> str:
    """The fitted exponents."""
    fields = ("implementation", "precision", "against", "batch", "measure", "exponent", "r2")
    return markdown(
        (*fields, "exponent at the largest"),
        (
            (
                *("" if law[field] is None else law[field] for field in fields),
                f"{law['exponent_largest']} ({law['largest'][0]:g} … {law['largest'][-1]:g})",
            )
            for law in laws
        ),
    )


def _same(row: Row, point: Point) -> bool:
    """Whether a peer's row is about the point; einet's precision is none of its concern."""
    return Point.from_row({**row, "precision": "highest"}) == point


def _against(value: float | None, aim: float | None) -> str:
    if value is None or aim is None:
        return number(value)
    return f"{number(value)} (goal {aim:g}: {'met' if value <= aim else 'missed'})"
