"""Clusters of data, with an Einet for each: a mixture for data too varied for a single one."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils import parametrize

from einet._checks import as_int, as_seed, check_flag
from einet._memory import check_memory
from einet.clusters.arguments import digest, given_clusters, in_memory
from einet.clusters.history import ClusterHistory
from einet.clusters.refine import MixtureTrainee
from einet.clusters.resuming import checked_assignment, checked_inertia
from einet.clusters.stand_in import StandIn, twin
from einet.clusters.together import check_together, most_together
from einet.clusters.training import ClusterSettings, ClusterTraining
from einet.data.batch import Batch
from einet.data.kmeans import cluster_means, kmeans, nearest_centre
from einet.data.streams import Rows, Transform
from einet.distributed.starting import jointly
from einet.distributed.stopping import Stopping
from einet.distributed.team import ALONE, Team
from einet.engine.root import join
from einet.families import ExponentialFamily
from einet.kernels.dispatch import Precision
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
from einet.learning.em import EM
from einet.learning.history import History
from einet.learning.joining import check_joins, check_joint, joint_report
from einet.learning.learner import Learner
from einet.learning.loop import Loop
from einet.learning.plain import as_count
from einet.learning.report import Callback, report_to
from einet.learning.resumption import Resumption
from einet.learning.run_settings import settings_of, structure_of
from einet.learning.snapshot import numbers_by_name
from einet.learning.watch import Watch
from einet.models.einet import Einet
from einet.models.mixture import Mixture, as_models
from einet.structures import RegionGraph

__all__ = ["ClusteredEinet"]

# What must be the same for a run to go on.
_SETTINGS = ("epochs", "finish", "batch_size", "seed", "patience", "hide", "from_clusters")

# No attribute: it must not be copied, saved or moved with the model.
_stand_ins: WeakKeyDictionary[ClusteredEinet, StandIn] = WeakKeyDictionary()


class ClusteredEinet(Mixture):
    r"""A mixture of Einets on one structure, each trained on one cluster of the rows.

    The paper's model of images (sec. 4.2): k-means finds C clusters, an Einet is learnt from each,
    and they are mixed with the clusters' shares of the rows,
    :math:`p(x) = \sum_c \frac{n_c}{n}\, p_c(x)`. It is a mixture like any other:
    its conditionals draw the component from its exact posterior. Afterwards, :meth:`refine` learns
    all of it together. On a GPU one recorded model answers for all components.

    Args:
        graph: The structure of every component.
        family: The leaves' exponential family: one for all variables or one for each.
        num_sums: K, the number of sums in each inner region.
        num_clusters: C, the number of components.
        num_leaves, sums, precision, seed, dtype, device: As in :class:`~einet.Einet`.

    Example:
        >>> import einet, torch
        >>> kind = torch.arange(200).unsqueeze(1) % 2
        >>> x = 5.0 * kind + torch.randn(200, 4, generator=torch.manual_seed(0))
        >>> graph = einet.random_trees(num_variables=4, depth=1, replicas=2)
        >>> model = einet.ClusteredEinet(graph, einet.Gaussian(), num_sums=3, num_clusters=2)
        >>> history = model.fit(x, epochs=5, progress=False)
        >>> history.sizes
        [100, 100]
        >>> model.weights
        tensor([0.5000, 0.5000])
        >>> posterior = model.given(torch.tensor([[5.0, *[float("nan")] * 3]]))
        >>> posterior.mean().round()
        tensor([[5., 5., 5., 5.]])
        >>> history = model.refine(x, epochs=2, progress=False)
        >>> history.train[1] > history.train[0]
        True
    """

    def __init__(
        self,
        graph: RegionGraph,
        family: ExponentialFamily | Sequence[ExponentialFamily],
        num_sums: int,
        num_clusters: int,
        *,
        num_leaves: int | None = None,
        sums: str = "einsum",
        precision: Precision = "highest",
        seed: int = 0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        num_clusters = as_int("num_clusters", num_clusters, minimum=1)
        first = Einet(
            graph,
            family,
            num_sums,
            num_leaves=num_leaves,
            sums=sums,
            precision=precision,
            seed=seed,
            dtype=dtype,
            device=device,
        )
        size = sum(tensor.nbytes for tensor in first.state_dict().values())
        check_memory("num_clusters", num_clusters * size)
        super().__init__([first, *(twin(first) for _ in range(num_clusters - 1))])

    @classmethod
    def of(cls, components: Sequence[Einet], weights: Any = None) -> ClusteredEinet:
        """Einets on one structure that were trained elsewhere, such as in a file.

        Args:
            components: The Einets.
            weights: A weight for each, not negative; they are normalised. Equal by default.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> parts = [einet.Einet(graph, einet.Gaussian(), 3, seed=seed) for seed in (0, 1)]
            >>> model = einet.ClusteredEinet.of(parts, weights=[1, 3])
            >>> model.num_clusters, model.weights
            (2, tensor([0.2500, 0.7500]))
        """
        components = as_models(components, Einet)
        first, *others = components
        if any(_form(other) != _form(first) or other.graph != first.graph for other in others):
            raise ValueError("components must have the same structure, families and types")
        model = cls.__new__(cls)
        Mixture.__init__(model, components, weights)
        return model

    @property
    def einets(self) -> list[Einet]:
        """The components.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> model = einet.ClusteredEinet(graph, einet.Gaussian(), num_sums=3, num_clusters=4)
            >>> len(model.einets), model.einets[0].num_sums
            (4, 3)
        """
        return list(self.components)  # type: ignore[arg-type]

    @property
    def num_clusters(self) -> int:
        """C, the number of components.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> einet.ClusteredEinet(
            ...     graph, einet.Gaussian(), num_sums=3, num_clusters=4
            ... ).num_clusters
            4
        """
        return len(self.components)

    @property
    def weights(self) -> Float[Tensor, " components"]:
        """The components' weights."""
        return self.log_weights.detach().exp()

    @property
    def graph(self) -> RegionGraph:
        """The structure of every component."""
        return self.einets[0].graph

    @property
    def precision(self) -> Precision:
        """How exactly the fused kernels multiply; see :class:`~einet.Einet`.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> model = einet.ClusteredEinet(graph, einet.Gaussian(), num_sums=3, num_clusters=2)
            >>> model.precision = "high"
            >>> [part.precision for part in model.einets]
            ['high', 'high']
        """
        return self.einets[0].precision

    @precision.setter
    def precision(self, value: Precision) -> None:
        for component in self.einets:
            component.precision = value

    def check_support(self, batch: Batch, name: str) -> None:
        # All components have the same families.
        self.einets[0].check_support(batch, name)

    def component_log_prob(self, batch: Batch) -> Float[Tensor, "components batch"]:
        if self._plain(batch):
            return super().component_log_prob(batch)
        stand_in = self._stand_in()
        with stand_in.lock:
            logs = [stand_in.become(each).log_prob(batch) for each in self.einets]
        return join(torch.stack(logs), self.log_weights)

    def _plain(self, batch: Batch) -> bool:
        """Whether components answer themselves: where nothing is recorded, and for gradients."""
        first = self.einets[0]
        computed = parametrize.is_parametrized(first.circuit.sum_layers[0])
        return first.device.type != "cuda" or computed or first.is_tracked(batch)

    def _stand_in(self) -> StandIn:
        known = _stand_ins.get(self)
        if known is None or not known.serves(self.einets[0]):
            known = _stand_ins[self] = StandIn(self.einets[0])
        return known

    # -- learning --------------------------------------------------------------------------------

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
            resumption = held.enter_context(Resumption(_read_from(file, checkpoint, state), self))
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

    @jointly
    def refine(
        self,
        train: Any,
        valid: Any = None,
        *,
        epochs: int = 5,
        batch_size: int = 500,
        optimizer: Learner | None = None,
        observed: Any = None,
        valid_observed: Any = None,
        weights: Any = None,
        patience: int | None = None,
        transform: Transform | None = None,
        seed: int = 0,
        device: torch.device | str | None = None,
        callbacks: Callback | Sequence[Callback] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        every: float | int | None = None,
        resume: bool = False,
        progress: bool = True,
        distributed: bool | Team | None = None,
    ) -> History:
        """Learn all components and their weights together, by EM of the mixture as a whole.

        In every epoch rows are shared out between the components by their responsibilities, and
        each component learns from its shares. With :class:`~einet.EM` the log-likelihood never
        falls. With validation rows the model ends up as it was after its best epoch on them, or
        before the first if none was better (``history.best_epoch`` is None then). An interruption
        or an error leaves what the last full epoch left.

        Args:
            train, observed, transform: Training rows; as in :meth:`fit`.
            valid, valid_observed: Validation rows, in the units of ``train``.
            weights, patience: As in :meth:`fit`.
            epochs: How often to share out the rows.
            batch_size: The most rows in a mini-batch.
            optimizer: :class:`~einet.EM` (the default) or :class:`~einet.StochasticEM`, which makes
                more progress in an epoch, but needs small steps not to undo it.
            seed, device, callbacks, checkpoint, every, resume, progress: As in :meth:`fit`.
            distributed: As in :meth:`fit`: in every epoch each process teaches some components,
                and all have what was learnt before the next. Callbacks are the first process's.
        """
        team = distributed if isinstance(distributed, Team) else ALONE
        stopping = Stopping(team)
        check_trainable(self)
        epochs = as_int("epochs", epochs, minimum=1)
        batch_size = as_int("batch_size", batch_size, minimum=1)
        seed = as_seed(seed)
        if patience is not None:
            patience = as_int("patience", patience, minimum=1)
        check_flag("resume", resume)
        check_flag("progress", progress)
        learner = EM() if optimizer is None else as_learner(optimizer)
        if not learner.stateless:
            raise TypeError(
                "optimizer must carry nothing from epoch to epoch, as einet.EM and StochasticEM, "
                f"got {type(learner).__name__}"
            )
        calls = as_callbacks(callbacks)
        check_valid(valid, valid_observed=valid_observed, patience=patience)
        rows, others = in_memory(
            *as_streams(
                self, train, valid, device, transform, observed=observed,
                valid_observed=valid_observed, weights=weights,
            )
        )  # fmt: skip
        file = Checkpoint(checkpoint, every) if team.first else Checkpoint(None)
        asked = {"epochs": epochs, "batch_size": batch_size, "seed": seed, "patience": patience}
        if checkpoint is not None:
            file.settings = {**settings_of("refine", self.einets, rows, others, learner), **asked}
        joint = {"checkpoint": checkpoint is not None, "resume": resume, "callbacks": bool(calls)}
        check_joint(
            team, self, structure_of(self.einets[0]), rows, others, learner,
            {**asked, **joint, "num_clusters": self.num_clusters},
        )  # fmt: skip
        with ExitStack() as held:
            held.enter_context(file)
            state = team.from_first(file.read) if resume else None
            resumption = held.enter_context(Resumption(_read_from(file, checkpoint, state), self))
            if device is not None:
                self.to(device)
            self.remember(rows.columns)
            team.copy_from_(list(numbers_by_name(self).values()))
            trainee = MixtureTrainee(
                self, self.einets, learner, rows, others, batch_size=batch_size, seed=seed,
                stand_in=self._stand_in(), team=team, stopping=stopping,
            )  # fmt: skip
            with (
                Interrupt(by_term=checkpoint is not None) as interrupt,
                Bar(epochs, epochs, progress and team.first) as bar,
            ):
                asked_to_stop = stopping.watch(interrupt)
                loop = Loop(
                    trainee,
                    epochs,
                    Watch(asked_to_stop, bar, by_step=False),
                    patience=patience,
                    validated=others is not None,
                    baseline=True,
                    after_epoch=[joint_report(team, report_to(calls), calls)],
                    saver=file.saver(0),
                )
                if state is not None:
                    with resumption.reading():
                        as_count(state[0].get("phase"), "phase", 0, 0)
                        plain = {name: state[0][name] for name in state[0] if name != "phase"}
                        loop.load_state(plain, state[1])
                    resumption.done()
                loop.run()
        if asked_to_stop.requested and not loop.finished and others is None:
            trainee.restore(False)
        return team.from_first(lambda: loop.histories[0])

    def describe(self, graphs: dict[RegionGraph, str]) -> dict[str, Any]:
        # To a reader that does not know of clusters, it is a mixture.
        return {**super().describe(graphs), "clustered": True}

    def extra_repr(self) -> str:
        """What torch prints of the mixture beside its components.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> einet.ClusteredEinet(graph, einet.Gaussian(), 3, num_clusters=2).extra_repr()
            'variables=2, clusters=2'
        """
        return f"variables={self.num_variables}, clusters={self.num_clusters}"


def _read_from(file: Checkpoint, checkpoint: Any, state: Any) -> Path | None:
    """The file that a state is from, for errors; only the first process knows it to the end."""
    if state is None:
        return None
    return file.good[-1] if file.good else Path(checkpoint)


def _form(model: Einet) -> list[Any]:
    """What models must have in common to stand in for each other."""
    families = [(type(g.family), repr(g.family.config())) for g in model.leaf.family_groups]
    tensors = [(name, t.shape, t.dtype) for name, t in model.state_dict().items()]
    return [model.sums, families, tensors]
