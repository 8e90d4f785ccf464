"""Einets that learn at the same time, each from rows of its own: one alone, or some together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet._checks import as_int
from einet.clusters.side_by_side import SideBySide, stacked
from einet.clusters.stand_in import StandIn
from einet.data.rows import Rows
from einet.engine import replay
from einet.engine.pseudo_counts import PseudoCounts
from einet.learning.console import Interrupt
from einet.learning.em import StochasticEM
from einet.learning.epoch import Run, pinned_copy
from einet.learning.learner import Learner
from einet.models.einet import Einet

__all__ = ["Alone", "Cohort", "Pupil", "Together", "check_together", "most_together", "plan"]

# On a GPU no more learn together than have values, or data, of so many bytes. More than this many
# do not make a large GPU faster (benchmarks/together.py).
_ROOM, _MOST = 1 << 30, 16


@dataclass
class Pupil:
    """One that learns.

    Args:
        model: The Einet itself.
        rows: Which rows of the source are its own, at least one; in main memory.
        generator: Draws their order in every epoch.
    """

    model: Einet
    rows: Int[Tensor, " rows"]
    generator: torch.Generator

    def order(self) -> Int[Tensor, " rows"]:
        """Its rows for one more epoch, counted from 0."""
        return torch.randperm(len(self.rows), generator=self.generator)


class Cohort(ABC):
    """Pupils that learn at the same time.

    Args:
        run: All rows, and how to learn from them.
    """

    def __init__(self, run: Run) -> None:
        self.run = run

    @abstractmethod
    def begin(self, pupils: Sequence[Pupil]) -> None:
        """Take up pupils as they are."""

    @abstractmethod
    def learn_epoch(self, epoch: int, interrupt: Interrupt) -> Float[Tensor, " pupils"] | None:
        """Let each learn from its rows once; the mean log-likelihoods, None if interrupted."""

    @abstractmethod
    def give(self) -> None:
        """Copy what was learnt to the pupils' models."""

    @abstractmethod
    def end(self) -> None:
        """Leave the pupils."""

    @abstractmethod
    def close(self) -> None:
        """Give back what was kept for further pupils."""


class Alone(Cohort):
    """A single pupil, by any learner.

    Args:
        run: All rows, and how to learn from them.
        stand_in: What learns in its place.
    """

    def __init__(self, run: Run, stand_in: StandIn) -> None:
        super().__init__(run)
        self._stand_in = stand_in

    def begin(self, pupils: Sequence[Pupil]) -> None:
        (self._pupil,) = pupils
        whole, device = self.run.source.whole, self.run.source.device
        mine = pinned_copy(self._pupil.rows, whole.x.device)
        self._rows = Rows(whole[mine], device)
        self._stand_in.lock.acquire()
        try:
            model = self._stand_in.become(self._pupil.model)
            self.run.start_learner(model, self._rows)
        except BaseException:
            self._stand_in.lock.release()
            raise

    def learn_epoch(self, epoch: int, interrupt: Interrupt) -> Float[Tensor, " pupils"] | None:
        model, generator = self._stand_in.model, self._pupil.generator
        mean = self.run.learn_epoch(model, self._rows, epoch, generator, interrupt)
        return None if mean is None else mean.unsqueeze(0)

    def give(self) -> None:
        self._stand_in.give(self._pupil.model)

    def end(self) -> None:
        self.run.learner.finish(self._stand_in.model)
        self._stand_in.lock.release()

    def close(self) -> None:
        """The stand-in is not ours."""


class Together(Cohort):
    """Pupils with equally many mini-batches in an epoch, by stochastic EM: see :func:`plan`.

    Each sees the mini-batches that it would see alone. A mini-batch has its share of a prior's
    pseudo-counts, the same for all of an epoch.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        assert isinstance(run.learner, StochasticEM)
        self._learner = run.learner
        self._models: dict[int, SideBySide] = {}

    def begin(self, pupils: Sequence[Pupil]) -> None:
        self._pupils = list(pupils)
        run, device = self.run, self.run.source.device
        # Few numbers of places: on a GPU each is recorded, and kernels compiled, by itself.
        places = 1 << (len(pupils) - 1).bit_length()
        if places not in self._models:
            self._models[places] = SideBySide(pupils[0].model, places)
        self._model = self._models[places]
        for number, pupil in enumerate(pupils):
            self._model.take(number, pupil.model)
        sizes = torch.tensor([len(pupil.rows) for pupil in pupils])
        (self._steps,) = {run.steps(size) for size in sizes.tolist()}
        each = (sizes + self._steps - 1) // self._steps
        # Where the rows of a pupil are in its order, and whether they are real.
        row = torch.arange(int(each.amax())).unsqueeze(1)
        place = torch.arange(self._steps).view(-1, 1, 1) * each + row
        real = (row < each) & (place < sizes)
        self._place, self._sizes = torch.where(real, place, 0), sizes.to(device)
        unused = (0, places - len(pupils))
        self._weights = torch.nn.functional.pad(real.double(), unused).to(device)
        self._counts = self._pseudo_counts()

    def _pseudo_counts(self) -> PseudoCounts | None:
        """The share of a mini-batch."""
        prior, source = self._learner.prior, self.run.source
        if prior is None:
            return None
        each = []
        for pupil in self._pupils:
            rows = source.whole[pinned_copy(pupil.rows, source.whole.x.device)]
            rows = source.seen(rows.to(source.device))
            each.append(prior.pseudo_counts(pupil.model, rows))
        models = [pupil.model for pupil in self._pupils]
        return self._model.pseudo_counts(each, models).for_rows(1 / self._steps)

    def learn_epoch(self, epoch: int, interrupt: Interrupt) -> Float[Tensor, " pupils"] | None:
        run, steps, source = self.run, self._steps, self.run.source
        _, rows, places = self._weights.shape
        total = torch.zeros(places, dtype=torch.float64, device=source.device)
        for step, part in enumerate(source.batches(rows * places, self._order())):
            progress = (epoch * steps + step) / max(1, run.epochs * steps - 1)
            size = self._learner.step_size_at(progress)
            batch = stacked(part, self._weights[step])
            total += self._model.step(batch, size, self._counts)[0]
            if interrupt.requested:
                return None
        return total[: len(self._pupils)] / self._sizes

    def _order(self) -> Int[Tensor, " cells"]:
        """The rows of an epoch: of one pupil after the other for each row of a mini-batch."""
        steps, rows, places = self._weights.shape
        order = torch.zeros(steps, rows, places, dtype=torch.long)
        for number, pupil in enumerate(self._pupils):
            mine = pupil.rows[pupil.order()]
            order[..., number] = mine[self._place[..., number]]
        return pinned_copy(order.flatten(), self.run.source.whole.x.device)

    def give(self) -> None:
        for number, pupil in enumerate(self._pupils):
            pupil.model.initialized = True
            self._model.give(number, pupil.model)

    def end(self) -> None:
        """Nothing of a pupil is kept but its numbers."""

    def close(self) -> None:
        for model in self._models.values():
            replay.forget(model)
        self._models.clear()


def _together_works(learner: Learner) -> bool:
    """Whether a learner can do with several Einets what it does with one."""
    return type(learner) is StochasticEM


def check_together(together: int | None, learner: Learner) -> int | None:
    """The number that a user gave, or raise."""
    if together is None:
        return None
    together = as_int("together", together, minimum=1)
    if together > 1 and not _together_works(learner):
        raise ValueError(
            f"together must be 1 or None with {type(learner).__name__}, got {together}: "
            "only einet.StochasticEM trains several Einets at the same time"
        )
    return together


def most_together(model: Einet, run: Run) -> int:
    """How many had best learn together: 1 where nothing is gained."""
    if not (model.is_fused and model.device.type == "cuda" and _together_works(run.learner)):
        return 1
    circuit = model.circuit
    values = circuit.num_body * circuit.width * model.log_class_prior.element_size()
    data = 4 * model.num_variables
    most = max(1, _ROOM // (run.batch_size * max(values, data)))
    return min(_MOST, 1 << (most.bit_length() - 1))


def plan(sizes: Sequence[int], run: Run, most: int) -> list[list[int]]:
    """Who learns together, given how many rows each has; those without rows are left out.

    Alone they come in their order. Together they have equally many mini-batches in an epoch, and
    sizes that are much alike: the larger ones first.
    """
    present = [number for number, size in enumerate(sizes) if size]
    if most == 1:
        return [[number] for number in present]
    groups = []
    present.sort(key=lambda number: -sizes[number])
    for _, alike in groupby(present, key=lambda number: run.steps(sizes[number])):
        them = list(alike)
        groups += [them[start : start + most] for start in range(0, len(them), most)]
    return groups
