"""Some processes that run functions together, started once for many tests.

A function is given its rank and the number of processes, and returns what can be pickled. One run
of four processes serves teams of 4, 2 and 1, one after the other.
"""

from __future__ import annotations

import multiprocessing
import pickle
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["SIZES", "run_all", "run_each"]

SIZES = (1, 2, 4)
# No test waits longer for a process.
_SECONDS = 240.0

Case = Callable[[int, int], Any]


def _work(rank: int, cases: dict[str, Case], sizes: list[int], folder: str, out: Any) -> None:
    torch.set_num_threads(1)
    results: dict[tuple[str, int], Any] = {}
    for size in sizes:
        if rank >= size:
            continue
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder}/size-{size}",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=_SECONDS),
        )
        for name, case in cases.items():
            try:
                results[name, size] = case(rank, size)
            except Exception as error:
                results[name, size] = f"{type(error).__name__}: {error}"
        dist.destroy_process_group()
    # By value: what the processes' own pickler shares is gone with them.
    out.send_bytes(pickle.dumps(results))
    out.close()


def _context() -> Any:
    """Processes that begin with einet, and what optimisers import, already imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["einet", "torch._dynamo"])
    return context


def run_each(
    cases: dict[str, Case], sizes: tuple[int, ...] = SIZES
) -> dict[tuple[str, int], list[Any]]:
    """What every process returned, by the case's name and the number of processes."""
    context, pipes, processes = _context(), [], []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(max(sizes)):
            receiver, sender = context.Pipe(duplex=False)
            arguments = (rank, cases, sorted(sizes, reverse=True), folder, sender)
            process = context.Process(target=_work, args=arguments)
            process.start()
            sender.close()
            pipes.append(receiver)
            processes.append(process)
        results = []
        for receiver in pipes:
            assert receiver.poll(_SECONDS), "a process did not answer"
            results.append(pickle.loads(receiver.recv_bytes()))
        for process in processes:
            process.join(_SECONDS)
            assert process.exitcode == 0
    return {
        (name, size): [results[rank][name, size] for rank in range(size)]
        for name in cases
        for size in sizes
    }


def run_all(work: Callable[..., Any], size: int, *arguments: Any) -> list[Any]:
    """Start so many processes with a function of their own, for those that are not to end well."""
    context = _context()
    folder = Path(tempfile.mkdtemp())
    processes = [
        context.Process(target=work, args=(rank, size, str(folder), *arguments))
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    return processes
