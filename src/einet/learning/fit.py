"""The training loop."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parametrize

from einet.data.batch import Batch, as_batch
from einet.data.rows import Rows
from einet.engine import replay
from einet.learning.console import Bar, Interrupt
from einet.learning.em import EM, StochasticEM
from einet.learning.history import History
from einet.learning.kept import Kept
from einet.learning.learner import Learner
from einet.learning.schedules import linear
from einet.models.base import Model

__all__ = ["fit"]

# Without gradients there is no reason for small batches.
_LEAST_VALID_BATCH = 1024
# How often the log-likelihood is read while an epoch runs; on a GPU each reading waits for it.
_SECONDS_BETWEEN_LOOKS = 0.2


def fit(
    model: Model,
    train: Any,
    valid: Any = None,
    *,
    epochs: int = 25,
    batch_size: int = 500,
    optimizer: Learner | None = None,
    labels: Any = None,
    valid_labels: Any = None,
    observed: Any = None,
    valid_observed: Any = None,
    weights: Any = None,
    patience: int | None = None,
    hide: float = 0.0,
    finish: int = 0,
    initialize: bool | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
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
            where a cell is missing.
        valid: Validation rows, evaluated after each epoch.
        epochs: How often to go through the training rows (at most, with ``patience``).
        batch_size: Rows in a mini-batch; the last one of an epoch holds what is left.
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
    _check_arguments(
        model,
        optimizer,
        valid,
        {
            "epochs": epochs,
            "batch_size": batch_size,
            "patience": 1 if patience is None else patience,
        },
        {"valid_labels": valid_labels, "valid_observed": valid_observed, "patience": patience},
    )
    if isinstance(hide, bool) or not isinstance(hide, (int, float)) or not 0 <= hide < 1:
        raise ValueError(f"hide must be a probability of at least 0 and below 1, got {hide!r}")
    learner = StochasticEM(linear(0.5, 0.05)) if optimizer is None else optimizer
    last = _last_learner(finish, learner)
    data = checked(model, "train", train, observed, labels, weights)
    held_out = None
    if valid is not None:
        held_out = checked(model, "valid", valid, valid_observed, valid_labels)
    if device is not None:
        model.to(device)
    if initialize or (initialize is None and not model.initialized):
        model.initialize(data, seed=seed)
    batches = math.ceil(len(data) / batch_size)
    steps = epochs * batches
    rows = Rows(data, model.device)
    others = None if held_out is None else Rows(held_out, model.device)
    # No second copy of what was moved.
    del data, held_out
    with Interrupt() as interrupt, Bar(epochs + finish, steps + finish * batches, progress) as bar:
        try:
            learner.start(model, rows.batch)
            loop = _Loop(model, learner, interrupt, bar, batch_size, steps)
            if hide > 0:
                loop.hide(float(hide), torch.Generator(model.device).manual_seed(seed))
            history = loop.run(rows, others, epochs, patience, torch.Generator().manual_seed(seed))
            if last is not None and history.stopped != "interrupted":
                loop.end_with(last, rows, others, finish, history)
            return history
        finally:
            learner.finish(model)
            # A mixture's members are trained one after the other: each would keep its memory.
            replay.forget(model)


class _Loop:
    """One training run."""

    def __init__(
        self,
        model: Model,
        learner: Learner,
        interrupt: Interrupt,
        bar: Bar,
        batch_size: int,
        steps: int,
    ) -> None:
        self.model, self.learner, self.interrupt, self.bar = model, learner, interrupt, bar
        self.batch_size, self.steps, self.done = batch_size, steps, 0
        #: Where the present step stands: 0 at the first, 1 at the last.
        self.progress = 0.0
        self.kept = Kept(model)
        self.hidden: tuple[float, torch.Generator] | None = None

    def hide(self, share: float, generator: torch.Generator) -> None:
        """Hide some known cells of each mini-batch from here on."""
        self.hidden = (share, generator)

    def end_with(
        self, learner: Learner, rows: Rows, valid: Rows | None, epochs: int, history: History
    ) -> None:
        """Some more epochs with another learner, each of all rows as they are."""
        self.learner, self.hidden = learner, None
        learner.start(self.model, rows.batch)
        self._epochs(rows, valid, range(len(history), len(history) + epochs), None, None, history)

    def run(
        self,
        rows: Rows,
        valid: Rows | None,
        epochs: int,
        patience: int | None,
        generator: torch.Generator,
    ) -> History:
        history = History()
        self._epochs(rows, valid, range(epochs), patience, generator, history)
        return history

    def _epochs(
        self,
        rows: Rows,
        valid: Rows | None,
        epochs: range,
        patience: int | None,
        generator: torch.Generator | None,
        history: History,
    ) -> None:
        """Learn for some epochs; then the model is that of the best epoch so far."""
        try:
            for epoch in epochs:
                began = time.perf_counter()
                order = None
                if generator is not None:
                    order = torch.randperm(len(rows), generator=generator)
                train = self._epoch(rows, order)
                score = None if valid is None or self.interrupt.requested else self._score(valid)
                if self.interrupt.requested:
                    history.stopped = "interrupted"
                    break
                history.train.append(train)
                history.seconds.append(time.perf_counter() - began)
                step_size = self.learner.step_size_at(self.progress)
                if step_size is not None:
                    history.step_size.append(step_size)
                if score is None:
                    self.kept.take(epoch)
                    continue
                history.valid.append(score)
                best = history.best_epoch
                if best is None or score > history.valid[best]:
                    history.best_epoch = epoch
                    self.kept.take(epoch)
                elif patience is not None and epoch - best >= patience:
                    history.stopped = "early"
                    break
        except BaseException:
            self.kept.restore()
            raise
        if history.best_epoch is not None:
            self.kept.restore()

    def _epoch(self, rows: Rows, order: Tensor | None) -> float:
        """Learn from every row once; the mean log-likelihood met on the way."""
        # On the model's device, as are the means: a number read from a GPU in each step would be
        # waited for, and the GPU would then wait for the next step.
        total = torch.zeros((), dtype=torch.float64, device=self.model.device)
        count = torch.zeros_like(total)
        looked = time.perf_counter()
        for given in rows.batches(self.batch_size, order):
            self.progress = min(1.0, self.done / max(1, self.steps - 1))
            part = given if self.hidden is None else given.hide(*self.hidden)
            mean = self.learner.step(self.model, part, progress=self.progress)
            self.done += 1
            size = len(part) if part.weights is None else part.weights.sum()
            total += mean * size
            count += size
            if time.perf_counter() - looked > _SECONDS_BETWEEN_LOOKS:
                self.bar.show(train=self._sound(total / count))
                looked = time.perf_counter()
            self.bar.advance()
            if self.interrupt.requested:
                break
        else:
            self.learner.end_epoch(self.model, self.progress)
        train = self._sound(total / count)
        # The last steps of an epoch are judged by no log-likelihood.
        self._sound(torch.stack([p.detach().sum().double() for p in self.model.parameters()]).sum())
        self.bar.show(train=train)
        return train

    @torch.no_grad()
    def _score(self, valid: Rows) -> float:
        """Mean log-likelihood of the validation rows; broken off by Ctrl-C."""
        total = torch.zeros((), dtype=torch.float64, device=self.model.device)
        size = max(self.batch_size, _LEAST_VALID_BATCH)
        for part in valid.batches(size):
            total += self.model.log_prob(part).double().sum()
            if self.interrupt.requested:
                break
        score = self._sound(total / len(valid))
        self.bar.show(valid=score)
        return score

    def _sound(self, value: Tensor) -> float:
        """The value, unless it is NaN."""
        number = float(value)
        if math.isnan(number):
            size = self.learner.step_size_at(self.progress)
            step = "" if size is None else f", or too large a step (it was {size:g})"
            raise FloatingPointError(
                f"NaN at step {self.done} of the training: look for extreme values in the "
                f"data{step}. The model is what it was {self.kept.since}"
            )
        return number


def _last_learner(finish: Any, learner: Learner) -> EM | None:
    """Full-batch EM with the prior of a learner, if it is asked for."""
    if not isinstance(finish, int) or isinstance(finish, bool) or finish < 0:
        raise ValueError(f"finish must be a whole number of epochs, got {finish!r}")
    if not finish:
        return None
    if not isinstance(learner, StochasticEM):
        raise ValueError(
            f"finish takes a StochasticEM to its end; optimizer is of {type(learner).__name__}"
        )
    return EM(learner.prior)


def _check_arguments(
    model: Any, optimizer: Any, valid: Any, numbers: dict[str, Any], of_valid: dict[str, Any]
) -> None:
    if not isinstance(model, Model):
        raise TypeError(f"model must be an Einet or a Mixture, got {type(model).__name__}")
    if any(parametrize.is_parametrized(module) for module in model.modules()):
        raise ValueError("model is inside einet.unconstrained; leave that context before fit")
    if optimizer is not None and not isinstance(optimizer, Learner):
        shown = optimizer.__name__ if isinstance(optimizer, type) else type(optimizer).__name__
        raise TypeError(
            "optimizer must be an einet.StochasticEM, EM or Gradient, such as "
            f"einet.Gradient(torch.optim.Adam, lr=0.01), got {shown}"
        )
    for name, value in numbers.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    if valid is None:
        for name, value in of_valid.items():
            if value is not None:
                raise ValueError(f"{name} is given, but valid is not; give both or neither")


def checked(
    model: Model, name: str, x: Any, observed: Any, labels: Any, weights: Any = None
) -> Batch:
    """Data for training; what is checked here need not be again for any mini-batch of them."""
    batch = as_batch(
        x,
        model.num_variables,
        observed,
        labels=labels,
        weights=weights,
        num_classes=model.num_classes,
        name=name,
        prefix="valid_" if name == "valid" else "",
        allow_empty=False,
    )
    if batch.weights is not None:
        counts = batch.weights > 0
        if not bool(counts.any()):
            raise ValueError("weights must not be 0 throughout")
        if not bool(counts.all()):
            # Such rows are padding, whatever they hold.
            model.check_support(replace(batch, observed=batch.mask & counts.unsqueeze(1)), name)
            return _without_idle_mask(batch[counts])
    model.check_support(batch, name)
    return _without_idle_mask(batch)


def _without_idle_mask(batch: Batch) -> Batch:
    """Without a mask that is True throughout; worth the look at a GPU, as it is only this one."""
    if batch.observed is not None and bool(batch.observed.all()):
        return replace(batch, observed=None)
    return batch
