"""What the training loop trains: one model, or several that learn at the same time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from einet.data.batch import Batch
from einet.data.streams import RowStream
from einet.learning.joining import keep_equal
from einet.learning.learner import Learner, LearnerState, Objective
from einet.learning.objective import objective_of, row_weights
from einet.learning.plain import as_fields
from einet.learning.snapshot import Snapshot, check_numbers
from einet.learning.steps import (
    generator_of,
    hiding_generator,
    learn_epoch,
    model_step,
    progress_in,
)
from einet.learning.watch import Watch
from einet.models.base import Model

__all__ = [
    "LEAST_VALID_BATCH",
    "ModelTrainee",
    "SnapshotTrainee",
    "Trainee",
    "check_prefixes",
    "mean_objective",
    "under",
]

#: Without gradients there is no reason for small batches.
LEAST_VALID_BATCH = 1024


class Trainee(ABC):
    """What learns, in epochs; ``count`` models at the same time, each from rows of its own."""

    count: int = 1
    #: The number of mini-batches in an epoch; None where nobody knows before the first ends.
    steps: int | None

    @abstractmethod
    def learn(self, epoch: int, epochs: int, watch: Watch) -> Float[Tensor, " count"] | None:
        """Learn from every row once; the mean objective met on the way, None if interrupted."""

    @abstractmethod
    def score(self, watch: Watch) -> Float[Tensor, " count"] | None:
        """The mean objective of each model's validation rows, NaN without; None if interrupted."""

    @abstractmethod
    def soundness(self) -> Float[Tensor, " count"]:
        """A number of each model that is NaN if one of its parameters is.

        The last steps of an epoch are judged by no log-likelihood.
        """

    @abstractmethod
    def keep_last(self, epoch: int) -> None:
        """Keep the present state, to go back to should something fail, or to go on from."""

    @abstractmethod
    def keep_best(self, number: int, epoch: int) -> None:
        """Keep the present state of one model as its best."""

    @abstractmethod
    def restore(self, validated: bool) -> None:
        """Go back to the best state, or without validation to the last one that was kept."""

    @abstractmethod
    def scored(self, number: int) -> bool:
        """Whether one of the models has validation rows."""

    def step_size(self, epoch: int, epochs: int) -> float | None:
        """The step size at the end of an epoch, for the record."""
        return None

    def name(self, number: int) -> str:
        """What error messages call one of the models; nothing where there is only one."""
        return ""

    def since(self) -> str:
        """What error messages say of the state that is gone back to."""
        return ""

    @abstractmethod
    def state(self) -> LearnerState:
        """The states that were kept, as plain values and tensors by name."""

    @abstractmethod
    def load_state(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Take up what :meth:`state` told, and go on from the last state.

        What is not such a state gets a ``ValueError``.
        """


class SnapshotTrainee(Trainee):
    """A model whose states are kept as copies of it.

    Args:
        model: The model.
        valid: Validation rows or None.
    """

    def __init__(self, model: Model, valid: RowStream | None) -> None:
        self.model, self.valid = model, valid
        self.last = Snapshot(model)
        self.best = None if valid is None else Snapshot(model)

    def soundness(self) -> Float[Tensor, " count"]:
        sums = [p.detach().sum().double() for p in self.model.parameters()]
        return torch.stack(sums).sum().view(1)

    def scored(self, number: int) -> bool:
        return self.valid is not None

    def keep_last(self, epoch: int) -> None:
        self.last.take(f"after epoch {epoch}")

    def keep_best(self, number: int, epoch: int) -> None:
        assert self.best is not None
        self.best.take(f"after epoch {epoch}")

    def restore(self, validated: bool) -> None:
        (self.best if validated and self.best is not None else self.last).restore()

    def since(self) -> str:
        return self.last.since if self.best is None else self.best.since

    def state(self) -> LearnerState:
        tensors = {f"last.{name}": tensor for name, tensor in self.last.numbers.items()}
        if self.best is not None:
            tensors |= {f"best.{name}": tensor for name, tensor in self.best.numbers.items()}
        return {}, tensors

    def load_state(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        as_fields(values, "trainee", [])
        kept = {"last.": self.last} | ({} if self.best is None else {"best.": self.best})
        check_prefixes(tensors, kept)
        for prefix, snapshot in kept.items():
            check_numbers(self.model, under(prefix, tensors), prefix)
            snapshot.load(under(prefix, tensors))
        self.last.restore()


class ModelTrainee(SnapshotTrainee):
    """One model, by any learner.

    Args:
        model: What learns; :meth:`Learner.start` has been called with it.
        learner: How.
        rows: From what.
        valid: Validation rows or None.
        batch_size: The largest number of rows in a mini-batch.
        seed: What the order of the rows depends on, with the number of the epoch. None for the
            order they have.
        hide: The probability with which a known cell is taken for missing.
        objective: What is maximised.
        fill: Whether mini-batches are filled up to few numbers of rows: on a GPU each is recorded.
    """

    def __init__(
        self,
        model: Model,
        learner: Learner,
        rows: RowStream,
        valid: RowStream | None = None,
        *,
        batch_size: int,
        seed: tuple[int, ...] | None,
        hide: float = 0.0,
        objective: Objective = "generative",
        fill: bool = False,
    ) -> None:
        super().__init__(model, valid)
        self.learner, self.rows = learner, rows
        self.batch_size, self.seed, self.hide = batch_size, seed, hide
        self.objective: Objective = objective
        self.fill = fill
        self.steps = rows.steps(batch_size)
        #: The learner's state at the time of the last snapshot, where a checkpoint needs it.
        self._learner_state: LearnerState | None = None

    def make_resumable(self) -> None:
        """Keep the learner's state too from here on, for a checkpoint."""
        self._learner_state = self.learner.state()

    # -- learning --------------------------------------------------------------------------------

    def learn(self, epoch: int, epochs: int, watch: Watch) -> Float[Tensor, " count"] | None:
        generator = None if self.seed is None else generator_of(*self.seed, epoch)
        hidden = None
        if self.hide > 0 and self.seed is not None:
            hidden = hiding_generator(self.seed, epoch, self.model.device)
        taught = model_step(self.model, self.learner, self.objective, self.fill, self.batch_size)
        at, counted = progress_in(epoch, epochs, self.steps), 0

        def step(batch: Batch, progress: float) -> tuple[Tensor, Tensor]:
            nonlocal counted
            counted += 1
            return taught(batch if hidden is None else batch.hide(self.hide, hidden), progress)

        batches = self.rows.mini_batches(self.batch_size, generator)
        mean = learn_epoch(batches, step, at, watch, self.rows.joint_)
        if mean is None:
            return None
        self.learner.end_epoch(self.model, at(counted - 1))
        keep_equal(self.model, self.learner.team)
        self.steps = counted
        return mean.view(1)

    def step_size(self, epoch: int, epochs: int) -> float | None:
        steps = self.steps
        return self.learner.step_size_at(progress_in(epoch, epochs, steps)((steps or 1) - 1))

    def score(self, watch: Watch) -> Float[Tensor, " count"] | None:
        if self.valid is None:
            return torch.full((1,), torch.nan, dtype=torch.float64)
        size = max(self.batch_size, LEAST_VALID_BATCH)
        return mean_objective(self.model, self.valid, self.objective, size, watch)

    # -- what is kept ----------------------------------------------------------------------------

    def keep_last(self, epoch: int) -> None:
        super().keep_last(epoch)
        if self._learner_state is not None:
            self._learner_state = self.learner.state()

    def state(self) -> LearnerState:
        _, tensors = super().state()
        values, of_learner = ({}, {}) if self._learner_state is None else self._learner_state
        return values, tensors | {f"learner.{name}": tensor for name, tensor in of_learner.items()}

    def load_state(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        of_learner = under("learner.", tensors)
        super().load_state({}, {n: t for n, t in tensors.items() if not n.startswith("learner.")})
        if not isinstance(values, dict):
            raise ValueError(f"trainee must be an object, got {values!r:.60}")
        self._learner_state = values, of_learner
        self.learner.load_state(values, of_learner)


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those tensors whose names begin with a prefix, without it."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def check_prefixes(tensors: dict[str, Tensor], prefixes: Collection[str]) -> None:
    """Raise unless the names of all tensors begin with one of these prefixes."""
    for name in tensors:
        if not name.startswith(tuple(prefixes)):
            raise ValueError(f"it holds {name!r:.80}, which this run does not have")


@torch.no_grad()
def mean_objective(
    model: Model, rows: RowStream, objective: Objective, batch_size: int, watch: Watch
) -> Float[Tensor, " one"] | None:
    """The mean objective of some rows; None if interrupted."""
    total = torch.zeros((), dtype=torch.float64, device=model.device)
    count = torch.zeros_like(total)
    for batch in rows.mini_batches(batch_size, None):
        values, weights = (
            objective_of(model, batch, objective).double(),
            row_weights(batch, objective),
        )
        total += values.sum() if weights is None else (values * weights).sum()
        count += len(batch) if weights is None else weights.sum()
        if watch.interrupted:
            return None
    sums = torch.stack([total, count])
    rows.joint_([sums])
    return (sums[0] / sums[1]).view(1)
