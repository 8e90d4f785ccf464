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
from einet.learning.plain import as_count, as_fields
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
from einet.learning.trouble import broken_rows, name_rows
from einet.learning.watch import Watch
from einet.models.base import Model

__all__ = ["LEAST_VALID_BATCH", "ModelTrainee"]

#: Without gradients there is no reason for small batches.
LEAST_VALID_BATCH = 1024
# No data have more rows than this, and no run more processes.
_MOST_ROWS, _MOST_PROCESSES = 1 << 48, 1 << 24


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
        skip: Whether rows that break the training are left out of it.
    """

    #: What error messages call the rows.
    rows_name = "train"
    #: Whether all processes save at the same time, each with its part of an epoch's sums.
    saves_jointly = False

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
        skip: bool = False,
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
        #: Rows that broke the training when they were first looked for, in words.
        self.named = ""
        if skip:
            self.make_resumable()
            if not self._tells_place:
                raise ValueError(
                    "on_error 'skip' goes back to the beginning of an epoch, for which the learner "
                    f"has to tell its state: {type(learner).__name__} does not define "
                    "state_within() and load_state_within()"
                )
            self.may_skip = True

    def make_resumable(self) -> None:
        """Keep the learner's state too from here on, for a checkpoint."""
        self._learner_state = self.learner.state()
        self._tells_place = self.learner.state_within() is not None

    # -- learning --------------------------------------------------------------------------------

    def learn(self, epoch: int, epochs: int, watch: Watch) -> Float[Tensor, " count"] | None:
        if self.place is None:
            self.place, self._hidden = Place(), self._hiding(epoch)
            self.skipped = None if self.skipped is None else 0
        place, hidden = self.place, self._hidden
        if not place.over:
            generator = None if self.seed is None else generator_of(*self.seed, epoch)
            taught = model_step(
                self.model, self.learner, self.objective, self.fill, self.batch_size
            )
            at = progress_in(epoch, epochs, self.steps)

            def step(batch: Batch, progress: float) -> tuple[Tensor, Tensor]:
                batch = batch if hidden is None else batch.hide(self.hide, hidden)
                if self.skipped is not None:
                    batch = self._left(batch)
                if not len(batch) and self.learner.team.alone:
                    nothing = torch.zeros((), dtype=torch.float64, device=self.model.device)
                    return nothing, nothing
                return taught(batch, progress)

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

    # -- rows that break it ----------------------------------------------------------------------

    def _left(self, batch: Batch) -> Batch:
        """A batch without those rows that break the training; they are counted."""
        assert self.skipped is not None
        broken = broken_rows(self.model, batch, self.objective)
        if not len(broken):
            return batch
        self.skipped += len(broken)
        left = torch.ones(len(batch), dtype=torch.bool, device=batch.x.device)
        left[broken] = False
        return batch[left]

    def look_again(self) -> bool:
        if not self.may_skip or self._learner_state is None:
            return False
        self.last.restore()
        self.place = None
        self.learner.load_state_within(self.model, *self._learner_state)
        self.named = self.trouble()
        self.may_skip, self.skipped = False, 0
        return True

    def skip_from_here(self, skipped: int) -> None:
        if not self.may_skip and self.skipped is None:
            raise ValueError("rows were left out of it, which this run does not do")
        self.may_skip, self.skipped = False, skipped

    def trouble(self) -> str:
        size = max(self.batch_size, 1)
        return name_rows(self.model, self.rows.whole, self.objective, size, self.rows_name)

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
        return self._tells_place and (self.learner.team.alone or self.saves_jointly)

    def state_within(self) -> LearnerState:
        told = self.learner.state_within()
        assert told is not None
        hidden = [] if self._hidden is None else [self._hidden]
        values, tensors = place_state(self._joint_place(), hidden)
        parts = {"place.": tensors, "model.": numbers_by_name(self.model), "learner.": told[1]}
        named = {prefix + name: part[name] for prefix, part in parts.items() for name in part}
        within = {"place": values, "learner": told[0], "skipped": self.skipped}
        # Said where it is not one, so that earlier releases can go on with what one has written.
        several = self.learner.team.size
        return within | ({} if several == 1 else {"processes": several}), named

    def _joint_place(self) -> Place:
        """The place in the epoch, with the sums of all processes."""
        place, team = self.place or Place(), self.learner.team
        if team.alone or place.over or place.total is None or place.weight is None:
            return place
        sums = torch.stack([place.total, place.weight.to(place.total)])
        team.sum_([sums])
        return Place(place.steps, sums[0], sums[1])

    def load_within(self, epoch: int, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        if isinstance(values, dict):
            values = {"processes": 1, **values}
        values = as_fields(values, "within", ["place", "learner", "skipped", "processes"])
        processes = as_count(values["processes"], "within.processes", 1, _MOST_PROCESSES)
        cut_anew = self.rows.by_process and processes != self.learner.team.size
        if values["skipped"] is not None:
            self.skip_from_here(as_count(values["skipped"], "within.skipped", 0, _MOST_ROWS))
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
            steps=None if cut_anew else self.steps,
            device=self.model.device,
            hidden=[] if self._hidden is None else [self._hidden],
        )
        restore_numbers(self.model, numbers)
        if not isinstance(values["learner"], dict):
            raise ValueError(f"learner must be an object, got {values['learner']!r:.60}")
        self.learner.load_state_within(self.model, values["learner"], under("learner.", tensors))
        if self.place.over:
            return
        if cut_anew:
            # Others had other rows: what they have left of the epoch is nowhere together.
            self.learner.begin_epoch_anew()
            self.place = None
        elif not self.learner.team.first:
            # What one process had summed up counts once: the first has it.
            for sums in (self.place.total, self.place.weight):
                if sums is not None:
                    sums.zero_()
            self.learner.begin_epoch_anew()
