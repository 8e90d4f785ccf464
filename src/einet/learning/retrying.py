"""A GPU that runs out of memory: the epoch is made again, with fewer rows at a time."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from einet.learning.less_memory import with_less
from einet.learning.model_trainee import LEAST_VALID_BATCH, ModelTrainee
from einet.learning.watch import Watch

__all__ = ["RetryingTrainee"]


class RetryingTrainee(ModelTrainee):
    """One model, whose epochs survive that a device runs out of memory.

    A step that fails may have changed some of the parameters already. So the epoch begins anew,
    from the state that is kept after every epoch and with the same random numbers: rows in other
    pieces add up to the same statistics. That needs a learner that carries nothing else along;
    :class:`~einet.Gradient` makes a step again by itself.
    """

    #: Whether the state that is kept is the one that the next epoch begins with.
    _fresh = True

    def learn(self, epoch: int, epochs: int, watch: Watch) -> Float[Tensor, " count"] | None:
        while True:
            try:
                means = super().learn(epoch, epochs, watch)
                self._fresh = False
                return means
            except torch.OutOfMemoryError:
                can = self._fresh and self.learner.stateless and self.learner.team.alone
                if not can or not with_less(self.model, self.batch_size):
                    raise
            # Here, where the failed step is forgotten with all that it held.
            self.last.restore()
            self.learner.begin_epoch_anew()
            self.place = None

    def score(self, watch: Watch) -> Float[Tensor, " count"] | None:
        while True:
            try:
                return super().score(watch)
            except torch.OutOfMemoryError:
                rows = max(self.batch_size, LEAST_VALID_BATCH)
                if not self.learner.team.alone or not with_less(self.model, rows):
                    raise

    def load_within(self, epoch: int, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super().load_within(epoch, values, tensors)
        # The state that was kept may be of an earlier epoch.
        self._fresh = False

    def keep_last(self, epoch: int) -> None:
        super().keep_last(epoch)
        self._fresh = True
