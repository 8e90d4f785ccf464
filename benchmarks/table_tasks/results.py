"""Rows of results: their keys, their file, and the tables of them that are printed."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import store
from comparison_tables import markdown, number

from table_tasks.draws import devices
from table_tasks.recipe import depends, is_present

__all__ = ["KEY", "Measured", "is_stored", "keep", "merge", "published", "put", "summary"]

Row = dict[str, Any]
#: What a row is about: a new one replaces that of the same key.
KEY = ("table", "task", "method", "metric", "seed")
#: Of TabPC and TabDiff, as their papers report them; quoted, not measured here.
_PUBLISHED = (
    ("adult", ".855", ".841", ".986", ".985", "272", "39"),
    ("default", ".262", ".591", ".950", ".973", "78", "5"),
    ("shoppers", ".894", ".736", ".982", ".981", "51", "5"),
    ("magic", ".860", ".773", ".983", ".992", "39", "1.7"),
    ("beijing", ".570", ".772", ".978", ".974", "582", "25"),
)


class Measured(NamedTuple):
    """One number: what it is of, the number, and the seconds of the work that it took."""

    metric: str
    value: float
    seconds: float


def merge(rows: Sequence[Row], new: Row) -> list[Row]:
    """The rows with a new one, in the place of an earlier one of its key."""
    key = [new[field] for field in KEY]
    kept = [[row[field] for field in KEY] == key for row in rows]
    if not any(kept):
        return [*rows, new]
    return [new if same else row for row, same in zip(rows, kept, strict=True)]


def keep(
    path: Path | None,
    new: Sequence[Row],
    device: str,
    absent: dict[str, str],
    drawn: Path | None = None,
) -> None:
    """Put rows into their file, and the machine and command line beside them."""
    if path is None:
        return
    arguments = [Path(part).name if "/" in part else part for part in sys.argv[1:]]
    machine = store.describe(device, absent)
    machine["command"] = " ".join(("python benchmarks/tables.py", *arguments))
    if drawn is not None:
        machine["drawn on"] = devices(drawn)
    put(path, new, [machine])


def put(path: Path, new: Sequence[Row], calls: Sequence[Row]) -> None:
    """Put rows into a file, in the place of earlier ones, and the calls they are of beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        # Two runs may fill one file at the same time, and neither loses a row of the other.
        fcntl.flock(folder, fcntl.LOCK_EX)
        rows = store.load(path)
        for row in new:
            rows = merge(rows, row)
        # No table of a task has numbers of two recipes.
        renewed = {(row["task"], row["table"]) for row in new if depends(row) and is_present(row)}
        rows = [
            row for row in rows if is_present(row) or (row["task"], row["table"]) not in renewed
        ]
        for machine in calls:
            store.write(path, rows, machine, append=True)
    finally:
        os.close(folder)


def is_stored(rows: Sequence[Row], task: str, table: str, method: str, seed: int) -> bool:
    """Whether there is a row of this measurement, of the present recipe where that matters."""
    about = (task, table, method, seed)
    return any(
        (row["task"], row["table"], row["method"], row["seed"]) == about and is_present(row)
        for row in rows
    )


def summary(rows: Sequence[Row]) -> str:
    """A table for each task and metric: means over the seeds, a line for each table."""
    parts = []
    for task in dict.fromkeys(row["task"] for row in rows):
        some = [row for row in rows if row["task"] == task]
        for metric in dict.fromkeys(row["metric"] for row in some):
            of_metric = [row for row in some if row["metric"] == metric]
            methods = list(dict.fromkeys(row["method"] for row in of_metric))
            lines = [
                (name, *(_cell(of_metric, name, method) for method in methods))
                for name in dict.fromkeys(row["table"] for row in of_metric)
            ]
            parts += [f"{task}: {metric}", markdown(("table", *methods), lines)]
    return "\n\n".join(parts)


def _cell(rows: Sequence[Row], table: str, method: str) -> str:
    values = [row["value"] for row in rows if row["table"] == table and row["method"] == method]
    if not values:
        return ""
    return f"{number(sum(values) / len(values))} ({len(values)})"


def published() -> str:
    """The published figures of the synthetic data's protocol, marked as quoted."""
    header = (
        "table", "C2ST TabPC", "C2ST TabDiff", "Trend TabPC", "Trend TabDiff",
        "TabPC trains s", "TabPC samples s",
    )  # fmt: skip
    title = "Quoted from the papers of TabPC and TabDiff, measured elsewhere on a GPU:"
    return f"{title}\n\n{markdown(header, _PUBLISHED)}"
