"""Starting processes on this machine, for commands that are asked for ``--workers``."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from einet.distributed import team as teams
from einet.distributed.team import ProcessesError, portable

__all__ = ["check_workers", "is_first", "run_workers"]

# Once one has failed, the others have so long to end by themselves, and then once more.
_SECONDS_TO_END = 10.0
# How often it is looked after them.
_SECONDS_BETWEEN_LOOKS = 0.2


class _Killed(ProcessesError):
    """A process ended without a word of its own."""


def is_first() -> bool:
    """Whether this process writes and prints: it is alone, or the first of its group.

    Example:
        >>> is_first()
        True
    """
    return not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0


def check_workers(workers: int, device: torch.device) -> None:
    """Raise unless every process can have a device of its own.

    Example:
        >>> check_workers(4, torch.device("cpu"))
    """
    if device.type == "cuda" and workers > torch.cuda.device_count():
        raise ValueError(
            f"workers must be at most {torch.cuda.device_count()}, the CUDA devices here, "
            f"got {workers}; --device cpu takes any number"
        )
    if device.type == "cuda" and device.index is not None:
        raise ValueError(f"device must be cpu or cuda for several workers, got {device}")


def run_workers(
    workers: int, device: torch.device, function: Callable[..., Any], *arguments: Any
) -> None:
    """Call a function in so many processes that form a group, and wait for all of them.

    Each has its share of the cores or, on CUDA, a GPU that looks to it like the only one. Ctrl-C is
    handed on to all. Where one fails the others end too, within seconds, and its error is raised.

    Args:
        workers: How many.
        device: Where they are going to work.
        function: What they call; one that can be pickled, as can be its arguments.
        *arguments: What it is given.
    """
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="einet-") as folder:
        processes, pipes = [], []
        for rank in range(workers):
            receiver, sender = context.Pipe(duplex=False)
            place = (rank, workers, str(Path(folder) / "group"), device.type)
            process = context.Process(target=_work, args=(*place, sender, function, arguments))
            with _environment(rank, workers, device):
                process.start()
            sender.close()
            processes.append(process)
            pipes.append(receiver)
        with _handed_on(processes):
            errors = _wait_for(processes, pipes)
    for process in processes:
        process.close()
    if errors:
        # Those who only tell of others come last.
        errors.sort(key=lambda error: type(error) is ProcessesError)
        raise errors[0]


def _wait_for(processes: list[Any], pipes: list[Connection]) -> list[BaseException]:
    """Wait until all have ended; what went wrong, in its order."""
    errors: list[BaseException] = []
    running = dict(enumerate(processes))
    failed = None
    while running:
        wait([process.sentinel for process in running.values()], timeout=_SECONDS_BETWEEN_LOOKS)
        for rank, process in list(running.items()):
            if process.is_alive():
                continue
            process.join()
            del running[rank]
            error = _error_of(rank, process.exitcode, pipes[rank])
            if error is not None:
                errors.append(error)
                failed = time.monotonic() if failed is None else failed
        if failed is not None:
            late = time.monotonic() - failed
            for process in running.values():
                if late > 2 * _SECONDS_TO_END:
                    process.kill()
                elif late > _SECONDS_TO_END:
                    process.terminate()
    return errors


def _error_of(rank: int, exitcode: int, pipe: Connection) -> BaseException | None:
    """What a process that has ended says was wrong; None where all was well."""
    told = None
    try:
        if pipe.poll():
            told = pickle.loads(pipe.recv_bytes())
    except (EOFError, OSError):
        pass
    pipe.close()
    if told is not None:
        error, trace = told
        # Shown below it by Python, for errors that nobody expects.
        error.__cause__ = RuntimeError(f"in process {rank}:\n{trace}")
        return error
    if exitcode == 0:
        return None
    how = f"ended with status {exitcode}"
    if exitcode < 0:
        how = f"was killed by signal {-exitcode} ({signal.Signals(-exitcode).name})"
    return _Killed(f"process {rank} {how}, and all others were ended")


@contextmanager
def _environment(rank: int, workers: int, device: torch.device) -> Iterator[None]:
    """What a process finds in its environment from its first breath on."""
    threads = max(1, (os.cpu_count() or 1) // workers)
    new = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads))}
    if device.type == "cuda":
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        names = visible.split(",") if visible else [str(n) for n in range(workers)]
        new["CUDA_VISIBLE_DEVICES"] = names[rank]
    old = {name: os.environ.get(name) for name in new}
    os.environ.update(new)
    try:
        yield
    finally:
        for name, value in old.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _handed_on(processes: list[Any]) -> Iterator[None]:
    """Hand signals on: the processes are out of reach of a terminal, so that each comes once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def hand_on(number: int, frame: Any) -> None:
        for process in processes:
            if process.is_alive():
                os.kill(process.pid, number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    old = {number: signal.signal(number, hand_on) for number in numbers}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


# -- within a process ------------------------------------------------------------------------------


def _work(
    rank: int,
    workers: int,
    meeting: str,
    kind: str,
    sender: Connection,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    if os.name == "posix":
        os.setpgrp()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if rank:
        # Only the first speaks; errors go another way.
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (until the end)
    status = 0
    try:
        dist.init_process_group(
            "nccl" if kind == "cuda" else "gloo",
            init_method=f"file://{meeting}",
            rank=rank,
            world_size=workers,
            timeout=timedelta(seconds=teams.SECONDS),
        )
        function(*arguments)
    except BaseException as error:
        status = 1
        sender.send_bytes(pickle.dumps((portable(error), traceback.format_exc())))
    sender.close()
    sys.stdout.flush()
    sys.stderr.flush()
    # At once: threads of a group whose other end is gone could keep the interpreter waiting.
    os._exit(status)


def _end_with_parent() -> None:
    """A process that nobody waits for any more has nothing left to do."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
