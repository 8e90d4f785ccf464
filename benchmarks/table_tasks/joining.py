"""Rows that other runs measured, often elsewhere: put into one file, each with its own machine.

A run with `--output NAME.json` leaves its rows, and beside them `NAME-machine.json`. Runs that
differ in nothing but their seeds are told as one command line.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import store

from table_tasks.recipe import is_present
from table_tasks.results import put

__all__ = ["join", "together"]

Row = dict[str, Any]


def join(folder: Path, output: Path, note: str | None = None) -> int:
    """Put the rows of all files below a folder into one file, and say how many there were.

    Args:
        folder: Where the files of the runs are.
        output: The file of all results; rows of the same key are replaced.
        note: What else is to be known of how they were measured.
    """
    rows: list[Row] = []
    calls: list[Row] = []
    for path in sorted(folder.rglob("*.json")):
        machine = path.with_name(f"{path.stem}-machine.json")
        if not machine.exists():
            continue
        new = store.load(path)
        if not all(is_present(row) for row in new):
            raise SystemExit(f"{path} has rows of an earlier recipe: measure them again")
        rows += new
        calls += json.loads(machine.read_text())["calls"]
    if not rows:
        raise SystemExit(f"there are no rows with their machine below {folder}")
    told = together(calls)
    put(output, rows, [{**call, "note": note} for call in told] if note else told)
    return len(rows)


def together(calls: Sequence[Row]) -> list[Row]:
    """Calls without the name of their file, as one where they differ in seeds and refusals alone.

    Args:
        calls: What `store.describe` said of each run, with its command line.
    """
    groups: dict[str, Row] = {}
    seeds: dict[str, set[int]] = {}
    for call in calls:
        command, of_call = _without_seeds(call["command"])
        rest = {**call, "command": command, "absent": None}
        key = json.dumps(rest, sort_keys=True)
        absent = groups[key]["absent"] | call["absent"] if key in groups else call["absent"]
        groups[key] = {**rest, "absent": absent}
        seeds.setdefault(key, set()).update(of_call)
    for key, call in groups.items():
        if seeds[key]:
            call["command"] += " --seeds " + " ".join(map(str, sorted(seeds[key])))
    return list(groups.values())


def _without_seeds(command: str) -> tuple[str, list[int]]:
    """A command line without its seeds and its file, and the seeds."""
    kept: list[str] = []
    seeds: list[int] = []
    option = ""
    for word in command.split():
        option = word if word.startswith("--") else option
        if option == "--seeds" and word != option:
            seeds.append(int(word))
        elif option not in ("--seeds", "--output"):
            kept.append(word)
    return " ".join(kept), seeds
