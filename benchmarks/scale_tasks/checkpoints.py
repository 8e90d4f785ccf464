"""What checkpoints cost: the share of an epoch of a minute that goes into writing them.

A run writes a state after each of some steps, and each is timed as a whole: what is gathered,
checked, hashed, written and synced. From the median follows what a minute has of it with the
default pause: two states, or fewer where that would be more than a hundredth of the time
(``share``; with the processor's time alone ``cpu_share``, which depends less on what else the
machine does). A run has two more of them, at its beginning and its end.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import torch

import einet
from einet.learning.checkpoint import Checkpoint
from einet.learning.checkpoint_file import checkpoints_in
from einet.learning.loop import Loop

__all__ = ["measure"]

#: Variables, depth, replicas and K of random trees.
MODELS = {
    "random trees, K 10": (64, 4, 10, 10),
    "random trees of the efficiency study, K 10": (512, 4, 10, 10),
    "random trees of the efficiency study, K 40": (512, 4, 10, 40),
}
LEARNERS = {
    "StochasticEM": lambda: einet.StochasticEM(0.5),
    "EM": einet.EM,
    "Adam": lambda: einet.Gradient(torch.optim.Adam, lr=0.01),
}
BATCH, STEPS = 50, 9
# States in a minute with the default pause, and the most that may go into them.
_EACH_MINUTE, _MOST = 2, 0.01


def measure(quick: bool) -> Iterator[dict[str, Any]]:
    """Rows for every model and learner; with ``quick`` for the smallest."""
    for name in list(MODELS)[:1] if quick else MODELS:
        for learner in LEARNERS:
            yield {"model": name, "learner": learner, **_measure(name, learner)}


def _measure(name: str, learner: str) -> dict[str, Any]:
    variables, depth, replicas, K = MODELS[name]
    graph = einet.random_trees(variables, depth=depth, replicas=replicas, seed=0)
    x = torch.randn(BATCH * STEPS, variables, generator=torch.Generator().manual_seed(0))
    model = einet.Einet(graph, einet.Gaussian(), K).initialize(x)
    with tempfile.TemporaryDirectory() as folder, _Timed(folder) as timed:
        einet.fit(
            model, x, epochs=1, batch_size=BATCH, optimizer=LEARNERS[learner](), checkpoint=folder,
            every=0, progress=False, initialize=False,
        )  # fmt: skip
        asking = _asking(folder)
    # The first and the last are smaller: they are of full epochs.
    each = zip(*timed.spent[1:-1], strict=True)
    seconds, of_processor = map(statistics.median, each)
    return {
        "parameters": model.num_parameters,
        "megabytes": round(timed.largest / 1e6, 2),
        "seconds": round(seconds, 4),
        "cpu_seconds": round(of_processor, 4),
        "share": round(min(_MOST, _EACH_MINUTE * seconds / 60), 5),
        "cpu_share": round(min(_MOST, _EACH_MINUTE * of_processor / 60), 5),
        "microseconds_to_ask": round(1e6 * asking, 3),
    }


class _Timed:
    """Times every state that is written, by the clock and by the processor."""

    def __init__(self, folder: str) -> None:
        self._folder, self.largest = folder, 0

    def __enter__(self) -> _Timed:
        self.spent: list[tuple[float, float]] = []
        self._real = real = Loop.save

        def save(loop: Loop) -> None:
            began = time.perf_counter(), time.process_time()
            real(loop)
            ended = time.perf_counter(), time.process_time()
            self.spent.append((ended[0] - began[0], ended[1] - began[1]))
            sizes = [file.stat().st_size for file in checkpoints_in(self._folder).values()]
            self.largest = max(self.largest, *sizes)

        Loop.save = save  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: object) -> None:
        Loop.save = self._real  # type: ignore[method-assign]


def _asking(folder: str, times: int = 10_000) -> float:
    """Seconds that it takes to ask whether a state is due, as is done after every step."""
    file = Checkpoint(folder, 1e9)
    file._written = time.perf_counter()
    began = time.process_time()
    for _ in range(times):
        _ = file.due
    return (time.process_time() - began) / times
