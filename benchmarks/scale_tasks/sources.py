"""Learning from a Parquet file and from the same rows in memory: peak memory, rows per second.

Rows are 64 binary columns, in row groups of 65,536. Every number is of a process of its own, which
learns one epoch of stochastic EM, first leaves and checks included.
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


def measure(quick: bool) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        for rows in _ROWS[:1] if quick else _ROWS:
            path = Path(folder) / f"{rows}.parquet"
            write(path, rows)
            megabytes = path.stat().st_size / 1e6
            for source in ("parquet", "memory"):
                # Others on the machine disturb the fastest run least.
                told = [_in_process(str(path), source) for _ in range(1 if rows == 10**7 else 3)]
                best = max(told, key=lambda one: one["rows_per_second"])
                yield {
                    "source": source,
                    "rows": rows,
                    "columns": _COLUMNS,
                    "file_mb": round(megabytes, 1),
                    "rows_per_second": round(best["rows_per_second"]),
                    "peak_mib": round(min(one["peak_mib"] for one in told)),
                    "before_mib": round(best["before_mib"]),
                }
            path.unlink()


def write(path: Path, rows: int) -> None:
    """Binary rows that hang together, a part at a time."""
    import pyarrow
    import pyarrow.parquet

    generator = np.random.default_rng(0)
    names = [f"x{number}" for number in range(_COLUMNS)]
    schema = pyarrow.schema([(name, pyarrow.uint8()) for name in names])
    with pyarrow.parquet.ParquetWriter(path, schema, compression="snappy") as writer:
        for start in range(0, rows, _GROUP):
            count = min(_GROUP, rows - start)
            hidden = generator.integers(0, 2, (count, 1))
            x = (generator.random((count, _COLUMNS)) < 0.3 + 0.4 * hidden).astype(np.uint8)
            table = pyarrow.table(dict(zip(names, x.T, strict=True)), schema=schema)
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
    torch.set_num_threads(1)
    graph = einet.random_trees(_COLUMNS, depth=3, replicas=4, seed=0)
    model = einet.Einet(graph, einet.Bernoulli(), 8)
    train: Any = path
    if source == "memory":
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(path)
        train = np.stack([table.column(name).to_numpy() for name in table.column_names], 1)
        del table
    before = _peak()
    began = time.perf_counter()
    einet.fit(model, train, epochs=1, batch_size=_BATCH, progress=False)
    seconds = time.perf_counter() - began
    rows = len(train) if source == "memory" else _rows_of(path)
    sender.send({"rows_per_second": rows / seconds, "peak_mib": _peak(), "before_mib": before})


def _rows_of(path: str) -> int:
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(path).metadata.num_rows


def _peak() -> float:
    """The most memory that this process has had at a time."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
