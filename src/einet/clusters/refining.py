"""EM of a whole mixture: all components and their weights, together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch

from einet._checks import as_int, as_seed, check_flag
from einet.clusters.arguments import in_memory, read_from
from einet.clusters.components import EinetsOfOneStructure
from einet.clusters.mixture_trainee import MixtureTrainee
from einet.data.streams import Transform
from einet.distributed.starting import jointly
from einet.distributed.stopping import Stopping
from einet.distributed.team import ALONE, Team
from einet.learning.arguments import (
    as_callbacks,
    as_learner,
    as_streams,
    check_trainable,
    check_valid,
)
from einet.learning.checkpoint import Checkpoint
from einet.learning.console import Bar, Interrupt
from einet.learning.em import EM
from einet.learning.history import History
from einet.learning.joining import check_joint, joint_report
from einet.learning.learner import Learner
from einet.learning.loop import Loop
from einet.learning.plain import as_count
from einet.learning.report import Callback, report_to
from einet.learning.resumption import Resumption
from einet.learning.run_settings import settings_of, structure_of
from einet.learning.snapshot import numbers_by_name
from einet.learning.watch import Watch

__all__ = ["ClusterRefining"]


class ClusterRefining(EinetsOfOneStructure):
    """Components that learn from all rows, each by its shares in them."""

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
            resumption = held.enter_context(Resumption(read_from(file, checkpoint, state), self))
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
