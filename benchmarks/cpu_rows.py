"""The results of `cpu.py`: the rounds of every point, their medians, and the files they lie in.

A row of the file holds the medians and, under `samples`, what every round measured: enough to go on
with a run that was interrupted, and to say how long another one will take.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = [
    "MEASURED",
    "Point",
    "Samples",
    "expected_seconds",
    "load",
    "samples_of",
    "summarise",
    "write",
]

MEASURED = ("train_ms", "forward_ms", "peak_mib")
LEARNT = ("log_likelihood_before", "log_likelihood_after")

Point = tuple[int, int, int]  # K, batch, threads
Samples = dict[tuple[str, Point], list[dict]]

# What a process takes besides its steps: imports, the building of models, compilation.
START_SECONDS = 12.0
# What one takes that runs out of memory, where nobody has written it down.
FAILURE_SECONDS = 60.0


def summarise(
    samples: Samples,
    points: Sequence[Point],
    versions: dict[str, str],
    absent: Iterable[str] = (),
) -> list[dict]:
    """One row for each point and implementation: medians over the rounds, or a note why none."""
    absent = tuple(absent)
    rows = []
    for point in points:
        for name in (*versions, *absent):
            history = samples.get((name, point), [])
            row: dict = {"implementation": name, "version": versions.get(name)}
            row |= dict(zip(("K", "batch", "threads"), point, strict=True))
            failure = next((sample for sample in history if "error" in sample), None)
            if failure is not None or not history:
                row |= dict.fromkeys((*MEASURED, "train_ms_per_sample"))
                none_yet = "absent" if name in absent else "not measured yet"
                row["note"] = none_yet if failure is None else failure["error"]
            else:
                for field in MEASURED:
                    row[field] = round(statistics.median(s[field] for s in history), 3)
                row["train_ms_per_sample"] = round(row["train_ms"] / row["batch"], 5)
                row["parameters"] = history[-1]["parameters"]
                row |= {field: round(history[-1][field], 3) for field in LEARNT}
            row["rounds"] = len(history)
            row["samples"] = [_rounded(sample) for sample in history]
            rows.append(row)
    return rows


def samples_of(rows: Iterable[dict], versions: dict[str, str]) -> Samples:
    """What the rows' rounds measured; other versions of an implementation do not count."""
    result: Samples = {}
    for row in rows:
        name = row["implementation"]
        if row.get("samples") and row["version"] == versions.get(name):
            result[name, (row["K"], row["batch"], row["threads"])] = list(row["samples"])
    return result


def expected_seconds(rows: Iterable[dict], repeats: int, budget: float) -> float:
    """How long one round of these rows takes, by their samples or else by their medians."""
    total = 0.0
    for row in rows:
        durations = [s["process_s"] for s in row.get("samples", ()) if "process_s" in s]
        if durations:
            total += statistics.median(durations)
        elif row["train_ms"] is not None:
            train, forward = (row[field] / 1e3 for field in ("train_ms", "forward_ms"))
            warm_up = train if train > 2.0 else 2 * train
            timed = sum(_timed_calls(t, repeats, budget) * t for t in (train, forward))
            total += START_SECONDS + warm_up + timed
        elif row["note"].startswith("out of memory"):
            total += FAILURE_SECONDS
    return total


def load(path: Path) -> list[dict]:
    """The rows of a file; none where there is no file yet."""
    return json.loads(path.read_text()) if path.exists() else []


def write(rows: list[dict], path: Path) -> None:
    """Write the rows, and the machine and command beside them in NAME-machine.json."""
    machine = {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_mib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": " ".join(("python benchmarks/cpu.py", *sys.argv[1:])),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    # In one step: a run that is stopped while it writes must not cost what was measured before.
    beside = path.with_suffix(".unfinished")
    beside.write_text("[\n  " + ",\n  ".join(json.dumps(row) for row in rows) + "\n]\n")
    beside.replace(path)
    sibling = path.with_name(f"{path.stem}-machine.json")
    sibling.write_text(json.dumps(machine, indent=2) + "\n")


def _timed_calls(seconds: float, repeats: int, budget: float) -> int:
    """How many calls the workers time: as many as fit into the budget, at least three."""
    return max(3, min(repeats, int(budget / max(seconds, 1e-9)) + 1))


def _rounded(sample: dict) -> dict:
    return {k: round(v, 3) if isinstance(v, float) else v for k, v in sample.items()}


def _cpu_model() -> str:
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    name = fields.get("model name", platform.processor())
    return f"{name} (family {fields.get('cpu family')}, model {fields.get('model')})"
