"""Synthetic rows that were learnt and drawn on one machine, kept to be measured on another.

A machine with a GPU learns and draws; it needs einet and pandas alone. What compares rows, such as
SDMetrics and XGBoost, may be elsewhere. A folder has the rows of each table and seed in a file, and
beside them `draws.json` with the seconds and the device.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import store

__all__ = ["devices", "draw", "learn_and_draw", "read_draws"]

_NOTES = "draws.json"


def draw(
    folder: Path, tables: Sequence[str], seeds: Sequence[int], most: int | None, device: str
) -> None:
    """Learn every table with every seed, and keep the rows drawn."""
    from table_tasks.synthetic import split

    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        for table in tables:
            train, _ = split(table, seed, most)
            if device != "cpu" and not number:
                # Kernels are compiled when they are first used, once for each machine.
                learn_and_draw(train, seed, device, epochs=1)
            drawn, learning, sampling = learn_and_draw(train, seed, device)
            drawn.to_parquet(folder / _name(table, seed))
            note = {
                "learning s": learning,
                "sampling s": sampling,
                "device": store.device_name(device),
                "rows": len(train),
            }
            notes = _notes(folder) | {_name(table, seed): note}
            (folder / _NOTES).write_text(json.dumps(notes, indent=2) + "\n")
            print(f"{table} seed {seed}: {learning:.2f} s, {sampling:.2f} s to draw", flush=True)


def learn_and_draw(
    train: pd.DataFrame, seed: int, device: str, epochs: int | None = None
) -> tuple[pd.DataFrame, float, float]:
    """As many rows as were learnt from, and the seconds of learning and of drawing them.

    The model learns from all rows, for as long as is usual for so many of them. The rows are drawn
    where it was learnt, and no number lies beyond those of the training rows.
    """
    import einet

    began = time.perf_counter()
    model = einet.TableModel.fit(train, validation=0, seed=seed, device=device, epochs=epochs)
    learning = time.perf_counter() - began
    model.model.to(device)
    began = time.perf_counter()
    drawn: Any = model.sample(len(train), seed=seed, beyond=False)
    return drawn[list(train)], learning, time.perf_counter() - began


def read_draws(folder: Path, table: str, seed: int) -> tuple[pd.DataFrame, float, float]:
    """The rows that a folder has of a table and a seed, and the seconds they took."""
    name = _name(table, seed)
    notes = _notes(folder)
    if name not in notes:
        raise SystemExit(f"there are no rows of {table} with seed {seed} in {folder}")
    note = notes[name]
    return pd.read_parquet(folder / name), note["learning s"], note["sampling s"]


def devices(folder: Path) -> list[str]:
    """The devices that the rows of a folder were learnt and drawn on."""
    return sorted({note["device"] for note in _notes(folder).values()})


def _name(table: str, seed: int) -> str:
    return f"{table}-{seed}.parquet"


def _notes(folder: Path) -> dict[str, Any]:
    path = folder / _NOTES
    return json.loads(path.read_text()) if path.exists() else {}
