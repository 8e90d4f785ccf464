"""What the training loop trains: one model, or several that learn at the same time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from einet.data.streams import RowStream
from einet.learning.learner import LearnerState, Objective
from einet.learning.objective import objective_of, row_weights
from einet.learning.plain import as_fields
from einet.learning.snapshot import Snapshot, check_numbers
from einet.learning.steps import Place
from einet.learning.watch import Watch
from einet.models.base import Model

__all__ = [
    "SnapshotTrainee",
    "Trainee",
    "check_prefixes",
    "mean_objective",
    "under",
]


class Trainee(ABC):
    """What learns, in epochs; ``count`` models at the same time, each from rows of its own."""

    count: int = 1
    #: The number of mini-batches in an epoch; None where nobody knows before the first ends.
    steps: int | None
    #: How far the present epoch has come; None between epochs.
    place: Place | None = None

    @abstractmethod
    def learn(self, epoch: int, epochs: int, watch: Watch) -> Float[Tensor, " count"] | None:
        """Learn from every row once; the mean objective met on the way, None if interrupted.

        It begins at ``place`` where there is one, and leaves it where it has come to.
        """

    #: Whether rows that break the training are left out of it, and have yet to be looked for.
    may_skip: bool = False
    #: How many rows were left out of the present epoch, or the last; None if none was looked for.
    skipped: int | None = None

    def look_again(self) -> bool:
        """Go back to the beginning of the epoch and leave out rows that break it from here on.

        Whether that is to be done; called where a number that was met in the epoch is not finite.
        """
        return False

    def skip_from_here(self, skipped: int) -> None:
        """Go on as a run that has left out so many rows of the present epoch."""
        raise ValueError("rows were left out of it, which this run does not do")

    def trouble(self) -> str:
        """Which rows break the state that was kept last, in words; nothing where none is known."""
        return ""

    def end_epoch(self) -> None:
        """The epoch is noted: the next one begins at its beginning."""
        self.place = None

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
    def state(self, within: bool = False) -> LearnerState:
        """The states that were kept, as plain values and tensors by name.

        With ``within``, less what :meth:`state_within` tells anew.
        """

    @abstractmethod
    def load_state(
        self, values: dict[str, Any], tensors: dict[str, Tensor], within: bool = False
    ) -> None:
        """Take up what :meth:`state` told, and go on from the last state.

        What is not such a state gets a ``ValueError``.
        """

    @property
    @abstractmethod
    def tells_place(self) -> bool:
        """Whether its state can be told within an epoch, too."""

    @abstractmethod
    def state_within(self) -> LearnerState:
        """The present state and the place in the epoch, beside those states that were kept."""

    @abstractmethod
    def load_within(self, epoch: int, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Take up what :meth:`state_within` told of an epoch; called after :meth:`load_state`."""


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

    def state(self, within: bool = False) -> LearnerState:
        tensors = {f"last.{name}": tensor for name, tensor in self.last.numbers.items()}
        if self.best is not None:
            tensors |= {f"best.{name}": tensor for name, tensor in self.best.numbers.items()}
        return {}, tensors

    def load_state(
        self, values: dict[str, Any], tensors: dict[str, Tensor], within: bool = False
    ) -> None:
        as_fields(values, "trainee", [])
        kept = {"last.": self.last} | ({} if self.best is None else {"best.": self.best})
        check_prefixes(tensors, kept)
        for prefix, snapshot in kept.items():
            check_numbers(self.model, under(prefix, tensors), prefix)
            snapshot.load(under(prefix, tensors))
        self.last.restore()


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
