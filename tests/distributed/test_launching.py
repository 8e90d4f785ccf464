"""Processes that a command starts end together, with the error of the one that failed."""

from __future__ import annotations

import os
import pickle
import signal
from multiprocessing import Pipe
from typing import Any

import pytest
import torch

import einet
from einet.distributed.launching import _error_of, check_workers, is_first, run_workers
from einet.distributed.team import ProcessesError
from tests.distributed import cases


def killed_in_training() -> None:
    """The second process is killed in its third step; the first would go on for hours."""
    steps = 0

    class Counting(einet.StochasticEM):
        @property
        def joins(self) -> bool:
            return True

        def step(self, model: Any, batch: Any, progress: float = 0.0) -> torch.Tensor:
            nonlocal steps
            steps += 1
            if not is_first() and steps == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().step(model, batch, progress)

    optimizer = Counting(0.1)
    einet.fit(cases.model(), cases.data(), epochs=10**6, optimizer=optimizer, progress=False)


def test_a_killed_process_ends_the_run() -> None:
    with pytest.raises(ProcessesError, match=r"process 1 was killed by signal 9 \(SIGKILL\)"):
        run_workers(2, torch.device("cpu"), killed_in_training)


def test_devices() -> None:
    check_workers(100, torch.device("cpu"))
    with pytest.raises(ValueError, match="workers must be at most 0, the CUDA devices here, got 2"):
        check_workers(2, torch.device("cuda"))


def test_what_a_process_says_is_raised() -> None:
    receiver, sender = Pipe(duplex=False)
    sender.send_bytes(pickle.dumps((FileNotFoundError(2, "no such table", "x.csv"), "a trace")))
    error = _error_of(1, 1, receiver)
    assert isinstance(error, FileNotFoundError)
    assert str(error.__cause__) == "in process 1:\na trace"


@pytest.mark.parametrize(
    ("status", "words"),
    [(0, None), (3, "process 1 ended with status 3"), (-15, r"was killed by signal 15 .SIGTERM")],
)
def test_how_a_process_ended(status: int, words: str | None) -> None:
    receiver, sender = Pipe(duplex=False)
    sender.close()
    error = _error_of(1, status, receiver)
    if words is None:
        assert error is None
    else:
        assert error is not None
        with pytest.raises(ProcessesError, match=words):
            raise error
