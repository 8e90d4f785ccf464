"""What checkpoints cost: the share of an epoch of about a minute that goes into writing them.

The time within ``Checkpoint.write`` and what it is given is added up in a run with the default
pause, beside what is asked after every step. Differences of two runs would tell less: they vary by
more than this.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import einet
from einet.learning import loop as loop_module
from einet.learning.checkpoint import Checkpoint
from einet.learning.checkpoint_file import checkpoints_in

__all__ = ["measure"]

#: Variables, depth, replicas and K of random trees.
MODELS = {
    "random trees, K 10": (64, 4, 10, 10),
    "random trees, K 40": (64, 4, 10, 40),
    "random trees of the efficiency study, K 40": (512, 4, 10, 40),
}
LEARNERS = {
    "StochasticEM": lambda: einet.StochasticEM(0.5),
    "EM": einet.EM,
    "Adam": lambda: einet.Gradient(torch.optim.Adam, lr=0.01),
}
BATCH = 200


def measure(quick: bool) -> Iterator[dict[str, Any]]:
    """Rows for every model and learner; with ``quick`` of an epoch of two seconds."""
    seconds = 2.0 if quick else 60.0
    names = list(MODELS)[:1] if quick else MODELS
    for name in names:
        for learner in LEARNERS if name == list(MODELS)[-1] else ["StochasticEM"]:
            yield {"model": name, "learner": learner, **_measure(name, learner, seconds)}


def _measure(name: str, learner: str, seconds: float) -> dict[str, Any]:
    variables, depth, replicas, K = MODELS[name]
    graph = einet.random_trees(variables, depth=depth, replicas=replicas, seed=0)
    x = torch.randn(BATCH, variables, generator=torch.Generator().manual_seed(0))
    model = einet.Einet(graph, einet.Gaussian(), K).initialize(x)
    options: dict[str, Any] = {"batch_size": BATCH, "progress": False, "initialize": False}
    began = time.perf_counter()
    einet.fit(model, x.repeat(4, 1), epochs=1, optimizer=LEARNERS[learner](), **options)
    steps = max(4, math.ceil(4 * seconds / (time.perf_counter() - began)))
    spent: list[float] = []
    with tempfile.TemporaryDirectory() as folder, _timed(spent):
        history = einet.fit(
            model, x.repeat(steps, 1), epochs=1, optimizer=LEARNERS[learner](),
            checkpoint=folder, **options,
        )  # fmt: skip
        size = max(file.stat().st_size for file in checkpoints_in(folder).values())
    return {
        "parameters": model.num_parameters,
        "epoch_seconds": round(history.seconds[0], 2),
        "steps": steps,
        "files": len(spent),
        "megabytes": round(size / 1e6, 2),
        "seconds_per_file": round(sum(spent) / len(spent), 4),
        "share": round(sum(spent) / (sum(spent) + history.seconds[0]), 5),
        "microseconds_per_step": round(1e6 * _asking(Path(tempfile.gettempdir())), 3),
    }


class _timed:
    """Adds up the time that goes into saving."""

    def __init__(self, spent: list[float]) -> None:
        self._spent = spent

    def __enter__(self) -> None:
        self._real = real = loop_module.Loop.save

        def save(loop: loop_module.Loop) -> None:
            began = time.perf_counter()
            real(loop)
            self._spent.append(time.perf_counter() - began)

        loop_module.Loop.save = save  # type: ignore[method-assign]

    def __exit__(self, *error: object) -> None:
        loop_module.Loop.save = self._real  # type: ignore[method-assign]


def _asking(folder: Path, times: int = 10_000) -> float:
    """Seconds that it takes to ask whether a file is due."""
    file = Checkpoint(folder)
    file._written = time.perf_counter()
    began = time.perf_counter()
    for _ in range(times):
        _ = file.due
    return (time.perf_counter() - began) / times
