"""What callbacks are told of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from einet.learning.history import History
from einet.learning.loop import Loop

__all__ = ["Callback", "EpochReport", "report_to"]


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

    Example:
        >>> import einet, torch
        >>> x = torch.randn(60, 2, generator=torch.manual_seed(0))
        >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
        >>> seen = []
        >>> def note(report: einet.EpochReport) -> None:
        ...     seen.append((report.epoch, report.step_size))
        >>> history = einet.fit(model, x, epochs=2, callbacks=[note], progress=False)
        >>> [epoch for epoch, step_size in seen]
        [0, 1]
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
        """End the training after this epoch.

        Example:
            >>> import einet, torch
            >>> x = torch.randn(60, 2, generator=torch.manual_seed(0))
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> def enough(report):
            ...     if report.epoch == 1:
            ...         report.stop()
            >>> history = einet.fit(model, x, epochs=9, callbacks=[enough], progress=False)
            >>> len(history), history.stopped
            (2, 'callback')
        """
        self._stop = True


#: Called after every epoch.
Callback = Callable[[EpochReport], Any]


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
