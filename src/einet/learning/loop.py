"""The training loop: epochs, and what is due after each of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from einet.learning.history import History
from einet.learning.learner import LearnerState
from einet.learning.loop_state import LoopState
from einet.learning.plain import as_fields
from einet.learning.trainee import Trainee
from einet.learning.watch import Watch

__all__ = ["Callback", "EpochReport", "Loop", "report_to"]


@dataclass
class EpochReport:
    """What a callback is told after an epoch.

    Attributes:
        epoch: The number of the epoch, from 0.
        train: The mean objective of the training rows in the course of the epoch.
        valid: That of the validation rows after it; None without them.
        step_size: The learner's step size at its end; None if it has none.
        seconds: The time that the epoch took, validation included.
        history: All epochs so far.
        model: The model as it is now; callbacks may ask it, but not change it.
        cluster: The number of the cluster that it learns, for models of clusters.
    """

    epoch: int
    train: float
    valid: float | None
    step_size: float | None
    seconds: float
    history: History = field(repr=False)
    model: Any = field(repr=False)
    cluster: int | None = None
    _stop: bool = field(default=False, init=False, repr=False)

    def stop(self) -> None:
        """End the training after this epoch."""
        self._stop = True


#: Called after every epoch.
Callback = Callable[[EpochReport], Any]


class Loop:
    """Trains until all epochs are done, nothing improves any more, or somebody says stop.

    Args:
        trainee: What learns.
        epochs: For how many epochs at most.
        watch: Told of every step.
        patience: So many epochs without a better validation result end the training of a model.
        validated: Whether there are validation rows, by which the best epoch is chosen.
        baseline: Whether the state before the first epoch is a candidate too.
        after_epoch: Called with the loop after each full epoch, for callbacks and checkpoints.
        seconds_between_copies: How often the state is kept, to go back to.
        first: The number of the first epoch, where others came before with another learner.
    """

    def __init__(
        self,
        trainee: Trainee,
        epochs: int,
        watch: Watch,
        *,
        patience: int | None = None,
        validated: bool = False,
        baseline: bool = False,
        after_epoch: Sequence[Callable[[Loop], None]] = (),
        seconds_between_copies: float = 0.0,
        histories: list[History] | None = None,
    ) -> None:
        self.trainee, self.epochs, self.watch = trainee, epochs, watch
        self.patience, self.validated, self.baseline = patience, validated, baseline
        self.after_epoch, self._pause = after_epoch, seconds_between_copies
        self.histories = histories or [History() for _ in range(trainee.count)]
        #: Epochs that came before this loop, with another learner.
        self.before = len(self.histories[0])
        #: Epochs of this loop that are done, and those whose state is kept.
        self.done = self.kept = 0
        self._copied = time.perf_counter()
        self._best = [self._best_so_far(history) for history in self.histories]
        self._waiting = [True] * trainee.count
        self._unread: list[tuple[Tensor, float]] = []
        self.stopped_by_callback = False

    @staticmethod
    def _best_so_far(history: History) -> float:
        return -math.inf if history.best_epoch is None else history.valid[history.best_epoch]

    @property
    def finished(self) -> bool:
        """Whether nothing is left to be learnt."""
        return self.done == self.epochs or not any(self._waiting)

    def run(self) -> None:
        """Train. An error leaves what the last full epoch left, or the best one."""
        validated, watch = self.validated, self.watch
        try:
            if self.baseline and validated and not self.done:
                scores = self.trainee.score(watch)
                if scores is not None:
                    self._best = self._sound(scores).tolist()
            while not self.finished and not self._epoch():
                pass
            self.read()
        except BaseException:
            self.trainee.restore(validated and self._has_best())
            raise
        if validated and self._has_best():
            self.trainee.restore(True)

    def _has_best(self) -> bool:
        return self.baseline or any(h.best_epoch is not None for h in self.histories)

    def _epoch(self) -> bool:
        """One more epoch; whether it was the last, because somebody asked to stop."""
        began = time.perf_counter()
        means = self.trainee.learn(self.done, self.epochs, self.watch)
        scores = None
        if means is not None and self.validated:
            scores = self.trainee.score(self.watch)
        if means is None or self.watch.interrupted or (self.validated and scores is None):
            # What was learnt since the last full epoch may be of use; its number is not.
            self._stop("interrupted")
            return True
        self._unread.append((means, time.perf_counter() - began))
        self.done += 1
        self.watch.epoch()
        if scores is not None:
            self.read()
            self._judge(scores)
        self._keep()
        for call in self.after_epoch:
            call(self)
            if self.stopped_by_callback:
                self._keep(now=True)
        return self.stopped_by_callback

    def _keep(self, now: bool = False) -> None:
        """Keep the present state now, or now and then; it is checked to be sound before."""
        time_now = time.perf_counter()
        # With validation the best state and the last one must tell of the same epochs.
        needed = now or self.validated or self.finished
        if self.kept == self.done or (not needed and time_now - self._copied < self._pause):
            return
        self.read()
        self.trainee.keep_last(self.before + self.done - 1)
        self.kept, self._copied = self.done, time_now

    def read(self) -> None:
        """Read what was measured since the last time: on a GPU that waits."""
        if not self._unread:
            return
        means = self._sound(torch.stack([mean for mean, _ in self._unread]))
        self._sound(self.trainee.soundness())
        first = self.done - len(self._unread)
        for place, (row, (_, seconds)) in enumerate(zip(means.tolist(), self._unread, strict=True)):
            size = self.trainee.step_size(first + place, self.epochs)
            for history, mean, waiting in zip(self.histories, row, self._waiting, strict=True):
                if waiting:
                    history.train.append(mean)
                    history.seconds.append(seconds)
                    if size is not None:
                        history.step_size.append(size)
        self._unread.clear()
        self.watch.show(train=float(means[-1].mean()))

    def _judge(self, scores: Tensor) -> None:
        """Note validation results, and whose best epoch this was."""
        numbers, epoch = (
            self._sound(scores, nan_allowed=True).tolist(),
            self.before + self.done - 1,
        )
        for number, (history, score) in enumerate(zip(self.histories, numbers, strict=True)):
            if not self._waiting[number]:
                continue
            if math.isnan(score):
                # Without validation rows of its own the last state is the one to take.
                self.trainee.keep_best(number, epoch)
                continue
            history.valid.append(score)
            if score > self._best[number]:
                self._best[number], history.best_epoch = score, epoch
                self.trainee.keep_best(number, epoch)
            elif self.patience is not None:
                best = self.before - 1 if history.best_epoch is None else history.best_epoch
                if epoch - best >= self.patience:
                    history.stopped, self._waiting[number] = "early", False
        known = [score for score in numbers if not math.isnan(score)]
        if known:
            self.watch.show(valid=sum(known) / len(known))

    def _stop(self, why: Any) -> None:
        for history, waiting in zip(self.histories, self._waiting, strict=True):
            if waiting:
                history.stopped = why

    def stop(self) -> None:
        """End the training after the present epoch, because a callback said so."""
        self.stopped_by_callback = True
        self._stop("callback")

    def _sound(self, values: Tensor, nan_allowed: bool = False) -> Tensor:
        """The values, unless one of them is NaN."""
        values = values.double().cpu()
        wrong = values.isnan()
        if nan_allowed or not bool(wrong.any()):
            return values
        number = int(wrong.view(-1, self.trainee.count).any(0).nonzero()[0])
        size = self.trainee.step_size(max(0, self.done - 1), self.epochs)
        step = "" if size is None else f", or too large a step (it was {size:g})"
        since = self.trainee.since()
        raise FloatingPointError(
            f"NaN at step {self.watch.steps} of the training{self.trainee.name(number)}: look for "
            f"extreme values in the data{step}{since and f'. The model is what it was {since}'}"
        )

    # -- going on --------------------------------------------------------------------------------

    def state(self) -> LearnerState:
        """What was kept, to go on from: plain values, and tensors by name."""
        values, tensors = self.trainee.state()
        kept = self.before + self.kept
        state = LoopState(
            self.kept,
            self.before,
            [history.cut(kept) for history in self.histories],
            self._waiting,
            self._best,
        )
        return {"loop": state.to_plain(), "trainee": values}, tensors

    def load_state(
        self, plain: dict[str, Any], tensors: dict[str, Tensor], before: range = range(1)
    ) -> None:
        """Take up what :meth:`state` told.

        Args:
            plain, tensors: What it told.
            before: How many epochs may have come before this loop, with another learner.

        Raises:
            ValueError: They are not the state of such a loop.
        """
        plain = as_fields(plain, "the state", ["loop", "trainee"])
        trainee = self.trainee
        state = LoopState.from_plain(
            plain["loop"],
            epochs=self.epochs,
            before=before,
            scored=[self.validated and trainee.scored(number) for number in range(trainee.count)],
            patience=self.patience,
            baseline=self.baseline,
        )
        trainee.load_state(plain["trainee"], tensors)
        self.done = self.kept = state.done
        self.before, self.histories = state.before, state.histories
        self._waiting, self._best = state.waiting, state.best
        for history, waiting in zip(self.histories, self._waiting, strict=True):
            if waiting:
                history.stopped = "finished"
        self.watch.skip(self.done, trainee.steps or 0)


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
