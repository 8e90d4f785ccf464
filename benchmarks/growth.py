"""How time and memory grow: exponents of power laws fitted to measured rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from points import Point, is_on_sweep

__all__ = ["exponents", "fit"]

Row = dict[str, Any]
MEASURES = ("train_ms", "peak_mib", "infer_ms")


def fit(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Slope and R² of log y against log x (least squares)."""
    logs = [(math.log(a), math.log(b)) for a, b in zip(x, y, strict=True)]
    count = len(logs)
    mean_x, mean_y = (sum(values) / count for values in zip(*logs, strict=True))
    xx = sum((a - mean_x) ** 2 for a, _ in logs)
    xy = sum((a - mean_x) * (b - mean_y) for a, b in logs)
    yy = sum((b - mean_y) ** 2 for _, b in logs)
    return xy / xx, (xy**2 / (xx * yy) if yy > 0 else 1.0)


# The swept parameter, what cost is fitted against, and how to read it off a point.
_LAWS: tuple[tuple[str, str, Callable[[Point], float]], ...] = (
    ("K", "K", lambda point: point.num_sums),
    ("D", "2^D, the leaves of a tree", lambda point: 2**point.depth),
    ("R", "R", lambda point: point.replicas),
    ("batch", "batch", lambda point: point.batch),
)


def exponents(rows: Sequence[Row]) -> list[Row]:
    """For each implementation, precision, parameter and measure: the exponent over all points, and
    over the largest third of them (three at least), where fixed costs count least."""
    result = []
    kinds = sorted({_kind(row) for row in rows})
    for implementation, precision in kinds:
        mine = [
            (Point.from_row(row), row)
            for row in rows
            if _kind(row) == (implementation, precision) and not row["error"]
        ]
        for name, against, value in _LAWS:
            for batch, infer_batch in sorted(_batches(mine, name)):
                line = {
                    value(point): row
                    for point, row in mine
                    if _belongs(point, name, batch, infer_batch)
                }
                if len(line) < 3:
                    continue
                x = sorted(line)
                head = {"implementation": implementation, "precision": precision}
                head |= {"parameter": name, "against": against, "batch": batch}
                for measure in MEASURES:
                    if measure == "infer_ms" and name == "batch":
                        continue  # evaluation always takes the same batch
                    y = [line[key][measure] for key in x]
                    result.append(head | {"measure": measure} | _both(x, y))
    return result


def _kind(row: Row) -> tuple[str, str]:
    """Implementation and precision; a peer may change the latter with K."""
    name = row["implementation"]
    return name, row["precision"] if name == "einet" else ""


def _batches(mine: Sequence[tuple[Point, Row]], name: str) -> set[tuple[int | None, int]]:
    if name == "batch":
        return {(None, point.infer_batch) for point, _ in mine}
    return {(point.batch, point.infer_batch) for point, _ in mine}


def _belongs(point: Point, name: str, batch: int | None, infer_batch: int) -> bool:
    if point.infer_batch != infer_batch:
        return False
    if name == "batch":
        return all(is_on_sweep(point, sweep) for sweep in ("K", "D", "R"))
    return point.batch == batch and is_on_sweep(point, name)


def _both(x: Sequence[float], y: Sequence[float]) -> Row:
    tail = max(3, len(x) // 3)
    overall, quality = fit(x, y)
    return {
        "exponent": round(overall, 3),
        "r2": round(quality, 3),
        "exponent_largest": round(fit(x[-tail:], y[-tail:])[0], 3),
        "largest": list(x[-tail:]),
        "x": list(x),
        "y": list(y),
    }
