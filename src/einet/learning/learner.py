"""The contract between a way of learning and the training loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from jaxtyping import Float
from torch import Tensor

from einet.models.base import Model

__all__ = ["Learner"]


class Learner(ABC):
    """A way of learning: what :func:`einet.fit` does with a mini-batch and at an epoch's end."""

    def start(  # noqa: B027 (these may stay empty)
        self, model: Model, x: Any = None, observed: Any = None, *, weights: Any = None
    ) -> None:
        """Called once before the first step.

        Args:
            model: The model to learn, its leaves already set from data.
            x, observed, weights: All the training rows. What :func:`einet.fit` gives as ``x`` is a
                :class:`~einet.data.Batch`, as in :meth:`step`.
        """

    @abstractmethod
    def step(
        self,
        model: Model,
        x: Any,
        observed: Any = None,
        *,
        labels: Any = None,
        weights: Any = None,
        progress: float = 0.0,
    ) -> Float[Tensor, ""]:
        """Learn from a mini-batch and return its mean log-likelihood before the update.

        Args:
            model: The model to change.
            x, observed, labels, weights: The mini-batch; as in ``model.e_step``. What
                :func:`einet.fit` gives as ``x`` is a :class:`~einet.data.Batch`, which holds all
                four; the methods of a model take it as it is.
            progress: How much of the training is done, from 0 to 1.
        """

    def end_epoch(self, model: Model, progress: float) -> None:  # noqa: B027
        """Called after the last mini-batch of an epoch."""

    def step_size_at(self, progress: float) -> float | None:
        """The step size at this point of the training, for the record; None if there is none."""
        return None

    def finish(self, model: Model) -> None:  # noqa: B027
        """Called once after the last step, also after an interruption or an error."""
