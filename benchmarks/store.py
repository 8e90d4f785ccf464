"""The result files: a list of rows, and beside it what machine and versions they come from."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from points import Point

__all__ = ["describe", "device_name", "load", "merge", "point_key", "write"]

Row = dict[str, Any]
_FIELDS = ("structure", "K", "depth", "replicas", "batch", "infer_batch")


def load(path: Path) -> list[Row]:
    return json.loads(path.read_text()) if path.exists() else []


def point_key(row: Row) -> tuple:
    """What a row is about; precision is a choice of einet's alone."""
    precision = row["precision"] if row["implementation"] == "einet" else None
    return (row["implementation"], *(row[field] for field in _FIELDS), precision)


def merge(rows: Sequence[Row], new: Row) -> list[Row]:
    """The rows with a new one, which replaces the old one of its implementation and point."""
    key = point_key(new)
    if not any(point_key(row) == key for row in rows):
        return [*rows, new]
    return [new if point_key(row) == key else row for row in rows]


def missing(rows: Sequence[Row], name: str, points: Iterable[Point]) -> list[Point]:
    """Those points of an implementation that no row is about yet."""
    known = {point_key(row) for row in rows}
    return [
        point
        for point in points
        if point_key({"implementation": name, **point.as_row()}) not in known
    ]


def write(
    path: Path, rows: Sequence[Row], machine: Row | None = None, append: bool = False
) -> None:
    """Write rows, one a line; and the machine beside them in NAME-machine.json."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n  " + ",\n  ".join(json.dumps(row) for row in rows) + "\n]\n")
    if machine is not None:
        sibling = path.with_name(f"{path.stem}-machine.json")
        calls = json.loads(sibling.read_text())["calls"] if append and sibling.exists() else []
        # One entry for each command line: separate calls fill one file.
        kept = [call for call in calls if call["command"] != machine["command"]]
        sibling.write_text(json.dumps({"calls": [*kept, machine]}, indent=2) + "\n")


def device_name(device: str) -> str:
    """The GPU's name, or the CPU's."""
    if device == "cuda":
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else "no CUDA device"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def describe(device: str, absent: dict[str, str]) -> Row:
    """The machine, the versions and the command line of this call."""
    import torch

    result: Row = {
        "command": " ".join(("python benchmarks/efficiency.py", *sys.argv[1:])),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": device_name(device),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": _version("triton"),
        "absent": absent,
    }
    if device == "cuda" and torch.cuda.is_available():
        result["cuda"] = torch.version.cuda
        result["device_memory_mib"] = torch.cuda.get_device_properties(0).total_memory // 2**20
    return result


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
