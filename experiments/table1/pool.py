"""Jobs one after the other, or several at a time in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any, TypeVar

import torch

from experiments.table1 import entry
from experiments.table1.entry import Job
from experiments.table1.store import Store

__all__ = ["outcomes", "results_of"]

T = TypeVar("T")

# In a process of the pool: where it tells of its work.
_messages: Queue[tuple[Job, str] | None] | None = None


def outcomes(
    jobs: Sequence[Job], store: Store, say: Callable[[Job, str], None], workers: int
) -> Iterator[tuple[Job, dict[str, Any] | Exception]]:
    """What came of each job, as soon as it is done. A job that fails does not stop the others."""
    if workers == 1:
        for job in jobs:
            try:
                yield job, entry.run(job, store, lambda text, job=job: say(job, text))
            except Exception as error:
                yield job, error
        return
    # A process that has used CUDA cannot be forked.
    context = multiprocessing.get_context("spawn")
    messages = context.Queue()
    with ProcessPoolExecutor(
        workers, mp_context=context, initializer=_begin, initargs=(messages,)
    ) as pool:
        listener = threading.Thread(
            target=lambda: [say(job, text) for job, text in iter(messages.get, None)], daemon=True
        )
        listener.start()
        futures = {pool.submit(_run, job, store.folder): job for job in jobs}
        try:
            yield from _as_done(futures)
        finally:
            pool.shutdown(cancel_futures=True)
            messages.put(None)
            listener.join()


def _begin(messages: Queue[tuple[Job, str] | None]) -> None:
    """Prepare a process: whom it tells of its work, and that it does not outlive its parent.

    Were the parent killed, a process left behind would train, and write, beside the next run.
    """
    global _messages
    _messages = messages
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)  # files are written all or nothing

    threading.Thread(target=follow, daemon=True).start()


def _run(job: Job, folder: Path) -> dict[str, Any]:
    """One job in a process of its own."""
    if job.device == "cpu":
        # Models this small gain nothing from threads that wait for one another.
        torch.set_num_threads(1)
    messages = _messages
    assert messages is not None
    return entry.run(job, Store(folder), lambda text: messages.put((job, text)))


def results_of(
    function: Callable[[T], dict[str, Any]], jobs: Sequence[T], workers: int
) -> Iterator[tuple[T, dict[str, Any] | Exception]]:
    """What a function of a module returns for each job, as soon as it does.

    It says what it has to say by what it returns, so that there are no files and no messages. A job
    that fails does not stop the others.
    """
    if workers == 1:
        for job in jobs:
            try:
                yield job, function(job)
            except Exception as error:
                yield job, error
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_alone) as pool:
        futures = {pool.submit(function, job): job for job in jobs}
        try:
            yield from _as_done(futures)
        finally:
            pool.shutdown(cancel_futures=True)


def _as_done(futures: dict[Future[dict[str, Any]], T]) -> Iterator[tuple[T, Any]]:
    """What came of jobs, one after the other; what is no plain error ends all of them."""
    for future in as_completed(futures):
        error = future.exception()
        if error is not None and not isinstance(error, Exception):
            raise error
        yield futures[future], future.result() if error is None else error


def _alone() -> None:
    torch.set_num_threads(1)
