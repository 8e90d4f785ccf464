"""One pass over the rows of one of many models that are trained in turn."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from einet.data.batch import Batch
from einet.data.rows import Rows
from einet.data.source import Source
from einet.learning.console import Interrupt
from einet.learning.em import EM, StochasticEM
from einet.learning.learner import Learner
from einet.models.einet import Einet

__all__ = ["Run", "filled", "generator_of", "pinned_copy"]

# On a GPU batches are filled up to no fewer rows than this.
_LEAST_ROWS = 16


def generator_of(*key: int) -> torch.Generator:
    """A random number generator of its own for every key."""
    # With their number in front: keys that differ by zeros at their end would be the same.
    state = np.random.SeedSequence((len(key), *key)).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))


@dataclass(frozen=True)
class Run:
    """What the passes of one training have in common.

    Args:
        source: All rows.
        learner: How to learn from them.
        epochs: The number of passes.
        batch_size: The largest number of rows in a mini-batch.
        seed: Seed of everything random.
        from_clusters: Whether states start out as clusters of rows.
    """

    source: Source
    learner: Learner
    epochs: int
    batch_size: int
    seed: int
    from_clusters: bool = False

    def steps(self, rows: int) -> int:
        """The number of mini-batches in an epoch of so many rows."""
        return math.ceil(rows / self.batch_size)

    def start_learner(self, model: Einet, rows: Rows) -> None:
        """``learner.start``; with the rows, which are to be converted, only if it looks at them."""
        learner = self.learner
        if isinstance(learner, EM | StochasticEM) and learner.prior is None:
            learner.start(model)
        else:
            learner.start(model, self.source.seen(rows.batch.to(model.device)))

    def learn_epoch(
        self,
        model: Einet,
        rows: Rows,
        epoch: int,
        generator: torch.Generator,
        interrupt: Interrupt,
    ) -> Float[Tensor, ""] | None:
        """Learn from some rows once; their mean log-likelihood on the way, None if interrupted.

        Mini-batches are of equal size: a last one of a few rows would undo what was learnt before.
        Nothing is read from a GPU.

        Args:
            model: What learns.
            rows: The rows as they were given.
            epoch: The number of this epoch, from 0.
            generator: Draws the order of the rows.
            interrupt: Looked at after each mini-batch.
        """
        learner = self.learner
        steps = self.steps(len(rows))
        size = math.ceil(len(rows) / steps)
        order = pinned_copy(torch.randperm(len(rows), generator=generator), model.device)
        total = torch.zeros((), dtype=torch.float64, device=model.device)
        progress = 0.0
        for step, part in enumerate(rows.batches(size, order)):
            progress = (epoch * steps + step) / max(1, self.epochs * steps - 1)
            batch = self.source.seen(part)
            if model.device.type == "cuda" and isinstance(learner, StochasticEM):
                batch = filled(batch, self.batch_size)
            total += learner.step(model, batch, progress=progress) * len(part)
            if interrupt.requested:
                return None
        learner.end_epoch(model, progress)
        return total / len(rows)


def pinned_copy(order: Int[Tensor, " rows"], device: torch.device) -> Int[Tensor, " rows"]:
    """Numbers of rows on a device; a plain copy to a GPU would wait for all asked of it before."""
    return order.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else order


def filled(batch: Batch, most: int) -> Batch:
    """A batch with further rows of weight 0, up to ``most`` or a half, a quarter, … of it.

    On a GPU every number of rows is recorded by itself; these are few numbers.

    Example:
        >>> batch = filled(Batch(torch.ones(40, 3)), most=200)
        >>> len(batch), batch.weights.sum()
        (50, tensor(40., dtype=torch.float64))
    """
    rows = len(batch)
    while most // 2 >= max(rows, _LEAST_ROWS):
        most //= 2
    more, weights = most - rows, batch.weights
    if weights is None:
        weights = torch.ones(rows, dtype=torch.float64, device=batch.x.device)
    observed = None if batch.observed is None else F.pad(batch.observed, (0, 0, 0, more))
    return Batch(F.pad(batch.x, (0, 0, 0, more)), observed, None, F.pad(weights, (0, more)))
