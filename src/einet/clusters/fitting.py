"""An Einet for each cluster of the rows: k-means, and the training of all."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from einet._checks import as_int, as_seed, check_flag
from einet.clusters.arguments import digest, given_clusters, in_memory, read_from
from einet.clusters.components import EinetsOfOneStructure
from einet.clusters.history import ClusterHistory
from einet.clusters.resuming import checked_assignment, checked_inertia
from einet.clusters.together import check_together, most_together
from einet.clusters.training import ClusterSettings, ClusterTraining
from einet.data.kmeans import cluster_means, kmeans, nearest_centre
from einet.data.streams import Rows, Transform
from einet.distributed.starting import jointly
from einet.distributed.team import ALONE, Team
from einet.learning.arguments import (
    as_callbacks,
    as_hide,
    as_learner,
    as_streams,
    check_trainable,
    check_valid,
    finisher,
)
from einet.learning.checkpoint import Checkpoint
from einet.learning.console import Bar, Interrupt
from einet.learning.joining import check_joins, check_joint
from einet.learning.learner import Learner
from einet.learning.report import Callback
from einet.learning.resumption import Resumption
from einet.learning.run_settings import settings_of, structure_of
from einet.learning.watch import Watch

__all__ = ["ClusterFitting"]

# What must be the same for a run to go on.
_SETTINGS = ("epochs", "finish", "batch_size", "seed", "patience", "hide", "from_clusters")


class ClusterFitting(EinetsOfOneStructure):
    """Components that learn from one cluster of the rows each."""

    @jointly
    def fit(
        self,
        train: Any,
        valid: Any = None,
        *,
        epochs: int = 25,
        batch_size: int = 500,
        optimizer: Learner | None = None,
        observed: Any = None,
        valid_observed: Any = None,
        weights: Any = None,
        patience: int | None = None,
        hide: float = 0.0,
        finish: int = 0,
        transform: Transform | None = None,
        clusters: Any = None,
        kmeans_iterations: int = 100,
        from_clusters: bool = False,
        together: int | None = None,
        seed: int = 0,
        device: torch.device | str | None = None,
        callbacks: Callback | Sequence[Callback] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        every: float | int | None = None,
        resume: bool = False,
        progress: bool = True,
        distributed: bool | Team | None = None,
    ) -> ClusterHistory:
        """Cluster the rows and train the component of each cluster on its rows, from the start.

        The result depends on the data, these settings and the seed alone, whatever the parameters
        were before. Ctrl-C ends the training after the current mini-batch; components that were
        not reached then have weight 0.

        Args:
            train: Training rows ``[rows, variables]``, NaN where a cell is missing. They are kept
                in the type they come in: images are best given as bytes, with a ``transform``.
            valid: Validation rows, in the units of ``train``. Each belongs to the cluster with the
                nearest centre, and the Einet of that cluster ends up as it was after its best epoch
                on them; one without any keeps its last epoch.
            epochs: How often each cluster's Einet goes through its rows (at most, with
                ``patience``).
            batch_size: The most rows in a mini-batch; all of an epoch's are of equal size, up to
                one row.
            optimizer: How to learn. By default :class:`~einet.StochasticEM` with a step size that
                falls from 0.5 to 0.05; the paper's is ``StochasticEM(0.5)``.
            observed, valid_observed: Masks, True where a cell is known (for integer data).
            weights: How often each row counts, for the clusters too; once by default.
            patience, hide, finish: As in :func:`einet.fit`, for every cluster's Einet.
            transform: What is done to rows when they are used, such as ``lambda x: x / 255``. It is
                given some rows as a tensor on the model's device. Queries expect what it returns.
            clusters: The cluster of each row, in place of k-means.
            kmeans_iterations: The most iterations of k-means.
            from_clusters: Whether entry k of all leaves and sums of a component starts out as one
                of K clusters within its cluster, as with ``Einet.initialize(clusters=True)``. With
                linear sums EM often ends in a better place from there.
            together: How many clusters' Einets learn at the same time, as one circuit with all
                their sums, by :class:`~einet.StochasticEM` alone. By default 1 on a CPU, and on a
                GPU as many as keep it busy, up to 16. Results differ by rounding, and with a prior
                by what mini-batches have of it: as much each, in place of their rows' share.
            seed: Seed of everything random.
            device: Where to move the model before training; it stays there.
            callbacks: As in :func:`einet.fit`; called after each epoch of each cluster. ``stop()``
                ends all training.
            checkpoint, every, resume: As in :func:`einet.fit`. What is compared with the run that
                wrote the file is said there; ``together`` is not, but taken from the file.
            progress: Whether to show a progress bar.
            distributed: As in :func:`einet.fit`. Every process trains whole clusters, and all have
                all of them in the end: the same as one process would, bit by bit, on CPUs with as
                many threads. Rows must be the same in all processes. Callbacks are called by the
                process that trains the cluster. A checkpoint is written once every process has
                trained one more; what was begun after that is begun anew by ``resume``. Where
                there is only one cluster, processes share its rows as in :func:`einet.fit`.
        """
        team = distributed if isinstance(distributed, Team) else ALONE
        check_trainable(self)
        settings = ClusterSettings(
            learner=as_learner(optimizer),
            finisher=finisher(as_int("finish", finish, minimum=0), as_learner(optimizer)),
            epochs=as_int("epochs", epochs, minimum=1),
            finish=int(finish),
            batch_size=as_int("batch_size", batch_size, minimum=1),
            seed=as_seed(seed),
            patience=None if patience is None else as_int("patience", patience, minimum=1),
            hide=as_hide(hide),
            from_clusters=from_clusters,
        )
        flags = {"from_clusters": from_clusters, "resume": resume, "progress": progress}
        for name, flag in flags.items():
            check_flag(name, flag)
        together = check_together(together, settings.learner)
        calls = as_callbacks(callbacks)
        check_valid(valid, valid_observed=valid_observed, patience=patience)
        began = time.perf_counter()
        rows, others = in_memory(
            *as_streams(
                self, train, valid, device, transform, observed=observed,
                valid_observed=valid_observed, weights=weights,
            )
        )  # fmt: skip
        given = (
            None
            if clusters is None
            else given_clusters(clusters, self.num_clusters, len(rows), weights)
        )
        max_iterations = as_int("kmeans_iterations", kmeans_iterations, minimum=1)
        # Only the first process writes; a checkpoint knows nothing of how many there are.
        file = Checkpoint(checkpoint, every) if team.first else Checkpoint(None)
        asked = {name: getattr(settings, name) for name in _SETTINGS}
        asked["clusters"] = ["k-means", max_iterations] if given is None else digest(given)
        if checkpoint is not None:
            file.settings = {
                **settings_of("fit", self.einets, rows, others, settings.learner), **asked
            }  # fmt: skip
        joint = {"checkpoint": checkpoint is not None, "resume": resume, "callbacks": bool(calls)}
        check_joint(
            team, self, structure_of(self.einets[0]), rows, others, settings.learner,
            {**asked, **joint, "together": together, "num_clusters": self.num_clusters},
        )  # fmt: skip
        with ExitStack() as held:
            held.enter_context(file)
            state = team.from_first(file.read) if resume else None
            resumption = held.enter_context(Resumption(read_from(file, checkpoint, state), self))
            if device is not None:
                self.to(device)
            inertia: list[float] = []
            if state is not None:
                with resumption.reading():
                    assignment = checked_assignment(
                        state[1].get("assignment"), len(rows), self.num_clusters, given
                    )
                    inertia = checked_inertia(
                        state[0].get("inertia"), 0 if given is not None else max_iterations
                    )
            elif given is not None:
                assignment = given
            else:

                def clustered() -> tuple[Tensor, list[float]]:
                    clustering = kmeans(
                        rows, self.num_clusters, seed=settings.seed, max_iterations=max_iterations
                    )
                    return clustering.assignment.cpu(), clustering.inertia

                assignment, inertia = team.from_first(clustered)
            self.remember(rows.columns)
            nearest = None
            if others is not None:
                nearest = nearest_centre(others, cluster_means(rows, assignment, self.num_clusters))
            most = together
            if most is None:
                most = most_together(self.einets[0], settings.learner, settings.batch_size)
            training = ClusterTraining(
                self.einets, rows, assignment, others, nearest, settings, file, self._stand_in(),
                most, inertia, calls, team,
            )  # fmt: skip
            if training.shares_rows:
                check_joins(settings.learner, team)
            if state is not None:
                training.resume(*state, resumption)
            trained = time.perf_counter()
            one = self.num_clusters == 1
            units = settings.epochs + settings.finish if one else self.num_clusters
            unit = "epoch" if one else "cluster"
            with (
                Interrupt(by_term=checkpoint is not None) as interrupt,
                Bar(units, training.steps, progress and team.first, unit) as bar,
            ):
                watch = Watch(training.asked(interrupt), bar)
                training.train(watch, (lambda number: None) if one else bar.at)
        history = ClusterHistory(
            sizes=training.sizes,
            train=[each.train for each in training.histories],
            valid=[each.valid for each in training.histories],
            best_epochs=[each.best_epoch for each in training.histories],
            inertia=inertia,
            clustering_seconds=trained - began,
            training_seconds=time.perf_counter() - trained,
        )
        if not training.finished:
            history.stopped = "callback" if training.stopped_by_callback else "interrupted"
        self._weigh(rows, assignment, [bool(each.train) for each in training.histories])
        return team.from_first(lambda: history)

    def _weigh(self, rows: Rows, assignment: Tensor, trained: list[bool]) -> None:
        """Weigh the components by what their clusters weigh; those not reached get nothing."""
        weights = rows.given.weights
        weights = None if weights is None else weights.cpu()
        shares = torch.bincount(assignment.cpu(), weights, minlength=self.num_clusters).double()
        shares *= torch.tensor(trained)
        if shares.sum() > 0:
            with torch.no_grad():
                self.log_weights.copy_((shares / shares.sum()).log())
