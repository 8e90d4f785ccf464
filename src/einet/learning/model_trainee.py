"""One model that learns by any learner, from any rows."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from einet.data.batch import Batch
from einet.data.streams import RowStream
from einet.learning.joining import keep_equal
from einet.learning.learner import Learner, LearnerState, Objective
from einet.learning.place_state import load_place, place_state
from einet.learning.plain import as_fields
from einet.learning.snapshot import check_numbers, numbers_by_name, restore_numbers
from einet.learning.steps import (
    Place,
    generator_of,
    hiding_generator,
    learn_epoch,
    model_step,
    progress_in,
)
from einet.learning.trainee import SnapshotTrainee, check_prefixes, mean_objective, under
from einet.learning.watch import Watch
from einet.models.base import Model

__all__ = ["LEAST_VALID_BATCH", "ModelTrainee"]

#: Without gradients there is no reason for small batches.
LEAST_VALID_BATCH = 1024


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
        self._tells_place = False
        self._hidden: torch.Generator | None = None

    def make_resumable(self) -> None:
        """Keep the learner's state too from here on, for a checkpoint."""
        self._learner_state = self.learner.state()
        self._tells_place = self.learner.state_within() is not None

    # -- learning --------------------------------------------------------------------------------

    def learn(self, epoch: int, epochs: int, watch: Watch) -> Float[Tensor, " count"] | None:
        if self.place is None:
            self.place, self._hidden = Place(), self._hiding(epoch)
        place, hidden = self.place, self._hidden
        if not place.over:
            generator = None if self.seed is None else generator_of(*self.seed, epoch)
            taught = model_step(
                self.model, self.learner, self.objective, self.fill, self.batch_size
            )
            at = progress_in(epoch, epochs, self.steps)

            def step(batch: Batch, progress: float) -> tuple[Tensor, Tensor]:
                return taught(batch if hidden is None else batch.hide(self.hide, hidden), progress)

            batches = self.rows.mini_batches(self.batch_size, generator)
            if learn_epoch(batches, step, at, watch, place, self.rows.joint_) is None:
                return None
            self.learner.end_epoch(self.model, at(place.steps - 1))
            keep_equal(self.model, self.learner.team)
            place.over = True
        self.steps = place.steps
        return place.mean.view(1)

    def _hiding(self, epoch: int) -> torch.Generator | None:
        """What draws the cells to hide in an epoch."""
        if self.hide == 0 or self.seed is None:
            return None
        return hiding_generator(self.seed, epoch, self.model.device)

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

    def state(self, within: bool = False) -> LearnerState:
        _, tensors = super().state(within)
        if self._learner_state is None or within:
            return {}, tensors
        values, of_learner = self._learner_state
        return values, tensors | {f"learner.{name}": tensor for name, tensor in of_learner.items()}

    def load_state(
        self, values: dict[str, Any], tensors: dict[str, Tensor], within: bool = False
    ) -> None:
        if within:
            super().load_state(values, tensors, within)
            return
        of_learner = under("learner.", tensors)
        super().load_state({}, {n: t for n, t in tensors.items() if not n.startswith("learner.")})
        if not isinstance(values, dict):
            raise ValueError(f"trainee must be an object, got {values!r:.60}")
        self._learner_state = values, of_learner
        self.learner.load_state(values, of_learner)

    # -- within an epoch -------------------------------------------------------------------------

    @property
    def tells_place(self) -> bool:
        # Of several processes, each knows its own part of the sums of an epoch.
        return self._tells_place and self.learner.team.alone

    def state_within(self) -> LearnerState:
        told = self.learner.state_within()
        assert told is not None
        hidden = [] if self._hidden is None else [self._hidden]
        values, tensors = place_state(self.place or Place(), hidden)
        parts = {"place.": tensors, "model.": numbers_by_name(self.model), "learner.": told[1]}
        named = {prefix + name: part[name] for prefix, part in parts.items() for name in part}
        return {"place": values, "learner": told[0]}, named

    def load_within(self, epoch: int, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        values = as_fields(values, "within", ["place", "learner"])
        if not self._tells_place:
            raise ValueError(f"{type(self.learner).__name__} cannot go on within an epoch")
        check_prefixes(tensors, ["place.", "model.", "learner."])
        numbers = under("model.", tensors)
        check_numbers(self.model, numbers, "model.")
        self._hidden = self._hiding(epoch)
        self.place = load_place(
            values["place"],
            under("place.", tensors),
            shape=[],
            steps=self.steps,
            device=self.model.device,
            hidden=[] if self._hidden is None else [self._hidden],
        )
        restore_numbers(self.model, numbers)
        if not isinstance(values["learner"], dict):
            raise ValueError(f"learner must be an object, got {values['learner']!r:.60}")
        self.learner.load_state_within(self.model, values["learner"], under("learner.", tensors))
        if not self.learner.team.first and not self.place.over:
            # What one process had summed up counts once: the first has it.
            for sums in (self.place.total, self.place.weight):
                if sums is not None:
                    sums.zero_()
            self.learner.begin_epoch_anew()
