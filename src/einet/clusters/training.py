"""Training one Einet for each cluster of rows, one after the other or some at a time."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from os import PathLike
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from einet.clusters.cohort import Alone, Cohort, Pupil, Together, most_together, plan
from einet.clusters.stand_in import StandIn, copy_parameters, twin
from einet.data.batch import Batch
from einet.data.kmeans import kmeans
from einet.data.rows import Rows
from einet.engine.initialize import initialize_leaves
from einet.engine.initialize_clusters import initialize_from_clusters
from einet.learning.checkpoint import Checkpoint, floating_state, settings_of
from einet.learning.console import Bar, Interrupt
from einet.learning.em import EM, StochasticEM
from einet.learning.epoch import Run, generator_of, pinned_copy
from einet.learning.history import Stopped
from einet.models.einet import Einet

__all__ = ["ClusterHistory", "train_clusters"]

# How often a number is read while training runs; on a GPU each reading waits for it.
_SECONDS_BETWEEN_LOOKS = 0.2
# How often the state of a cluster in training is kept, to go back to after an interruption.
_SECONDS_BETWEEN_COPIES = 1.0
# Initial leaves are read off so many cells at most.
_MOST_CELLS = 1 << 25


@dataclass(repr=False)
class ClusterHistory:
    """What :meth:`einet.ClusteredEinet.fit` measured.

    Attributes:
        sizes: The number of rows in each cluster.
        train: For each cluster, the mean log-likelihood of its rows in the course of every epoch
            under the cluster's own Einet; empty for an empty cluster and for one not reached.
        inertia: The sum of squared distances between rows and their centres in every iteration of
            k-means; empty where clusters were given.
        clustering_seconds: Wall time of k-means, with a look through all rows.
        training_seconds: Wall time of the training after that.
        stopped: Why it ended: ``"finished"`` or ``"interrupted"``.
    """

    sizes: list[int] = field(default_factory=list)
    train: list[list[float]] = field(default_factory=list)
    inertia: list[float] = field(default_factory=list)
    clustering_seconds: float = 0.0
    training_seconds: float = 0.0
    stopped: Stopped = "finished"

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as lists and plain values."""
        return asdict(self)

    def __repr__(self) -> str:
        seconds = f"{self.clustering_seconds:.1f} + {self.training_seconds:.1f} s"
        trained = sum(map(bool, self.train))
        return (
            f"ClusterHistory({trained} of {len(self.sizes)} clusters in {seconds}, {self.stopped})"
        )


def train_clusters(
    components: list[Einet],
    run: Run,
    clusters: int | Int[Tensor, " rows"],
    checkpoint: str | PathLike[str] | None,
    resume: bool,
    progress: bool,
    stand_in: StandIn,
    together: int | None,
) -> ClusterHistory:
    """What :meth:`einet.ClusteredEinet.fit` does, but for the components' weights.

    Args:
        components: The Einets to be trained; all of one structure.
        run: The rows, and how to learn from them.
        clusters: The cluster of each row, or how many iterations of k-means may look for them.
        checkpoint, resume, progress: As there.
        stand_in: What learns in place of each component, if one learns at a time.
        together: How many learn at the same time; as many as is best if None.
    """
    count, history = len(components), ClusterHistory()
    told = ["k-means", clusters]
    if isinstance(clusters, Tensor):
        told = ["given", float(clusters @ (torch.arange(len(clusters)) % 1009 + 1))]
    file = Checkpoint(checkpoint, {**settings_of("fit", components, run), "clusters": told})
    state = file.read() if resume else None
    if state is not None:
        assignment, history.inertia = state[1]["assignment"].long(), state[0]["inertia"]
    elif isinstance(clusters, Tensor):
        assignment = clusters
    else:
        found = kmeans(run.source, count, seed=run.seed, max_iterations=clusters)
        assignment, history.inertia = found.assignment, found.inertia
    most = most_together(components[0], run) if together is None else together
    training = _Training(components, run, assignment, file, stand_in, most, history.inertia)
    if state is not None:
        training.resume(*state)
    began = time.perf_counter()
    with Interrupt() as interrupt, Bar(count, count * run.epochs, progress, "cluster") as bar:
        history.train = training.train(bar, interrupt)
    history.sizes, history.training_seconds = training.sizes, time.perf_counter() - began
    if not training.finished:
        history.stopped = "interrupted"
    return history


class _Training:
    """One run. Every cluster has random numbers of its own, so that a run can go on at any of them.

    Args:
        components: The Einets to be trained; all of one structure.
        run: The rows, and how to learn from them.
        assignment: The cluster of each row.
        checkpoint: Where to write what has been trained.
        stand_in: What learns in place of each component, if one learns at a time.
        together: How many learn at the same time.
        inertia: What k-means found; for the record.
    """

    def __init__(
        self,
        components: list[Einet],
        run: Run,
        assignment: Int[Tensor, " rows"],
        checkpoint: Checkpoint,
        stand_in: StandIn,
        together: int,
        inertia: list[float],
    ) -> None:
        self.components, self.run, self.source = components, run, run.source
        self.assignment, self.checkpoint, self.stand_in = assignment.cpu(), checkpoint, stand_in
        self.inertia, self.epochs = inertia, run.epochs
        count = len(components)
        self.sizes: list[int] = torch.bincount(self.assignment, minlength=count).tolist()
        self._order = self.assignment.argsort(stable=True).split(self.sizes)
        #: Clusters that are trained at the same time.
        self.groups = plan(self.sizes, run, together)
        # Of clusters in the order of the groups. On the model's device: a number read from a GPU in
        # each step would be waited for, and so would be numbers of clusters.
        kind: Any = {"dtype": torch.float64, "device": run.source.device}
        self.means = torch.zeros(count, run.epochs, **kind)
        self._ends = torch.zeros(count, **kind)
        #: Groups that are trained, and epochs that the components of the next one have seen.
        self.done, self.epoch = 0, 0
        self._looked = self._copied = time.perf_counter()
        #: Whether the learner carries nothing from epoch to epoch but the model.
        self._divisible = isinstance(run.learner, EM | StochasticEM)

    @property
    def finished(self) -> bool:
        """Whether all clusters are trained."""
        return self.done == len(self.groups)

    @property
    def _places(self) -> slice:
        """Where the next group is in the order of the groups."""
        first = sum(map(len, self.groups[: self.done]))
        return slice(first, first + len(self.groups[self.done]))

    # -- going on --------------------------------------------------------------------------------

    def resume(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Take up what a checkpoint holds."""
        self.groups, self.done, self.epoch = state["groups"], state["done"], state["epoch"]
        self.means.copy_(tensors["means"])
        for number in self._started():
            component = self.components[number]
            for name, tensor in floating_state(component, f"components.{number}.").items():
                tensor.copy_(tensors[name])
            component.initialized = True

    def save(self) -> None:
        """Write a checkpoint."""
        self._sound()
        tensors = {"assignment": self.assignment.to(torch.int32), "means": self.means}
        for number in self._started():
            tensors |= floating_state(self.components[number], f"components.{number}.")
        state = {"groups": self.groups, "done": self.done, "epoch": self.epoch}
        self.checkpoint.write({**state, "inertia": self.inertia}, tensors)

    def _started(self) -> list[int]:
        """The clusters whose components have learnt something."""
        groups = self.groups[: self.done + (self.epoch > 0)]
        return [number for group in groups for number in group]

    # -- training --------------------------------------------------------------------------------

    @torch.no_grad()
    def train(self, bar: Bar, interrupt: Interrupt) -> list[list[float]]:
        """Train what is not trained yet; the mean log-likelihood of each cluster and epoch."""
        if not self.finished:
            self._train_rest(bar, interrupt)
        self._sound()
        if self.checkpoint.path is not None:
            self.save()
        result: list[list[float]] = [[] for _ in self.components]
        trained = sum(map(len, self.groups[: self.done]))
        for place, (number, means) in enumerate(
            zip(self._started(), self.means.tolist(), strict=False)
        ):
            result[number] = means if place < trained else means[: self.epoch]
        return result

    def _train_rest(self, bar: Bar, interrupt: Interrupt) -> None:
        start, empty = self._start(), self.sizes.count(0)
        for component, size in zip(self.components, self.sizes, strict=True):
            if not size:
                copy_parameters(start, component)
                component.initialized = True
        trained = sum(map(len, self.groups[: self.done]))
        under_way = self.epoch * len(self.groups[self.done])
        bar.advance((empty + trained) * self.epochs + under_way)
        alone, together = Alone(self.run, self.stand_in), None
        try:
            while not self.finished:
                cohort = alone
                if len(self.groups[self.done]) > 1:
                    cohort = together = together or Together(self.run)
                if not self._train(cohort, start, bar, interrupt):
                    return
                if self.checkpoint.due:
                    self.save()
        finally:
            if together is not None:
                together.close()

    def _start(self) -> Einet:
        """What all components begin as, with the leaves of the whole data.

        A cluster in which a variable is never observed is left with that variable's.
        """
        start = twin(self.components[0]).cpu()
        generator = generator_of(self.run.seed, 0)
        start.circuit.randomize(generator)
        initialize_leaves(start.leaf, None, generator)
        start.to(self.source.device)
        data = self._some(Rows(self.source.whole, self.source.device), generator)
        initialize_leaves(start.leaf, data, generator)
        return start

    def _initialize(self, number: int, start: Einet) -> None:
        """Let a component start from the rows of its cluster."""
        component, generator = self.components[number], generator_of(self.run.seed, 1, number)
        copy_parameters(start, component)
        component.initialized = True
        mine = pinned_copy(self._order[number], self.source.whole.x.device)
        data = self._some(Rows(self.source.whole[mine], self.source.device), generator)
        if self.run.from_clusters:
            initialize_from_clusters(component, data, generator)
        else:
            initialize_leaves(component.leaf, data, generator)

    def _some(self, rows: Rows, generator: torch.Generator) -> Batch:
        """Rows as the model sees them, or some of very many."""
        data, most = rows.batch, max(1, _MOST_CELLS // self.source.num_variables)
        if len(data) > most:
            data = data[torch.randperm(len(data), generator=generator)[:most]]
        return self.source.seen(data.to(self.source.device))

    def _train(self, cohort: Cohort, start: Einet, bar: Bar, interrupt: Interrupt) -> bool:
        """Train the next clusters' components; whether they could be finished."""
        group, pupils = self.groups[self.done], []
        for number in group:
            if self.epoch == 0:
                self._initialize(number, start)
            generator = generator_of(self.run.seed, 2, number)
            pupil = Pupil(self.components[number], self._order[number], generator)
            for _ in range(self.epoch):
                # These orders were those of the epochs before.
                pupil.order()
            pupils.append(pupil)
        cohort.begin(pupils)
        try:
            for epoch in range(self.epoch, self.epochs):
                means = cohort.learn_epoch(epoch, interrupt)
                if means is None:
                    return False
                self.means[self._places, epoch] = means
                self._after_epoch(cohort, epoch, bar)
            cohort.give()
        finally:
            cohort.end()
        # The last step is judged by no log-likelihood.
        sums = [torch.stack([p.sum() for p in each.model.parameters()]).sum() for each in pupils]
        self._ends[self._places] = torch.stack(sums).double()
        self.done, self.epoch = self.done + 1, 0
        return True

    def _after_epoch(self, cohort: Cohort, epoch: int, bar: Bar) -> None:
        group, now = self.groups[self.done], time.perf_counter()
        last = epoch + 1 == self.epochs
        if self._divisible and not last and now - self._copied > _SECONDS_BETWEEN_COPIES:
            cohort.give()
            self.epoch, self._copied = epoch + 1, now
            if self.checkpoint.due:
                self.save()
        if now - self._looked > _SECONDS_BETWEEN_LOOKS:
            self._sound()
            bar.show(train=float(self.means[self._places, epoch].mean()))
            self._looked = time.perf_counter()
        bar.advance(len(group))

    def _sound(self) -> None:
        """Raise if something is NaN."""
        bad = (self.means.isnan().any(1) | self._ends.isnan()).nonzero().flatten().tolist()
        if bad:
            number = [number for group in self.groups for number in group][bad[0]]
            size = self.run.learner.step_size_at(0.0)
            step = "" if size is None else f", or too large a step (it was {size:g} at first)"
            raise FloatingPointError(
                f"NaN in the training of cluster {number}, of {self.sizes[number]} rows: look for "
                f"extreme values in the data{step}"
            )
