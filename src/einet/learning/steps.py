"""Steps of training: one pass over mini-batches, and what each step is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from einet.data.batch import Batch
from einet.learning.learner import Learner, Objective
from einet.learning.objective import row_weights
from einet.learning.watch import Watch
from einet.models.base import Model

__all__ = [
    "Place",
    "Step",
    "filled",
    "generator_of",
    "hiding_generator",
    "learn_epoch",
    "model_step",
    "progress_in",
]

# On a GPU batches are filled up to no fewer rows than this.
_LEAST_ROWS = 16

#: Learns from a mini-batch, given the progress; the sum of the objective, and the rows' weight.
Step = Callable[[Batch, float], tuple[Tensor, Tensor]]


@dataclass
class Place:
    """How far an epoch has come.

    Attributes:
        steps: The number of mini-batches that were learnt from.
        total: The sum of the objective over their rows, or one for each model.
        weight: The weight of these rows.
        over: Whether the epoch is over, and the learner has been told so.

    Example:
        >>> place = Place()
        >>> place.add(torch.tensor(-6.0), torch.tensor(3.0))
        >>> place.steps, place.mean
        (1, tensor(-2.))
    """

    steps: int = 0
    total: Tensor | None = None
    weight: Tensor | None = None
    over: bool = False

    def add(self, total: Tensor, weight: Tensor) -> None:
        """One more mini-batch."""
        self.steps += 1
        self.total = total if self.total is None else self.total + total
        self.weight = weight if self.weight is None else self.weight + weight

    @property
    def mean(self) -> Tensor:
        """The mean objective, once there was a mini-batch."""
        assert self.total is not None
        assert self.weight is not None
        return self.total / self.weight


def learn_epoch(
    batches: Iterable[Batch],
    step: Step,
    progress: Callable[[int], float],
    watch: Watch,
    place: Place | None = None,
    joint_: Callable[[list[Tensor]], None] | None = None,
) -> Tensor | None:
    """Learn from every mini-batch once: the only place where training steps are made.

    Args:
        batches: The mini-batches.
        step: Learns from one of them, given the progress; the sum of the objective over its rows
            before the update, and their weight, one number each or one for each model.
        progress: How much of the training is done at a step of this epoch.
        watch: Told of every step, and may save what was learnt after it.
        place: How far the epoch has come already: mini-batches that were learnt from are passed
            over. It is kept up to date.
        joint_: Adds what other processes have met; see :meth:`RowStream.joint_`.

    Returns:
        The mean objective met on the way, on the model's device: a number read from a GPU in each
        step would be waited for. None if the training was interrupted.
    """
    place = Place() if place is None else place
    for batch in islice(batches, place.steps, None):
        place.add(*step(batch, progress(place.steps)))
        watch.step(place)
        if watch.interrupted:
            return None
    if joint_ is None or place.total is None or place.weight is None:
        return place.mean
    sums = torch.stack([place.total, place.weight.to(place.total)])
    joint_([sums])
    place.total, place.weight = sums[0], sums[1]
    return place.mean


def progress_in(epoch: int, epochs: int, steps: int | None) -> Callable[[int], float]:
    """From the number of a step in an epoch to how much is done: 0 at the first, 1 at the last."""
    if steps is None:
        return lambda step: epoch / max(1, epochs - 1)
    return lambda step: min(1.0, (epoch * steps + step) / max(1, epochs * steps - 1))


def model_step(
    model: Model, learner: Learner, objective: Objective, fill: bool, batch_size: int
) -> Step:
    """A learner's step, as the loop takes it; batches are filled up where ``fill`` says so."""

    def step(batch: Batch, progress: float) -> tuple[Tensor, Tensor]:
        weights = row_weights(batch, objective)
        if weights is None:
            weight = torch.tensor(float(len(batch)), dtype=torch.float64)
        else:
            weight = weights.sum()
        if fill:
            batch = filled(batch, batch_size)
        mean = learner.step(model, batch, progress=progress)
        total = mean.double() * weight
        if not learner.team.alone:
            # The mean may be of all rows; without a share in them, it says nothing of this one's.
            total = torch.where((weight > 0).to(total.device), total, 0.0)
        return total, weight

    return step


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


def generator_of(*key: int) -> torch.Generator:
    """A random number generator of its own for every key."""
    # With their number in front: keys that differ by zeros at their end would be the same.
    state = np.random.SeedSequence((len(key), *key)).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))


def hiding_generator(seed: tuple[int, ...], epoch: int, device: torch.device) -> torch.Generator:
    """What draws the cells to hide in an epoch, on the model's device, where the cells are."""
    number = int(torch.randint(1 << 62, (), generator=generator_of(*seed, epoch, 1)))
    return torch.Generator(device).manual_seed(number)
