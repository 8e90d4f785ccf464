"""Learning from a Parquet file and from the same rows in memory: peak memory, rows per second.

Rows are 64 columns of float32, in row groups of 65,536. Every number is of a process of its own,
which learns one epoch of stochastic EM, first leaves and checks included. Both sources take turns,
so that what else the machine does meets them alike. ``rows_per_core_second`` counts the time of
processors in place of the clock's, ``rows_per_thread_second`` that of the thread which learns: what
is left to it where the thread that reads ahead has a core of its own.
"""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import einet

_COLUMNS, _GROUP, _BATCH = 64, 65_536, 1000
_ROWS = (10**5, 10**6, 10**7)
_SOURCES = ("parquet", "memory")
# So often each source has its turn; with the most rows once.
_TURNS = 3


def measure(quick: bool) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        for rows in _ROWS[:1] if quick else _ROWS:
            path = Path(folder) / f"{rows}.parquet"
            write(path, rows)
            megabytes = path.stat().st_size / 1e6
            told: dict[str, list[dict[str, float]]] = {source: [] for source in _SOURCES}
            for _ in range(1 if rows == _ROWS[-1] else _TURNS):
                for source in _SOURCES:
                    told[source].append(_in_process(str(path), source))
            for source, each in told.items():
                # Others on the machine disturb the fastest run least.
                yield {
                    "source": source,
                    "rows": rows,
                    "columns": _COLUMNS,
                    "file_mb": round(megabytes, 1),
                    "runs": len(each),
                    "rows_per_second": round(max(rows / one["seconds"] for one in each)),
                    "rows_per_core_second": round(max(rows / one["cpu_seconds"] for one in each)),
                    "rows_per_thread_second": round(
                        max(rows / one["thread_seconds"] for one in each)
                    ),
                    "peak_mib": round(min(one["peak_mib"] for one in each)),
                    "before_mib": round(min(one["before_mib"] for one in each)),
                }
            path.unlink()


def write(path: Path, rows: int) -> None:
    """Rows that hang together, a part at a time."""
    import pyarrow
    import pyarrow.parquet

    generator = np.random.default_rng(0)
    names = [f"x{number}" for number in range(_COLUMNS)]
    schema = pyarrow.schema([(name, pyarrow.float32()) for name in names])
    with pyarrow.parquet.ParquetWriter(path, schema, compression="snappy") as writer:
        for start in range(0, rows, _GROUP):
            count = min(_GROUP, rows - start)
            hidden = generator.integers(-1, 2, (count, 1))
            x = generator.standard_normal((count, _COLUMNS), np.float32) + hidden
            table = pyarrow.table(
                dict(zip(names, x.astype(np.float32).T, strict=True)), schema=schema
            )
            writer.write_table(table, row_group_size=_GROUP)


def _in_process(path: str, source: str) -> dict[str, float]:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_learn, args=(path, source, sender))
    process.start()
    sender.close()
    told = receiver.recv()
    process.join()
    return told


def _learn(path: str, source: str, sender: Any) -> None:
    # Imported by both, before the clock runs.
    import pyarrow.dataset
    import pyarrow.parquet

    torch.set_num_threads(1)
    graph = einet.random_trees(_COLUMNS, depth=3, replicas=4, seed=0)
    model = einet.Einet(graph, einet.Gaussian(), 8)
    train: Any = path
    if source == "memory":
        table = pyarrow.parquet.read_table(path)
        train = np.stack([table.column(name).to_numpy() for name in table.column_names], 1)
        del table
    before = _peak()
    clocks = {
        "seconds": time.perf_counter,
        "cpu_seconds": time.process_time,
        "thread_seconds": time.thread_time,
    }
    began = {name: clock() for name, clock in clocks.items()}
    einet.fit(model, train, epochs=1, batch_size=_BATCH, progress=False)
    spent = {name: clock() - began[name] for name, clock in clocks.items()}
    sender.send({**spent, "peak_mib": _peak(), "before_mib": before})


def _peak() -> float:
    """The most memory that this process has had at a time."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
