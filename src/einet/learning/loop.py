"""The training loop: epochs, and what is due after each of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from einet.learning.history import History
from einet.learning.learner import LearnerState
from einet.learning.loop_state import LoopState
from einet.learning.plain import as_count, as_fields, as_number
from einet.learning.saver import Saver
from einet.learning.trainee import Trainee, under
from einet.learning.watch import Watch

__all__ = ["Loop"]


class UnsoundError(FloatingPointError):
    """A number that was met in training is not finite."""


class Loop:
    """Trains until all epochs are done, nothing improves any more, or somebody says stop.

    Args:
        trainee: What learns.
        epochs: For how many epochs at most.
        watch: Told of every step.
        patience: So many epochs without a better validation result end the training of a model.
        validated: Whether there are validation rows, by which the best epoch is chosen.
        baseline: Whether the state before the first epoch is a candidate too.
        after_epoch: Called with the loop after each full epoch, for callbacks.
        saver: What writes the state: when it is due, and in the end. None for nothing.
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
        saver: Saver | None = None,
        seconds_between_copies: float = 0.0,
        histories: list[History] | None = None,
    ) -> None:
        self.trainee, self.epochs, self.watch = trainee, epochs, watch
        self.patience, self.validated, self.baseline = patience, validated, baseline
        self.after_epoch, self.saver = after_epoch, saver
        self._pause = seconds_between_copies
        self.histories = histories or [History() for _ in range(trainee.count)]
        #: Epochs that came before this loop, with another learner.
        self.before = len(self.histories[0])
        #: Epochs of this loop that are done, and those whose state is kept.
        self.done = self.kept = 0
        self._copied = time.perf_counter()
        self._best = [self._best_so_far(history) for history in self.histories]
        self._waiting = [True] * trainee.count
        self._unread: list[tuple[Tensor, float]] = []
        # When the present epoch began, and how long it had taken in a run that is gone on with.
        self._began, self._earlier = time.perf_counter(), 0.0
        self.stopped_by_callback = False
        if any(history.skipped for history in self.histories):
            trainee.skip_from_here(0)

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
        watch.on_nan = self._check_place
        if self.saver is not None and self.trainee.tells_place:
            watch.after_step = self._save_if_due
        try:
            if self._score_baseline():
                # Before anything is learnt: a disk that is full is no news after an hour.
                self._save_between()
                while not self.finished and not self._sound_epoch():
                    pass
            self.read()
            self.save()
        except UnsoundError as error:
            rows, failure = self._name_rows()
            raise FloatingPointError(f"{error}{rows}") from failure
        except BaseException:
            self.trainee.restore(validated and self._has_best())
            raise
        finally:
            watch.on_nan = watch.after_step = None
        if validated and self._has_best():
            self.trainee.restore(True)

    def _name_rows(self) -> tuple[str, Exception | None]:
        """Rows that break the last state that was sound, in words, or why they were not found."""
        try:
            self.trainee.restore(False)
            named = self.trainee.trouble()
        except Exception as failure:
            # Rows may come from a source that fails by now; that is not what went wrong first.
            return "", failure
        finally:
            self.trainee.restore(self.validated and self._has_best())
        return (f". Rows that break the model as it was then: {named}" if named else ""), None

    def _score_baseline(self) -> bool:
        """Measure the state before the first epoch where it counts; whether nobody asked to stop.

        A run that goes on within its first epoch has been through this.
        """
        if self.baseline and self.validated and not self.done and self.trainee.place is None:
            scores = self.trainee.score(self.watch)
            if scores is None:
                self._stop("interrupted")
                return False
            self._best = self._sound(scores).tolist()
        return True

    def _has_best(self) -> bool:
        return self.baseline or any(h.best_epoch is not None for h in self.histories)

    def _sound_epoch(self) -> bool:
        """One more epoch; where it breaks, and rows may be left out, once more without them."""
        try:
            return self._epoch()
        except UnsoundError:
            if self.kept < self.done - 1 or not self.trainee.look_again():
                raise
        self.done, self._earlier = self.kept, 0.0
        self._unread.clear()
        return False

    def _epoch(self) -> bool:
        """One more epoch; whether it was the last, because somebody asked to stop."""
        self._began = time.perf_counter() - self._earlier
        means = self.trainee.learn(self.done, self.epochs, self.watch)
        scores = None
        if means is not None and self.validated:
            scores = self.trainee.score(self.watch)
        if means is None or self.watch.interrupted or (self.validated and scores is None):
            # What was learnt since the last full epoch may be of use; its number is not.
            self._stop("interrupted")
            return True
        self._unread.append((means, time.perf_counter() - self._began))
        self.done, self._earlier = self.done + 1, 0.0
        self.trainee.end_epoch()
        self.watch.epoch()
        if scores is not None:
            self.read()
            self._judge(scores)
        self._keep()
        for call in self.after_epoch:
            call(self)
            if self.stopped_by_callback:
                self._keep(now=True)
        self._save_between()
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
        means = self._sound(torch.stack([mean for mean, _ in self._unread]), self.trainee.may_skip)
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
                    if self.trainee.skipped is not None:
                        before = [0] * (len(history) - 1 - len(history.skipped))
                        history.skipped += [*before, self.trainee.skipped]
        self._unread.clear()
        self.watch.show(train=float(means[-1].mean()))

    def _judge(self, scores: Tensor) -> None:
        """Note validation results, and whose best epoch this was."""
        numbers, epoch = (
            scores.double().tolist(),
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

    def _sound(self, values: Tensor, finite: bool = False) -> Tensor:
        """The values, unless one of them is NaN, or not finite where they have to be."""
        values = values.double().cpu()
        wrong = ~values.isfinite() if finite else values.isnan()
        if not bool(wrong.any()):
            return values
        number = int(wrong.view(-1, self.trainee.count).any(0).nonzero()[0])
        size = self.trainee.step_size(max(0, self.done - 1), self.epochs)
        step = "" if size is None else f", or too large a step (it was {size:g})"
        since = self.trainee.since()
        raise UnsoundError(
            f"NaN at step {self.watch.steps} of the training{self.trainee.name(number)}: look for "
            f"extreme values in the data{step}{since and f'. The model is what it was {since}'}"
        )

    def _check_place(self) -> None:
        """Raise if what the present epoch has come to is no number."""
        place = self.trainee.place
        if place is not None and place.total is not None:
            # Not the mean: there may be no row yet that counts.
            self._sound(place.total.view(1, -1), self.trainee.may_skip)

    # -- going on --------------------------------------------------------------------------------

    def _save_if_due(self) -> None:
        if self.saver is not None and self.saver.due():
            self.save()

    def _save_between(self) -> None:
        """The same where no epoch is under way."""
        if self.saver is not None and (self.saver.due_between or self.saver.due)():
            self.save()

    def save(self) -> None:
        """Have the state written, where somebody does that; one with NaN never is."""
        if self.saver is None:
            return
        if self._is_within:
            self._check_place()
            self._sound(self.trainee.soundness())
        self.saver.save(self)

    @property
    def _is_within(self) -> bool:
        """Whether more was learnt than was kept, and the trainee can tell what."""
        learning = self.trainee.place is not None or self.kept < self.done
        return learning and self.trainee.tells_place

    def state(self) -> LearnerState:
        """What to go on from: plain values, and tensors by name.

        It is the present state, or for a trainee that can tell it between epochs alone, what was
        kept.
        """
        is_within = self._is_within
        values, tensors = self.trainee.state(is_within)
        within, done = None, self.kept
        if is_within:
            self.read()
            done = self.done
            place, now = self.trainee.state_within()
            tensors |= {f"now.{name}": tensor for name, tensor in now.items()}
            learning = self.trainee.place is not None
            seconds = time.perf_counter() - self._began if learning else 0.0
            within = {"kept": self.kept, "seconds": seconds, "trainee": place}
        histories = [history.cut(self.before + done) for history in self.histories]
        state = LoopState(done, self.before, histories, self._waiting, self._best)
        return {"loop": state.to_plain(), "trainee": values, "within": within}, tensors

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
        # Earlier releases told of full epochs alone.
        plain = as_fields({"within": None, **plain}, "the state", ["loop", "trainee", "within"])
        trainee, within, now = self.trainee, plain["within"], under("now.", tensors)
        state = LoopState.from_plain(
            plain["loop"],
            epochs=self.epochs,
            before=before,
            scored=[self.validated and trainee.scored(number) for number in range(trainee.count)],
            patience=self.patience,
            baseline=self.baseline,
        )
        if within is not None:
            within = as_fields(within, "within", ["kept", "seconds", "trainee"])
            if state.done == self.epochs or not any(state.waiting):
                raise ValueError("within must be null where nothing is left to be learnt")
            tensors = {n: tensor for n, tensor in tensors.items() if not n.startswith("now.")}
        trainee.load_state(plain["trainee"], tensors, within is not None)
        self.done = self.kept = state.done
        self.before, self.histories = state.before, state.histories
        self._waiting, self._best = state.waiting, state.best
        for history, waiting in zip(self.histories, self._waiting, strict=True):
            if waiting:
                history.stopped = "finished"
            if history.skipped:
                trainee.skip_from_here(0)
        self.watch.skip(self.done, trainee.steps or 0)
        if within is not None:
            least = self.done if self.validated else 0
            self.kept = as_count(within["kept"], "within.kept", least, self.done)
            self._earlier = as_number(within["seconds"], "within.seconds", 0.0)
            trainee.load_within(self.done, within["trainee"], now)
            self.watch.pass_over(0 if trainee.place is None else trainee.place.steps)
