"""Learning a model from data: what :func:`einet.fit` does around the training loop."""

from __future__ import annotations

import os
from collections.abc import Sequence, Sized
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, SupportsIndex, get_args

import torch

from einet._checks import as_int, as_seed, check_choice, check_flag
from einet._memory import fitting
from einet.data.loader import is_loader
from einet.data.sources import has_own_labels
from einet.data.streams import Transform
from einet.distributed.shards import shard_of
from einet.distributed.starting import jointly
from einet.distributed.stopping import Stopping
from einet.distributed.team import ALONE, Team
from einet.engine import replay
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
from einet.learning.defaults import BATCH_SIZE, defaults_for
from einet.learning.history import History
from einet.learning.joining import check_joins, check_joint, initialize_first, joint_report
from einet.learning.learner import Learner, Objective
from einet.learning.loop import Loop
from einet.learning.objective import check_objective
from einet.learning.plain import as_count
from einet.learning.report import Callback, report_to
from einet.learning.resumption import Resumption, take_units
from einet.learning.retrying import RetryingTrainee
from einet.learning.run_settings import settings_of, structure_of
from einet.learning.steps import generator_of
from einet.learning.trainee import under
from einet.learning.trouble import warn_of_skipped
from einet.learning.watch import Watch
from einet.models.base import Model

__all__ = ["OnError", "fit"]

#: What is done about numbers that are not finite.
OnError = Literal["raise", "skip"]


@jointly
def fit(
    model: Model,
    train: Any,
    valid: Any = None,
    *,
    epochs: SupportsIndex | None = None,
    batch_size: SupportsIndex | None = None,
    optimizer: Learner | None = None,
    labels: Any = None,
    valid_labels: Any = None,
    observed: Any = None,
    valid_observed: Any = None,
    weights: Any = None,
    patience: SupportsIndex | None = None,
    hide: float = 0.0,
    finish: SupportsIndex = 0,
    initialize: bool | None = None,
    seed: SupportsIndex = 0,
    device: torch.device | str | None = None,
    objective: Objective = "generative",
    transform: Transform | None = None,
    callbacks: Callback | Sequence[Callback] = (),
    checkpoint: str | os.PathLike[str] | None = None,
    every: float | int | None = None,
    resume: bool = False,
    on_error: OnError = "raise",
    progress: bool = True,
    distributed: bool | Team | None = None,
) -> History:
    """Learn a model's parameters from data, in place.

    With validation data the model ends up as it was after its best epoch on them. Ctrl-C ends the
    training cleanly after the current mini-batch, with the best epoch's model where there are
    validation data and the present one elsewhere; a second Ctrl-C does not wait. Should training
    fail, the model is what it would be had it ended with the last full epoch.

    Einsum Networks of binary data, all of whose leaves are Bernoulli and whose sums are over outer
    products, have defaults of their own. Latent variables start out as clusters of rows (call
    ``model.initialize(train)`` before, and they do not). The step size falls from 50 / steps, those
    of all epochs together, to a tenth of that; it is 0.1 at first if there are more than 500 steps,
    and at most 0.5. There is a ``Prior(sums=0.1, leaves=1)``. Where ``valid`` is given and neither
    ``epochs`` nor ``patience`` are, there are 25 epochs or 500 steps, whichever is longer, and a
    patience of 5. What you give always counts. How near to settings that were searched this comes
    is in ``docs/table1.md``.

    Args:
        model: The model to train.
        train: Training rows ``[rows, variables]``: tensor, array, data frame or nested list. NaN,
            None, nulls and what a mask hides are missing. The names of a data frame's columns
            become ``model.columns``, by which other frames are matched. Or a
            ``torch.utils.data.DataLoader``, whose batches are a tensor, array or data frame of
            rows, a pair of rows and labels, or a dictionary with ``"x"`` and any of ``"observed"``,
            ``"labels"`` and ``"weights"``; or a ``Dataset`` of such items. Or a path: to a ``.npy``
            file, which is mapped rather than read, or to a Parquet or Arrow file or a folder of
            them, of which only a bounded part is in memory at a time (``docs/large_data.md``).
        valid: Validation rows, evaluated after each epoch; a loader too, if you like.
        epochs: How often to go through the training rows (at most, with ``patience``); 25 by
            default, and for Einsum Networks of binary data as said above.
        batch_size: The most rows in a mini-batch, 500 by default; all of an epoch's are of equal
            size, up to one row. A loader makes its own.
        optimizer: How to learn: :class:`~einet.StochasticEM` (the default, with a step size that
            falls from 0.5 to 0.05), :class:`~einet.EM` or :class:`~einet.Gradient`.
        labels, valid_labels: The class of each row, −1 (or missing) where unknown; of Parquet and
            Arrow files the name of the column that holds it.
        observed, valid_observed: Masks, True where a cell is known (for integer data).
        weights: How often each training row counts; once by default. Of Parquet and Arrow files
            the name of a column.
        patience: Stop after so many epochs in a row without a better validation result.
        hide: The probability with which a known cell is taken for missing, drawn anew for every
            mini-batch. Missing cells are integrated out, so that this costs no exactness: it keeps
            a model with many parameters from relying on single cells, as dropout does.
        finish: So many epochs of full-batch EM (with the prior of ``optimizer``, which must be a
            StochasticEM) after the others, from the best of them. Mini-batches forget what is too
            rare for most of them to hold; all rows together do not.
        initialize: Whether to set the leaves from the training rows first; by default if that
            has not been done.
        seed: Seed of the initial leaves, the order of rows and the cells to hide; the latter are
            drawn on the model's device, and differ between a CPU and a GPU.
        device: Where to move the model before training; it stays there.
        objective: What to maximise: ``"generative"`` is log p(x), jointly with the label where it
            is known; ``"discriminative"`` is log p(label | x), for classification. The latter needs
            a :class:`~einet.Gradient`, by default Adam with a rate of 0.01, and is best started
            from a model that was fitted generatively. ``history`` then holds means of it.
        transform: What is done to rows when they are used, such as ``lambda x: x / 255``. It is
            given some rows as a tensor on the model's device. Queries expect what it returns.
        callbacks: A function, or several, called after each epoch with an
            :class:`~einet.EpochReport`, whose ``stop()`` ends the training.
        checkpoint: A folder for the state of the training, which is written to a new file every
            half a minute, in the middle of an epoch too, and at the end, also after Ctrl-C or
            SIGTERM. The last two files are kept, and files of an earlier run replaced. Only one
            run at a time may write to a folder. See ``docs/checkpoints.md``.
        every: How many seconds lie between two files; 0 for one after every step. By default half
            a minute, or more where writing would take longer than a hundredth of the time.
        resume: Whether to go on from the state in that folder, where there is one. On a CPU the
            result is the same, bit by bit, as if nothing had happened. A file that is damaged
            gives way to the one before it, with a warning. One of a run with other data, model or
            settings is refused, and the model stays as it was:
            ``epochs`` count among the settings, as schedules depend on them. Not compared are
            ``callbacks``, ``device``, ``progress``, ``initialize`` and the model's ``precision``;
            of ``transform`` what it makes of a few rows, of a schedule its values at many places,
            and of an optimiser its class and the settings of its groups.
        on_error: What is done about numbers that are not finite, which extreme cells bring about.
            ``"raise"`` ends the training where a log-likelihood is NaN, and names the rows and
            cells that it comes from. ``"skip"`` begins the epoch once more and leaves out rows
            whose log-likelihood is NaN or −∞, or what is learnt from them, from there on.
            ``history.skipped`` counts them, and a warning at the end names some.
        progress: Whether to show a progress bar; where there is no terminal, none is shown.
        distributed: Whether to learn together with the other processes of ``torch.distributed``;
            by default where a group of them is there, as within :func:`einet.distributed.start`.
            Rows in memory must be the same in all of them: each takes its part of every mini-batch
            of ``batch_size``. A loader yields each process its own shard. All end up with the same
            model and history; callbacks, checkpoints and the bar are of the first alone.

    Example:
        >>> import einet, torch
        >>> x = torch.randn(300, 1, generator=torch.manual_seed(0)).repeat(1, 4)
        >>> model = einet.Einet(einet.random_trees(4, depth=1, replicas=2), einet.Gaussian(), 5)
        >>> history = einet.fit(model, x[:200], x[200:], epochs=5, batch_size=50, progress=False)
        >>> len(history), history.stopped
        (5, 'finished')
        >>> history.valid[-1] > history.valid[0]
        True
    """
    team = distributed if isinstance(distributed, Team) else ALONE
    stopping = Stopping(team)
    check_trainable(model)
    if epochs is not None:
        epochs = as_int("epochs", epochs, minimum=1)
    seed = as_seed(seed)
    if patience is not None:
        patience = as_int("patience", patience, minimum=1)
    for name, flag in (("resume", resume), ("progress", progress), ("initialize", initialize)):
        if flag is not None or name != "initialize":
            check_flag(name, flag)
    size = _batch_size(batch_size, train)
    hide, finish = as_hide(hide), as_int("finish", finish, minimum=0)
    check_choice("on_error", on_error, get_args(OnError))
    calls = as_callbacks(callbacks)
    learner = as_learner(optimizer, objective)
    last = finisher(finish, learner)
    check_joins(learner, team)
    check_valid(valid, valid_labels=valid_labels, valid_observed=valid_observed, patience=patience)
    labelled = [labels is not None or has_own_labels(train)]
    if valid is not None:
        labelled.append(valid_labels is not None or has_own_labels(valid))
    check_objective(objective, model, learner, all(labelled))
    rows, others = as_streams(
        model, train, valid, device, transform, observed=observed, valid_observed=valid_observed,
        labels=labels, valid_labels=valid_labels, weights=weights, batch_size=size,
    )  # fmt: skip
    defaults = defaults_for(
        model, len(rows) if isinstance(rows, Sized) else None, size, epochs=epochs,
        has_patience=patience is not None, validated=others is not None, objective=objective,
    )  # fmt: skip
    epochs = defaults.epochs
    patience = defaults.patience if patience is None else patience
    if optimizer is None:
        learner = defaults.learner(objective)
        last = finisher(finish, learner)
    # Only the first process writes; a checkpoint knows nothing of how many there are.
    file = Checkpoint(checkpoint, every) if team.first else Checkpoint(None)
    settings = {
        "epochs": epochs,
        "batch_size": size,
        "seed": seed,
        "hide": hide,
        "finish": finish,
        "patience": patience,
        "objective": objective,
    }
    if checkpoint is not None:
        file.settings = {
            **settings_of("fit", [model], rows, others, learner),
            **settings,
            # Said where it is, so that runs of earlier releases can go on.
            **({} if on_error == "raise" else {"on_error": on_error}),
        }
    agreed = {"checkpoint": checkpoint is not None, "resume": resume, "callbacks": bool(calls)}
    check_joint(
        team, model, structure_of(model), rows, others, learner,
        {**settings, **agreed, "initialize": initialize, "on_error": on_error},
    )  # fmt: skip
    if on_error == "skip" and not team.alone:
        raise ValueError("on_error must be 'raise' for several processes, got 'skip'")
    labelled_rows = model.num_classes > 1
    rows = shard_of(rows, team, stopping, labelled_rows)
    others = None if others is None else shard_of(others, team, stopping, labelled_rows)
    with ExitStack() as held:
        held.enter_context(file)
        state = team.from_first(file.read) if resume else None
        read_from = file.good[-1] if file.good else checkpoint
        resumption = held.enter_context(
            Resumption(None if state is None or read_from is None else Path(read_from), model)
        )
        if device is not None:
            model.to(device)
        model.remember(rows.columns)
        if state is None:
            most = fitting("first rows", 4 * model.num_variables)
            asked = initialize or (initialize is None and not model.initialized)
            first_rows = partial(rows.first, most, generator_of(seed, 0), generator_of(seed, 1, 0))
            initialize_first(model, first_rows, seed, team, asked, defaults.clusters)
        first = 0
        if state is not None:
            with resumption.reading():
                first = as_count(state[0].get("phase"), "phase", 0, 0 if last is None else 1)
                # Priors ask for the units of the leaves before the loop takes up its state.
                take_units(model, under("last.", state[1]))
        steps = rows.steps(size)
        total = None if steps is None else (epochs + finish) * steps
        with (
            Interrupt(by_term=checkpoint is not None) as interrupt,
            Bar(epochs + finish, total, progress and team.first) as bar,
        ):
            watch = Watch(stopping.watch(interrupt), bar)
            phases = [_Phase(learner, epochs, patience, (seed, 1), hide)]
            if last is not None:
                phases.append(_Phase(last, finish, None, None, 0.0))
            histories, named = [History()], ""
            try:
                for number, phase in list(enumerate(phases))[first:]:
                    phase.learner.team = team
                    phase.learner.start(model, rows, objective)
                    try:
                        trainee = RetryingTrainee(
                            model, phase.learner, rows, others, batch_size=size, seed=phase.seed,
                            hide=phase.hide, objective=objective, skip=on_error == "skip",
                        )  # fmt: skip
                        if weights is not None:
                            # They are told from padding once, and not kept.
                            trainee.rows_name = "train, less rows of weight 0, "
                        if checkpoint is not None:
                            trainee.make_resumable()
                            trainee.saves_jointly = True
                        loop = Loop(
                            trainee,
                            phase.epochs,
                            watch,
                            patience=phase.patience,
                            validated=others is not None,
                            histories=histories,
                            after_epoch=[joint_report(team, report_to(calls), calls)],
                            saver=None if checkpoint is None else file.saver(number, stopping),
                        )
                        if state is not None:
                            plain = {name: state[0][name] for name in state[0] if name != "phase"}
                            with resumption.reading():
                                earlier = range(1, epochs + 1) if number else range(1)
                                loop.load_state(plain, state[1], earlier)
                            resumption.done()
                            state = None
                        loop.run()
                        histories, named = loop.histories, trainee.named or named
                    finally:
                        phase.learner.finish(model)
                        phase.learner.team = ALONE
                    if histories[0].stopped in ("interrupted", "callback"):
                        break
                # A loader tells the names of its columns with its first batch.
                model.remember(rows.columns)
                warn_of_skipped(histories[0], named)
                return team.from_first(lambda: histories[0])
            finally:
                # A mixture's members are trained one after the other: each would keep its memory.
                replay.forget(model)


@dataclass(frozen=True)
class _Phase:
    """Some epochs with one learner; those that finish take all rows in their order."""

    learner: Learner
    epochs: int
    patience: int | None
    seed: tuple[int, ...] | None
    hide: float


def _batch_size(batch_size: Any, train: Any) -> int:
    if batch_size is None:
        return BATCH_SIZE
    if is_loader(train):
        raise ValueError(
            f"batch_size is given ({batch_size!r}), but train is a loader, which makes its own "
            "batches; leave batch_size out"
        )
    return as_int("batch_size", batch_size, minimum=1)
