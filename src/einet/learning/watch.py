"""Watching a training run: progress, Ctrl-C, and numbers that went wrong."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from einet.distributed.stopping import Asked
from einet.learning.console import Bar

if TYPE_CHECKING:
    from einet.learning.steps import Place

__all__ = ["Watch"]

# How often a number is read while training runs; on a GPU each reading waits for it.
SECONDS_BETWEEN_LOOKS = 0.2


class Watch:
    """Told of every step: moves the bar, and reads the log-likelihood now and then.

    Args:
        interrupt: Asked whether to stop.
        bar: What shows how far it is.
        by_step: Whether the bar moves with every step; with every epoch otherwise.
    """

    def __init__(self, interrupt: Asked, bar: Bar, by_step: bool = True) -> None:
        self._interrupt, self._bar, self._by_step = interrupt, bar, by_step
        #: The number of steps that were made.
        self.steps = 0
        #: Called after every step but one that ends the training; what it does has to be quick.
        self.after_step: Callable[[], None] | None = None
        #: Called where a log-likelihood is NaN: nothing that is learnt after it is of use.
        self.on_nan: Callable[[], None] | None = None
        self._looked = time.perf_counter()

    @property
    def interrupted(self) -> bool:
        """Whether somebody asked to stop."""
        return self._interrupt.requested

    @property
    def due(self) -> bool:
        """Whether the last look was long ago."""
        return time.perf_counter() - self._looked > SECONDS_BETWEEN_LOOKS

    def step(self, place: Place) -> None:
        """One more step is done; how far the epoch has come with it."""
        self.steps += 1
        if self._by_step:
            self._bar.advance()
        if self.due:
            mean = float(place.mean.mean())
            self.show(mean)
            if math.isnan(mean) and self.on_nan is not None:
                self.on_nan()
        if self.after_step is not None and not self.interrupted:
            self.after_step()

    def epoch(self) -> None:
        """One more epoch is done."""
        if not self._by_step:
            self._bar.advance()

    def show(self, train: float | None = None, valid: float | None = None) -> None:
        """New numbers for the bar."""
        self._bar.show(train=train, valid=valid)
        self._looked = time.perf_counter()

    def skip(self, epochs: int, steps: int) -> None:
        """Epochs that were made before, or need not be, of so many steps each."""
        amount = epochs * steps if self._by_step else epochs
        if amount > 0:
            self._bar.advance(amount)

    def pass_over(self, steps: int) -> None:
        """Steps of the present epoch that were made before."""
        if self._by_step and steps:
            self._bar.advance(steps)
