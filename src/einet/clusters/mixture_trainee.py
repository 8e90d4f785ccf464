"""EM of a whole mixture of Einets on one structure, component by component."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from einet.clusters.sharing import owners
from einet.clusters.stand_in import StandIn
from einet.data.streams import Rows
from einet.distributed.stopping import Stopping
from einet.distributed.team import ALONE, Team
from einet.engine.root import share_out
from einet.learning.learner import Learner, LearnerState
from einet.learning.place_state import load_place, place_state
from einet.learning.plain import as_count, as_fields
from einet.learning.snapshot import check_numbers, numbers_by_name, restore_numbers
from einet.learning.steps import Place, generator_of, learn_epoch, model_step, progress_in
from einet.learning.trainee import SnapshotTrainee, check_prefixes, under
from einet.learning.watch import Watch
from einet.models.einet import Einet
from einet.models.mixture import Mixture

__all__ = ["MixtureTrainee"]

# A component does not look at rows that it is less responsible for than this.
_LEAST_SHARE = 1e-6


class MixtureTrainee(SnapshotTrainee):
    """A mixture that learns as a whole.

    In every epoch all rows are first shared out between the components by their responsibilities;
    then each component learns from its rows, weighted by its share in them. With one M-step for
    each component (:class:`~einet.EM`) that is EM of the mixture as a whole. A component that has
    to learn from mini-batches still gets full ones, of rows that are its own.

    Args:
        model: The mixture.
        einets: Its components.
        learner: How components learn.
        rows: The training rows.
        valid: Validation rows or None.
        batch_size: The largest number of rows in a mini-batch.
        seed: Seed of everything random.
        stand_in: What learns in place of each component.
        team: Processes that share the components between them.
        stopping: How they agree to stop: once rows are shared out, once all components have learnt,
            and once validation rows are measured.
    """

    steps = None

    def __init__(
        self,
        model: Mixture,
        einets: list[Einet],
        learner: Learner,
        rows: Rows,
        valid: Rows | None,
        *,
        batch_size: int,
        seed: int,
        stand_in: StandIn,
        team: Team = ALONE,
        stopping: Stopping | None = None,
    ) -> None:
        super().__init__(model, valid)
        self.team, self.stopping = team, Stopping(team) if stopping is None else stopping
        self.mixture, self.einets, self.learner = model, einets, learner
        self.rows, self.batch_size, self.seed, self.stand_in = rows, batch_size, seed, stand_in
        # The component that learns at the present place of the epoch, and what the epoch came to.
        self._component, self._mean = 0, torch.zeros((), dtype=torch.float64)
        # A state within an epoch that is yet to be taken up: rows are shared out before.
        self._resumed: LearnerState | None = None

    # -- learning --------------------------------------------------------------------------------

    @torch.no_grad()
    def learn(self, epoch: int, epochs: int, watch: Watch) -> Float[Tensor, " count"] | None:
        if self.place is not None and self.place.over:
            return self._mean.view(1)
        # In a run that goes on this is done with the state that the epoch began with, too.
        shared = self._share_out(watch)
        if shared is None:
            return None
        self._mean, counts, rows, shares = shared
        by = owners([len(index) for index in rows], self.team.size)
        if self._resumed is None:
            self.place, self._component = Place(), 0
        else:
            restore_numbers(self.model, under("model.", self._resumed[1]))
            if by[self._component] != self.team.rank:
                # Another process goes on with that component.
                self._resumed, self.place = None, Place()
        for number, (index, share) in enumerate(zip(rows, shares, strict=True)):
            if number < self._component or by[number] != self.team.rank:
                continue
            if number > self._component:
                self.place, self._component = Place(), number
            if len(index) and not self._teach(number, index, share, epoch, epochs, watch):
                return None
        self.stopping.look(wait=True)
        if not self.team.alone and watch.interrupted:
            return None
        for number, teacher in enumerate(by):
            numbers = numbers_by_name(self.einets[number])
            self.team.copy_from_(list(numbers.values()), teacher)
        self.mixture.update_weights(counts)
        assert self.place is not None
        self.place.over = True
        return self._mean.view(1)

    def _share_out(
        self, watch: Watch
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...], tuple[Tensor, ...]] | None:
        """The mean log-likelihood, and for each component its count, its rows and its shares."""
        total = torch.zeros((), dtype=torch.float64, device=self.model.device)
        weight, counts = torch.zeros_like(total), total.new_zeros(len(self.einets))
        parts: list[tuple[Tensor, Tensor, Tensor]] = []
        start = 0
        for part in self.rows:
            joint = self.mixture.component_log_prob(part)
            log_prob, share, counted = share_out(joint, part.weights)
            total += (log_prob * counted).sum()
            weight += counted.sum()
            counts += share.sum(1)
            component, row = (share > _LEAST_SHARE * counted).nonzero(as_tuple=True)
            parts.append((component, row + start, share[component, row]))
            start += len(part)
            if watch.interrupted:
                return None
        self.stopping.look(wait=True)
        if not self.team.alone and watch.interrupted:
            return None
        components, rows, shares = map(torch.cat, zip(*parts, strict=True))
        order = components.argsort(stable=True)
        sizes = components.bincount(minlength=len(counts)).tolist()
        device = self.rows.given.x.device
        rows, shares = (each[order].to(device).split(sizes) for each in (rows, shares))
        return total / weight, counts, rows, shares

    def _teach(
        self, number: int, index: Tensor, share: Tensor, epoch: int, epochs: int, watch: Watch
    ) -> bool:
        """Let a component learn from its rows; whether it could do so to the end."""
        rows, learner = self.rows.subset(index, share), self.learner
        with self.stand_in.lock:
            model = self.stand_in.become(self.einets[number])
            learner.start(model, rows)
            try:
                if self._resumed is not None:
                    self._take_up(model)
                generator = generator_of(self.seed, 3, number, epoch)
                fill = model.device.type == "cuda" and learner.stackable
                step = model_step(model, learner, "generative", fill, self.batch_size)
                batches = rows.mini_batches(self.batch_size, generator)
                at = progress_in(epoch, epochs, rows.steps(self.batch_size))
                if learn_epoch(batches, step, at, watch, self.place) is None:
                    if self.tells_place:
                        # It is forgotten with the end of the learner.
                        self._resumed = self.state_within()
                    return False
                learner.end_epoch(model, at(rows.steps(self.batch_size) - 1))
            finally:
                learner.finish(model)
            self.stand_in.give(self.einets[number])
        return True

    def step_size(self, epoch: int, epochs: int) -> float | None:
        return self.learner.step_size_at((epoch + 1) / epochs)

    @torch.no_grad()
    def score(self, watch: Watch) -> Float[Tensor, " count"] | None:
        if self.valid is None:
            return torch.full((1,), torch.nan, dtype=torch.float64)
        total = torch.zeros((), dtype=torch.float64, device=self.model.device)
        count = 0
        for part in self.valid:
            count += len(part)
            total += self.mixture.batch_log_prob(part).sum()
            if watch.interrupted:
                return None
        self.stopping.look(wait=True)
        if not self.team.alone and watch.interrupted:
            return None
        return (total / count).view(1)

    def soundness(self) -> Float[Tensor, " count"]:
        # The component that is learning is not in the mixture yet.
        sums = [p.detach().sum().double() for p in self.stand_in.model.parameters()]
        return super().soundness() + 0 * torch.stack(sums).sum()

    # -- within an epoch -------------------------------------------------------------------------

    @property
    def tells_place(self) -> bool:
        # Of several processes, each is with another component.
        return self.team.alone and self.learner.state_within() is not None

    def state_within(self) -> LearnerState:
        if self._resumed is not None:
            return self._resumed
        told = self.learner.state_within()
        assert told is not None
        assert self.place is not None
        values, tensors = place_state(self.place, [])
        parts = {
            "place.": tensors,
            "model.": numbers_by_name(self.mixture),
            "component.": numbers_by_name(self.stand_in.model),
            "learner.": told[1],
            "": {"mean": self._mean, "number": torch.tensor(self._component)},
        }
        named = {
            prefix + name: part[name].clone() for prefix, part in parts.items() for name in part
        }
        return {"place": values, "learner": told[0]}, named

    def load_within(self, epoch: int, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        values = as_fields(values, "within", ["place", "learner"])
        check_prefixes(tensors, ["place.", "model.", "component.", "learner.", "mean", "number"])
        which = tensors.get("number")
        if which is None or which.dtype != torch.int64 or which.shape != ():
            raise ValueError("number must be a whole number, that of a component")
        number = as_count(int(which), "number", 0, len(self.einets) - 1)
        check_numbers(self.mixture, under("model.", tensors), "model.")
        check_numbers(self.einets[number], under("component.", tensors), "component.")
        mean = tensors.get("mean")
        if mean is None or mean.shape != () or mean.dtype != torch.float64 or mean.isnan():
            raise ValueError("mean must be a number, that of the epoch")
        self.place = load_place(
            values["place"],
            under("place.", tensors),
            shape=[],
            steps=len(self.rows),
            known=False,
            device=self.mixture.device,
            hidden=[],
        )
        if not isinstance(values["learner"], dict):
            raise ValueError(f"learner must be an object, got {values['learner']!r:.60}")
        # To see that it can be taken up; that is done once the learner has begun.
        told = values["learner"], under("learner.", tensors)
        self.learner.load_state_within(self.einets[number], *told)
        self.learner.finish(self.einets[number])
        self._component, self._mean = number, mean.to(self.mixture.device)
        if self.place.over:
            restore_numbers(self.mixture, under("model.", tensors))
        else:
            self._resumed = values, tensors

    def _take_up(self, model: Einet) -> None:
        """Go on with a component where an earlier run was broken off."""
        assert self._resumed is not None
        values, tensors = self._resumed
        restore_numbers(model, under("component.", tensors))
        self.learner.load_state_within(model, values["learner"], under("learner.", tensors))
        self._resumed = None
