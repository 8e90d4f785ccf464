"""Clusters' Einets that learn at the same time, as one circuit with the sums of all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from einet._checks import as_int
from einet._memory import fitting
from einet.clusters.side_by_side import SideBySide, stacked
from einet.clusters.stand_in import StandIn
from einet.data.batch import Batch
from einet.data.staging import pinned_copy
from einet.data.streams import Rows, even_parts
from einet.engine.pseudo_counts import PseudoCounts
from einet.learning.learner import Learner, LearnerState
from einet.learning.place_state import load_place, place_state
from einet.learning.plain import as_fields
from einet.learning.snapshot import Snapshot, check_numbers, numbers_by_name, restore_numbers
from einet.learning.steps import Place, generator_of, hiding_generator, learn_epoch, progress_in
from einet.learning.trainee import Trainee, check_prefixes, mean_objective, under
from einet.learning.watch import Watch
from einet.models.einet import Einet

__all__ = ["TogetherTrainee", "check_together", "most_together", "plan"]

# More than this many do not make a large GPU faster (benchmarks/together.py).
_MOST = 16


class TogetherTrainee(Trainee):
    """Einets of one structure with equally many mini-batches in an epoch: see :func:`plan`.

    Each sees the mini-batches that it would see alone. A mini-batch has its share of a prior's
    pseudo-counts, the same for all of an epoch.

    Args:
        model: What learns in their place, side by side; it may have places to spare.
        einets: The Einets, as they are at first; each is given its best state.
        numbers: The number of each Einet's cluster.
        learner: How they learn; a stackable one.
        rows: All rows; ``members[i]`` are the numbers of those of Einet i.
        valid: The validation rows of each; None where it has none.
        batch_size: The largest number of rows in a mini-batch.
        seed: Seed of everything random.
        hide: The probability with which a known cell is taken for missing.
        stand_in: What answers for an Einet in validation.
    """

    def __init__(
        self,
        model: SideBySide,
        einets: Sequence[Einet],
        numbers: Sequence[int],
        learner: Learner,
        rows: Rows,
        members: Sequence[Tensor],
        valid: Sequence[Rows | None],
        *,
        batch_size: int,
        seed: int,
        hide: float,
        stand_in: StandIn,
    ) -> None:
        self.model, self.einets, self.numbers, self.learner = model, einets, numbers, learner
        self.rows, self.members, self.valid = rows, members, valid
        self.batch_size, self.hide, self._stand_in = batch_size, hide, stand_in
        self.count, self._seeds = len(einets), [(seed, 2, number) for number in numbers]
        for number, einet in enumerate(einets):
            model.take(number, einet)
        # Where the rows of an Einet are in its order, and whether they are real.
        cuts = [even_parts(len(of_einet), batch_size) for of_einet in members]
        (self._steps,) = {len(parts) for parts in cuts}
        self.steps = self._steps
        starts = torch.tensor([[part.start for part in parts] for parts in cuts]).T
        lengths = torch.tensor([[part.stop - part.start for part in parts] for parts in cuts]).T
        row = torch.arange(int(lengths.amax())).view(1, -1, 1)
        real = row < lengths.unsqueeze(1)
        self._place = torch.where(real, starts.unsqueeze(1) + row, 0)
        self._lengths = lengths.tolist()
        spare = (0, model.count - self.count)
        self._real = F.pad(real.double(), spare).to(rows.device)
        self._counts = self._pseudo_counts()
        self.last = Snapshot(model)
        self._hidden: list[torch.Generator] | None = None

    def _pseudo_counts(self) -> PseudoCounts | None:
        """The share of a mini-batch."""
        prior = self.learner.prior
        if prior is None:
            return None
        each = [
            prior.of_rows(einet, self.rows.subset(of_einet))
            for einet, of_einet in zip(self.einets, self.members, strict=True)
        ]
        return self.model.pseudo_counts(each, self.einets).for_rows(1 / self._steps)

    # -- learning --------------------------------------------------------------------------------

    def learn(self, epoch: int, epochs: int, watch: Watch) -> Float[Tensor, " count"] | None:
        if self.place is None:
            self.place, self._hidden = Place(), self._hiding(epoch)
        place, hidden = self.place, self._hidden

        def step(batch: Batch, progress: float) -> tuple[Tensor, Tensor]:
            size = self.learner.step_size_at(progress)
            assert size is not None
            side_by_side = self._stacked(batch, place.steps, hidden)
            sums = self.model.step(side_by_side, size, self._counts)[:, : self.count]
            return sums[0], sums[1]

        steps, rows, places = self._real.shape
        cuts = [slice(n * rows * places, (n + 1) * rows * places) for n in range(steps)]
        batches = self.rows.batches(cuts, self._order(epoch))
        return learn_epoch(batches, step, progress_in(epoch, epochs, self.steps), watch, place)

    def _hiding(self, epoch: int) -> list[torch.Generator] | None:
        """What draws the cells to hide in an epoch, for each Einet."""
        if self.hide == 0:
            return None
        return [hiding_generator(seed, epoch, self.rows.device) for seed in self._seeds]

    def _stacked(self, batch: Batch, step: int, hidden: list[torch.Generator] | None) -> Batch:
        weights = self._real[step]
        if batch.weights is not None:
            weights = weights * batch.weights.view_as(weights)
        result = stacked(batch, weights)
        if hidden is None:
            return result
        # Each draws what it would draw alone.
        kept = torch.ones_like(result.x, dtype=torch.bool).view(*weights.shape, -1)
        for place, (generator, length) in enumerate(zip(hidden, self._lengths[step], strict=True)):
            draws = torch.rand((length, kept.shape[-1]), generator=generator, device=kept.device)
            kept[:length, place] = draws >= self.hide
        observed = kept.view_as(result.x)
        known = observed if result.observed is None else observed & result.observed
        return Batch(result.x, known, None, weights)

    def _order(self, epoch: int) -> Tensor:
        """The rows of an epoch: of one Einet after the other for each row of a mini-batch."""
        order = torch.zeros(self._real.shape, dtype=torch.long)
        for place, (of_einet, seed) in enumerate(zip(self.members, self._seeds, strict=True)):
            drawn = torch.randperm(len(of_einet), generator=generator_of(*seed, epoch))
            order[..., place] = of_einet[drawn][self._place[..., place]]
        return pinned_copy(order.flatten(), self.rows.given.x.device)

    def step_size(self, epoch: int, epochs: int) -> float | None:
        return self.learner.step_size_at(progress_in(epoch, epochs, self._steps)(self._steps - 1))

    def score(self, watch: Watch) -> Float[Tensor, " count"] | None:
        scores = []
        for place, valid in enumerate(self.valid):
            if valid is None:
                scores.append(torch.full((1,), torch.nan, dtype=torch.float64))
                continue
            self.model.give(place, self._stand_in.model)
            size = max(self.batch_size, 1024)
            score = mean_objective(self._stand_in.model, valid, "generative", size, watch)
            if score is None:
                return None
            scores.append(score.cpu())
        return torch.cat(scores)

    def soundness(self) -> Float[Tensor, " count"]:
        return self.model.soundness()[: self.count]

    # -- what is kept ----------------------------------------------------------------------------

    def give(self) -> None:
        """Copy what was learnt to the Einets."""
        for place, einet in enumerate(self.einets):
            self.model.give(place, einet)
            einet.initialized = True

    def keep_last(self, epoch: int) -> None:
        self.last.take(f"after epoch {epoch}")

    def keep_best(self, number: int, epoch: int) -> None:
        self.model.give(number, self.einets[number])
        self.einets[number].initialized = True

    def restore(self, validated: bool) -> None:
        if not validated:
            self.last.restore()

    def name(self, number: int) -> str:
        return f" of cluster {self.numbers[number]}, of {len(self.members[number])} rows"

    def scored(self, number: int) -> bool:
        return self.valid[number] is not None

    def state(self, within: bool = False) -> LearnerState:
        tensors = {f"last.{name}": tensor for name, tensor in self.last.numbers.items()}
        for place, einet in enumerate(self.einets):
            numbers = numbers_by_name(einet)
            tensors |= {f"best.{place}.{name}": tensor for name, tensor in numbers.items()}
        return {}, tensors

    def load_state(
        self, values: dict[str, Any], tensors: dict[str, Tensor], within: bool = False
    ) -> None:
        as_fields(values, "trainee", [])
        places = [f"best.{place}." for place in range(self.count)]
        check_prefixes(tensors, ["last.", *places])
        check_numbers(self.model, under("last.", tensors), "last.")
        for prefix, einet in zip(places, self.einets, strict=True):
            check_numbers(einet, under(prefix, tensors), prefix)
        self.last.load(under("last.", tensors))
        self.last.restore()
        for prefix, einet in zip(places, self.einets, strict=True):
            restore_numbers(einet, under(prefix, tensors))
            einet.initialized = True

    # -- within an epoch -------------------------------------------------------------------------

    @property
    def tells_place(self) -> bool:
        return True

    def state_within(self) -> LearnerState:
        values, tensors = place_state(self.place or Place(), self._hidden or [])
        named = {f"place.{name}": tensor for name, tensor in tensors.items()}
        numbers = numbers_by_name(self.model)
        return values, named | {f"model.{name}": tensor for name, tensor in numbers.items()}

    def load_within(self, epoch: int, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        check_prefixes(tensors, ["place.", "model."])
        numbers = under("model.", tensors)
        check_numbers(self.model, numbers, "model.")
        self._hidden = self._hiding(epoch)
        self.place = load_place(
            values,
            under("place.", tensors),
            shape=[self.count],
            steps=self._steps,
            device=self.rows.device,
            hidden=self._hidden or [],
        )
        restore_numbers(self.model, numbers)


# -- who learns together ---------------------------------------------------------------------------


def check_together(together: int | None, learner: Learner) -> int | None:
    """The number that a user gave, or raise."""
    if together is None:
        return None
    together = as_int("together", together, minimum=1)
    if together > 1 and not learner.stackable:
        raise ValueError(
            f"together must be 1 or None with {type(learner).__name__}, got {together}: "
            "only einet.StochasticEM trains several Einets at the same time"
        )
    return together


def most_together(model: Einet, learner: Learner, batch_size: int) -> int:
    """How many had best learn together: 1 where nothing is gained."""
    if not (model.is_fused and model.device.type == "cuda" and learner.stackable):
        return 1
    circuit = model.circuit
    values = circuit.num_body * circuit.width * model.log_class_prior.element_size()
    data = 4 * model.num_variables
    most = fitting("side by side", batch_size * max(values, data), model.device)
    return min(_MOST, 1 << (most.bit_length() - 1))


def plan(sizes: Sequence[int], batch_size: int, most: int) -> list[list[int]]:
    """Who learns together, given how many rows each has; those without rows are left out.

    Alone they come in their order. Together they have equally many mini-batches in an epoch, and
    sizes that are much alike: the larger ones first.
    """
    present = [number for number, size in enumerate(sizes) if size]
    if most == 1:
        return [[number] for number in present]
    groups = []
    present.sort(key=lambda number: -sizes[number])
    for _, alike in groupby(present, key=lambda number: -(-sizes[number] // batch_size)):
        them = list(alike)
        groups += [them[start : start + most] for start in range(0, len(them), most)]
    return groups
