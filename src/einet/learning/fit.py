"""Learning a model from data: what :func:`einet.fit` does around the training loop."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

import torch
from torch.nn.utils import parametrize

from einet._checks import as_int
from einet._memory import fitting
from einet.data.loader import LoaderRows, is_loader
from einet.data.streams import Rows, RowStream, Transform
from einet.engine import replay
from einet.learning.checkpoint import Checkpoint, settings_of
from einet.learning.console import Bar, Interrupt
from einet.learning.em import StochasticEM
from einet.learning.gradient import Gradient
from einet.learning.history import History
from einet.learning.learner import Learner, Objective
from einet.learning.loop import Callback, EpochReport, Loop
from einet.learning.objective import check_objective
from einet.learning.schedules import linear
from einet.learning.snapshot import restore_numbers
from einet.learning.trainee import ModelTrainee, generator_of, under
from einet.learning.watch import Watch
from einet.models.base import Model

__all__ = [
    "as_callbacks",
    "as_hide",
    "as_learner",
    "as_stream",
    "check_trainable",
    "check_valid",
    "finisher",
    "fit",
    "report_to",
]

# Rows in a mini-batch.
_BATCH_SIZE = 500


def fit(
    model: Model,
    train: Any,
    valid: Any = None,
    *,
    epochs: SupportsIndex = 25,
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
    resume: bool = False,
    progress: bool = True,
) -> History:
    """Learn a model's parameters from data, in place.

    With validation data the model ends up as it was after its best epoch on them. Ctrl-C ends the
    training cleanly after the current mini-batch, with the best epoch's model where there are
    validation data and the present one elsewhere; a second Ctrl-C does not wait. Should training
    fail, the model is what it would be had it ended with the last full epoch.

    Args:
        model: The model to train.
        train: Training rows ``[rows, variables]``: tensor, array, data frame or nested list, NaN
            where a cell is missing. Or a ``torch.utils.data.DataLoader``, whose batches are a
            tensor of rows, a pair of rows and labels, or a dictionary with ``"x"`` and any of
            ``"observed"``, ``"labels"`` and ``"weights"``.
        valid: Validation rows, evaluated after each epoch; a loader too, if you like.
        epochs: How often to go through the training rows (at most, with ``patience``).
        batch_size: The most rows in a mini-batch, 500 by default; all of an epoch's are of equal
            size, up to one row. A loader makes its own.
        optimizer: How to learn: :class:`~einet.StochasticEM` (the default, with a step size that
            falls from 0.5 to 0.05), :class:`~einet.EM` or :class:`~einet.Gradient`.
        labels, valid_labels: The class of each row, −1 where unknown.
        observed, valid_observed: Masks, True where a cell is known (for integer data).
        weights: How often each training row counts; once by default.
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
        checkpoint: A file for the state of the training, written every half a minute and at the
            end, also after Ctrl-C.
        resume: Whether to go on from the state in that file, where there is one. On a CPU the
            result is the same, bit by bit, as if nothing had happened.
        progress: Whether to show a progress bar; where there is no terminal, none is shown.

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
    check_trainable(model)
    epochs, seed = as_int("epochs", epochs, minimum=1), as_int("seed", seed, minimum=0)
    if patience is not None:
        patience = as_int("patience", patience, minimum=1)
    size = _batch_size(batch_size, train)
    hide, finish = as_hide(hide), as_int("finish", finish, minimum=0)
    calls = as_callbacks(callbacks)
    learner = as_learner(optimizer, objective)
    last = finisher(finish, learner)
    check_valid(valid, valid_labels=valid_labels, valid_observed=valid_observed, patience=patience)
    labelled = [labels is not None or is_loader(train)]
    if valid is not None:
        labelled.append(valid_labels is not None or is_loader(valid))
    check_objective(objective, model, learner, all(labelled))
    # The data are checked before the model is touched, moved or not.
    there = model.device if device is None else torch.empty(0, device=device).device
    rows = as_stream(model, train, observed, labels, weights, transform, "train", there)
    others = None
    if valid is not None:
        others = as_stream(
            model, valid, valid_observed, valid_labels, None, transform, "valid", there
        )
    file = Checkpoint(checkpoint)
    if checkpoint is not None:
        file.settings = {
            **settings_of("fit", [model], rows, others, learner),
            "epochs": epochs,
            "batch_size": size,
            "seed": seed,
            "hide": hide,
            "finish": finish,
            "patience": patience,
            "objective": objective,
        }
    state = file.read() if resume else None
    if device is not None:
        model.to(device)
    if state is None and (initialize or (initialize is None and not model.initialized)):
        most = fitting("first rows", 4 * model.num_variables)
        model.initialize(rows.some(most, generator_of(seed, 0)), seed=seed)
    if state is not None:
        # Priors ask for the units of the leaves before the loop takes up its state.
        restore_numbers(model, under("last.", state[1]))
        for _, einet in model.weighted_einets():
            einet.initialized = True
    steps = rows.steps(size)
    total = None if steps is None else (epochs + finish) * steps
    with Interrupt() as interrupt, Bar(epochs + finish, total, progress) as bar:
        watch = Watch(interrupt, bar)
        phases = [_Phase(learner, epochs, patience, (seed, 1), hide)]
        if last is not None:
            phases.append(_Phase(last, finish, None, None, 0.0))
        histories = [History()]
        try:
            for number, phase in enumerate(phases):
                if state is not None and state[0]["phase"] > number:
                    continue
                phase.learner.start(model, rows, objective)
                try:
                    trainee = ModelTrainee(
                        model, phase.learner, rows, others, batch_size=size, seed=phase.seed,
                        hide=phase.hide, objective=objective,
                    )  # fmt: skip
                    if checkpoint is not None:
                        trainee.make_resumable()
                    loop = Loop(
                        trainee,
                        phase.epochs,
                        watch,
                        patience=phase.patience,
                        validated=others is not None,
                        histories=histories,
                        after_epoch=[report_to(calls), *file.saver(number)],
                    )
                    if state is not None:
                        loop.load_state(state[0]["loop"], state[1])
                        state = None
                    loop.run()
                    histories = loop.histories
                    if checkpoint is not None:
                        file.save(number, loop)
                finally:
                    phase.learner.finish(model)
                if histories[0].stopped in ("interrupted", "callback"):
                    break
            return histories[0]
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


# -- checks of arguments ---------------------------------------------------------------------------


def check_trainable(model: Any) -> None:
    """Raise unless this is a model whose parameters can be learnt now."""
    if not isinstance(model, Model):
        raise TypeError(f"model must be an Einet or a Mixture, got {type(model).__name__}")
    if any(parametrize.is_parametrized(module) for module in model.modules()):
        raise ValueError("model is inside einet.unconstrained; leave that context before fit")


def as_learner(optimizer: Any, objective: Objective = "generative") -> Learner:
    """What a user gave as ``optimizer``, or the default."""
    if optimizer is None:
        if objective == "discriminative":
            return Gradient(torch.optim.Adam, lr=0.01)
        return StochasticEM(linear(0.5, 0.05))
    if not isinstance(optimizer, Learner):
        shown = optimizer.__name__ if isinstance(optimizer, type) else type(optimizer).__name__
        raise TypeError(
            "optimizer must be an einet.StochasticEM, EM or Gradient, such as "
            f"einet.Gradient(torch.optim.Adam, lr=0.01), got {shown}"
        )
    return optimizer


def as_hide(hide: Any) -> float:
    """A share of cells to hide."""
    if isinstance(hide, bool) or not isinstance(hide, (int, float)) or not 0 <= hide < 1:
        raise ValueError(f"hide must be a probability of at least 0 and below 1, got {hide!r}")
    return float(hide)


def as_callbacks(callbacks: Any) -> list[Callback]:
    """One function or several as a list."""
    calls = [callbacks] if callable(callbacks) else list(callbacks)
    for call in calls:
        if not callable(call):
            raise TypeError(
                f"callbacks must be functions of an einet.EpochReport, got {type(call).__name__}"
            )
    return calls


def finisher(finish: int, learner: Learner) -> Learner | None:
    """Full-batch EM with the prior of a learner, if it is asked for."""
    if not finish:
        return None
    last = learner.finisher()
    if last is None:
        raise ValueError(
            f"finish takes a StochasticEM to its end; optimizer is of {type(learner).__name__}"
        )
    return last


def check_valid(valid: Any, **others: Any) -> None:
    """Raise where something of the validation rows is given without them."""
    for name, value in others.items():
        if valid is None and value is not None:
            raise ValueError(f"{name} is given, but valid is not; give both or neither")


def _batch_size(batch_size: Any, train: Any) -> int:
    if batch_size is None:
        return _BATCH_SIZE
    if is_loader(train):
        raise ValueError(
            f"batch_size is given ({batch_size!r}), but train is a loader, which makes its own "
            "batches; leave batch_size out"
        )
    return as_int("batch_size", batch_size, minimum=1)


def as_stream(
    model: Model,
    x: Any,
    observed: Any,
    labels: Any,
    weights: Any,
    transform: Transform | None,
    name: str,
    device: torch.device,
) -> RowStream:
    """Data for training; what is checked here need not be again for any mini-batch of them."""
    prefix = "valid_" if name == "valid" else ""
    if is_loader(x):
        beside = {"observed": observed, "labels": labels, "weights": weights}
        for what, value in {**beside, "transform": transform}.items():
            if value is not None:
                raise ValueError(
                    f"{prefix}{what} is given, but {name} is a loader; let its batches hold it"
                )
        return LoaderRows(
            x, model.num_variables, model.num_classes, device, model.check_support, name
        )
    # NaN is looked for part by part, and where the model is.
    batch = model.as_batch(
        x,
        observed,
        labels=labels,
        weights=weights,
        name=name,
        prefix=prefix,
        allow_empty=False,
        scan=False,
        device=None,
    )
    return Rows(batch, device, transform, model.check_support, name)


def report_to(calls: Sequence[Callback], clusters: Sequence[int] | None = None) -> Any:
    """What tells callbacks of an epoch, once it is over."""

    def report(loop: Loop) -> None:
        if not calls:
            return
        loop.read()
        for number, history in enumerate(loop.histories):
            of_epoch = EpochReport(
                epoch=len(history) - 1,
                train=history.train[-1],
                valid=history.valid[-1] if history.valid else None,
                step_size=history.step_size[-1] if history.step_size else None,
                seconds=history.seconds[-1],
                history=history,
                model=getattr(loop.trainee, "model", None),
                cluster=None if clusters is None else clusters[number],
            )
            for call in calls:
                call(of_epoch)
            if of_epoch._stop:
                loop.stop()

    return report
