"""Training one Einet for each cluster of rows, one after the other or some at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from einet._memory import fitting
from einet.clusters.resuming import ClusterState, Lesson, lessons_of
from einet.clusters.sharing import next_round, owners, share_results
from einet.clusters.side_by_side import SideBySide
from einet.clusters.stand_in import StandIn, copy_parameters, twin
from einet.clusters.together import TogetherTrainee, plan
from einet.data.streams import Rows
from einet.distributed.shards import shard_of
from einet.distributed.stopping import Asked, LooseStopping, Stopping
from einet.distributed.team import ALONE, Team
from einet.engine import replay
from einet.engine.initialize import initialize_leaves
from einet.engine.initialize_clusters import initialize_from_clusters
from einet.learning.checkpoint import Checkpoint
from einet.learning.history import History
from einet.learning.joining import joint_report
from einet.learning.learner import Learner
from einet.learning.loop import Loop
from einet.learning.model_trainee import ModelTrainee
from einet.learning.report import Callback, report_to
from einet.learning.resumption import Resumption
from einet.learning.saver import Saver
from einet.learning.snapshot import check_numbers, numbers_by_name, restore_numbers
from einet.learning.steps import generator_of
from einet.learning.trainee import check_prefixes, under
from einet.learning.watch import Watch
from einet.models.einet import Einet

__all__ = ["ClusterSettings", "ClusterTraining"]

# How often the state of clusters in training is kept, to go back to after an interruption.
_SECONDS_BETWEEN_COPIES = 1.0


@dataclass(frozen=True)
class ClusterSettings:
    """How every cluster's Einet learns; see :meth:`einet.ClusteredEinet.fit`."""

    learner: Learner
    finisher: Learner | None
    epochs: int
    finish: int
    batch_size: int
    seed: int
    patience: int | None
    hide: float
    from_clusters: bool


class ClusterTraining:
    """One run. Every cluster has random numbers of its own, so that a run can go on at any of them.

    Args:
        einets: The Einets to be trained; all of one structure.
        rows: The training rows.
        assignment: The cluster of each row.
        valid, valid_assignment: Validation rows and the cluster of each; None for none.
        settings: How they learn.
        checkpoint: Where to write what has been trained.
        stand_in: What learns in place of each Einet, if one learns at a time.
        together: How many learn at the same time.
        inertia: How k-means went; for the record.
        callbacks: Called after every epoch of every cluster.
        team: Processes that share the clusters between them; or, if there is only one, its rows.
    """

    def __init__(
        self,
        einets: list[Einet],
        rows: Rows,
        assignment: Int[Tensor, " rows"],
        valid: Rows | None,
        valid_assignment: Int[Tensor, " valid_rows"] | None,
        settings: ClusterSettings,
        checkpoint: Checkpoint,
        stand_in: StandIn,
        together: int,
        inertia: list[float],
        callbacks: Sequence[Callback] = (),
        team: Team = ALONE,
    ) -> None:
        self.team, self.stopping = team, Stopping(team)
        self.einets, self.rows, self.settings = einets, rows, settings
        self.assignment, self.checkpoint, self.stand_in = assignment.cpu(), checkpoint, stand_in
        self.inertia, self.callbacks, self.validated = inertia, callbacks, valid is not None
        count = len(einets)
        self.sizes: list[int] = torch.bincount(self.assignment, minlength=count).tolist()
        self._members = self.assignment.argsort(stable=True).split(self.sizes)
        self._valid = _by_cluster(valid, valid_assignment, count)
        groups = plan(self.sizes, settings.batch_size, together)
        self.lessons = lessons_of(groups, settings.finisher is not None)
        #: Lessons that are over.
        self.done = 0
        self.histories = [History() for _ in einets]
        self._loop: Loop | None = None
        self._resumed: tuple[dict[str, Any], dict[str, Tensor], Resumption] | None = None
        self._models: dict[int, SideBySide] = {}
        self.stopped_by_callback = False
        self._kept_elsewhere = team.any(checkpoint.path is not None)
        #: Whether several processes learn from the rows of one cluster, rather than one from each.
        self.shares_rows = not team.alone and sum(map(bool, self.sizes)) == 1

    @property
    def keeps(self) -> bool:
        """Whether there is a checkpoint, in whichever process."""
        return self.checkpoint.path is not None or self._kept_elsewhere

    @property
    def finished(self) -> bool:
        """Whether all lessons are over."""
        return self.done == len(self.lessons)

    @property
    def steps(self) -> int:
        """The number of steps of all lessons."""
        return sum(self._epochs(lesson) * self._steps(lesson) for lesson in self.lessons)

    def asked(self, interrupt: Asked) -> Asked:
        """What tells of an interruption of one of the processes.

        Those that share rows stop after the same step; others once they have heard of it.
        """
        if self.team.alone:
            return interrupt
        if self.shares_rows:
            return self.stopping.watch(interrupt)
        return LooseStopping(self.team, interrupt)

    def _epochs(self, lesson: Lesson) -> int:
        return self.settings.finish if lesson.finishing else self.settings.epochs

    def _steps(self, lesson: Lesson) -> int:
        return -(-self.sizes[lesson.clusters[0]] // self.settings.batch_size)

    # -- going on --------------------------------------------------------------------------------

    def resume(
        self, plain: dict[str, Any], tensors: dict[str, Tensor], resumption: Resumption
    ) -> None:
        """Take up what a checkpoint holds."""
        settings = self.settings
        with resumption.reading():
            state = ClusterState.from_plain(
                plain,
                sizes=self.sizes,
                batch_size=settings.batch_size,
                stackable=settings.learner.stackable,
                epochs=settings.epochs,
                finish=settings.finish,
                scored=[valid is not None for valid in self._valid],
            )
            taught = {f"einets.{number}.": self.einets[number] for number in state.taught}
            loop = [] if state.loop is None else ["loop."]
            check_prefixes(tensors, ["assignment", *taught, *loop])
            for prefix, einet in taught.items():
                check_numbers(einet, under(prefix, tensors), prefix)
        for prefix, einet in taught.items():
            restore_numbers(einet, under(prefix, tensors))
            einet.initialized = True
        self.lessons, self.done, self.histories = state.lessons, state.done, state.histories
        if state.loop is None:
            resumption.done()
        else:
            self._resumed = state.loop, under("loop.", tensors), resumption

    def save(self) -> None:
        """Write a checkpoint."""
        tensors: dict[str, Tensor] = {"assignment": self.assignment.to(torch.int32)}
        loop = None
        if self._loop is not None:
            loop, of_loop = self._loop.state()
            tensors |= {f"loop.{name}": tensor for name, tensor in of_loop.items()}
        state = ClusterState(self.lessons, self.done, self.histories, loop)
        for number in state.taught:
            numbers = numbers_by_name(self.einets[number])
            tensors |= {f"einets.{number}.{name}": tensor for name, tensor in numbers.items()}
        plain = state.to_plain(self.inertia)
        if loop is not None:
            # A loop that was taken up from a checkpoint keeps its own records until it ends.
            records = zip(self.lessons[self.done].clusters, loop["loop"]["histories"], strict=True)
            for number, record in records:
                plain["histories"][number] = record
        self.checkpoint.write(plain, tensors)

    def _taught(self) -> list[int]:
        """Clusters whose Einets have been through a lesson."""
        return ClusterState(self.lessons, self.done, self.histories, None).taught

    # -- training --------------------------------------------------------------------------------

    @torch.no_grad()
    def train(self, watch: Watch, show_cluster: Callable[[int], None]) -> None:
        """Give the lessons that are left."""
        start = self._start()
        for einet, size in zip(self.einets, self.sizes, strict=True):
            if not size:
                copy_parameters(start, einet)
                einet.initialized = True
        for lesson in self.lessons[: self.done]:
            watch.skip(self._epochs(lesson), self._steps(lesson))
        shared = not self.team.alone and not self.shares_rows
        interrupted = False
        if self.checkpoint.due and self._resumed is None:
            # Before anything is learnt: the clusters are known, and a full disk is told of.
            self.save()
        try:
            with self.stand_in.lock:
                while not self.finished and not self.stopped_by_callback:
                    show_cluster(len(self._taught()) + 1)
                    if shared:
                        if not self._teach_round(start, watch):
                            return
                        continue
                    if not self._teach(self.lessons[self.done], start, watch):
                        interrupted = True
                        break
                    self.done += 1
                    if self.checkpoint.due:
                        self.save()
        finally:
            for model in self._models.values():
                replay.forget(model)
            self._models.clear()
        # An interrupted lesson has been saved before its Einets went back to a full epoch.
        if self.checkpoint.path is not None and not interrupted:
            self.save()

    def _teach_round(self, start: Einet, watch: Watch) -> bool:
        """Some lessons, each by one process; whether all could be given to their end.

        What was learnt is written only then: a checkpoint knows nothing of who taught whom.
        """
        several = self.team.size if self.keeps else None
        lessons = next_round(self.lessons, self.done, several)
        costs = [sum(self.sizes[number] for number in lesson.clusters) for lesson in lessons]
        by, complete = owners(costs, self.team.size), True
        if self._resumed is not None and by[0] != self.team.rank:
            # Only who gives the lesson goes on within it.
            self._resumed[2].done()
            self._resumed = None
        for lesson, teacher in zip(lessons, by, strict=True):
            if teacher == self.team.rank and complete:
                complete = self._teach(lesson, start, watch) and not self.stopped_by_callback
        if self.stopped_by_callback:
            self.team.tell("stop")
        share_results(self.team, lessons, by, self.einets, self.histories)
        self.stopped_by_callback = self.team.any(self.stopped_by_callback)
        if self.team.any(not complete):
            return False
        self.done += len(lessons)
        if self.checkpoint.path is not None:
            self.save()
        return True

    def _teach(self, lesson: Lesson, start: Einet, watch: Watch) -> bool:
        """One lesson; whether it could be given to its end."""
        if not lesson.finishing:
            # In a run that goes on, too: priors ask for the units of the leaves.
            for number in lesson.clusters:
                self._initialize(number, start)
                if self.shares_rows:
                    self.team.copy_from_(list(numbers_by_name(self.einets[number]).values()))
        trainee, teacher = self._trainee(lesson)
        try:
            loop = self._loop = Loop(
                trainee,
                self._epochs(lesson),
                watch,
                patience=None if lesson.finishing else self.settings.patience,
                validated=any(self._valid[number] is not None for number in lesson.clusters),
                histories=[self.histories[number] for number in lesson.clusters],
                after_epoch=[self._report(lesson)],
                saver=self._saver(),
                # Processes that share rows must go back to the same epoch.
                seconds_between_copies=0.0 if self.shares_rows else _SECONDS_BETWEEN_COPIES,
            )
            if self._resumed is not None:
                plain, tensors, resumption = self._resumed
                earlier = range(1, self.settings.epochs + 1) if lesson.finishing else range(1)
                with resumption.reading():
                    loop.load_state(plain, tensors, earlier)
                resumption.done()
                self._resumed = None
            loop.run()
            interrupted = watch.interrupted and not loop.finished
            if interrupted and not loop.validated:
                # The last full epoch that is kept: the checkpoint goes on from there too.
                trainee.restore(False)
            if not interrupted or loop.kept > 0:
                self._give(trainee, lesson)
        finally:
            if teacher is not None:
                teacher.finish(self.stand_in.model)
                teacher.team = ALONE
        for number, history in zip(lesson.clusters, loop.histories, strict=True):
            self.histories[number] = history.cut(loop.before + loop.kept)
        self.stopped_by_callback = loop.stopped_by_callback
        if interrupted:
            return False
        self._loop = None
        return True

    def _saver(self) -> Saver | None:
        # Of clusters that processes have shared out between them, all are written together.
        if self.checkpoint.path is None or not (self.team.alone or self.shares_rows):
            return None
        return Saver(lambda: self.checkpoint.due, self._save_lesson)

    def _save_lesson(self, loop: Loop) -> None:
        """Write a checkpoint in the course of a lesson; what is over is saved with the next one."""
        if not loop.finished or self.checkpoint.due:
            self.save()

    def _report(self, lesson: Lesson) -> Any:
        report = report_to(self.callbacks, lesson.clusters)
        return joint_report(self.team, report, self.callbacks) if self.shares_rows else report

    def _trainee(self, lesson: Lesson) -> tuple[ModelTrainee | TogetherTrainee, Learner | None]:
        """What learns, and the learner that was started for it."""
        settings, clusters = self.settings, lesson.clusters
        if len(clusters) > 1:
            # Few numbers of places: on a GPU each is recorded, and kernels compiled, by itself.
            places = 1 << (len(clusters) - 1).bit_length()
            if places not in self._models:
                self._models[places] = SideBySide(self.einets[clusters[0]], places)
            return TogetherTrainee(
                self._models[places],
                [self.einets[number] for number in clusters],
                clusters,
                settings.learner,
                self.rows,
                [self._members[number] for number in clusters],
                [self._valid[number] for number in clusters],
                batch_size=settings.batch_size,
                seed=settings.seed,
                hide=settings.hide,
                stand_in=self.stand_in,
            ), None
        (number,) = clusters
        rows, valid = self.rows.subset(self._members[number]), self._valid[number]
        size, learner = len(rows), settings.learner
        if lesson.finishing:
            assert settings.finisher is not None
            learner = settings.finisher
        model = self.stand_in.become(self.einets[number])
        if self.shares_rows:
            learner.team = self.team
            rows = shard_of(rows, self.team, self.stopping, False)
            valid = None if valid is None else shard_of(valid, self.team, self.stopping, False)
        learner.start(model, rows)
        trainee = _ClusterTrainee(
            model,
            learner,
            rows,
            valid,
            batch_size=settings.batch_size,
            seed=None if lesson.finishing else (settings.seed, 2, number),
            hide=0.0 if lesson.finishing else settings.hide,
            fill=model.device.type == "cuda" and learner.stackable,
        )
        trainee.cluster, trainee.size = number, size
        trainee.rows_name = f"rows of cluster {number}"
        if self.keeps:
            trainee.make_resumable()
        return trainee, learner

    def _give(self, trainee: ModelTrainee | TogetherTrainee, lesson: Lesson) -> None:
        """Copy what was learnt to the clusters' Einets."""
        if isinstance(trainee, TogetherTrainee):
            if not any(self._valid[number] is not None for number in lesson.clusters):
                trainee.give()
        else:
            self.stand_in.give(self.einets[lesson.clusters[0]])

    # -- the start -------------------------------------------------------------------------------

    def _start(self) -> Einet:
        """What all components begin as, with the leaves of the whole data.

        A cluster in which a variable is never observed is left with that variable's.
        """
        start = twin(self.einets[0]).cpu()
        generator = generator_of(self.settings.seed, 0)
        start.circuit.randomize(generator)
        initialize_leaves(start.leaf, None, generator)
        start.to(self.rows.device)
        initialize_leaves(start.leaf, self.rows.some(self._most_rows, generator), generator)
        return start

    @property
    def _most_rows(self) -> int:
        return fitting("first rows", 4 * self.rows.num_variables)

    def _initialize(self, number: int, start: Einet) -> None:
        """Let an Einet start from the rows of its cluster."""
        einet, generator = self.einets[number], generator_of(self.settings.seed, 1, number)
        copy_parameters(start, einet)
        einet.initialized = True
        data = self.rows.subset(self._members[number]).some(self._most_rows, generator)
        if self.settings.from_clusters:
            initialize_from_clusters(einet, data, generator)
        else:
            initialize_leaves(einet.leaf, data, generator)


class _ClusterTrainee(ModelTrainee):
    """One cluster's Einet, in the shape of the stand-in."""

    cluster: int
    size: int

    def name(self, number: int) -> str:
        return f" of cluster {self.cluster}, of {self.size} rows"

    def since(self) -> str:
        return ""


def _by_cluster(
    rows: Rows | None, assignment: Int[Tensor, " rows"] | None, count: int
) -> list[Rows | None]:
    """The rows of each cluster; None where it has none."""
    if rows is None or assignment is None:
        return [None] * count
    members = [(assignment.cpu() == number).nonzero().flatten() for number in range(count)]
    return [rows.subset(index) if len(index) else None for index in members]
