"""The contract between a way of learning and the training loop."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor

from einet.data.batch import Batch
from einet.distributed.team import ALONE, Team
from einet.learning.prior import Prior
from einet.models.base import Model

__all__ = ["Learner", "LearnerState", "Objective", "plain_schedule", "schedule_digest"]

#: What is maximised: log p(x), jointly with the labels where they are known, or log p(label | x).
Objective = Literal["generative", "discriminative"]
#: Plain values and tensors by name.
LearnerState = tuple[dict[str, Any], dict[str, Tensor]]
# At so many places a schedule is looked at, to tell it from others.
_PLACES = 1000


class Learner(ABC):
    """A way of learning: what the training loop does with a mini-batch and at an epoch's end.

    This class is also the guide to adding one: a subclass needs :meth:`step` alone. What the loop
    must know of a learner are the traits below; it never asks for its type. A learner that carries
    something from epoch to epoch beside the model says so by ``stateless = False``, and can be
    resumed from a checkpoint if it defines :meth:`state` and :meth:`load_state`. One that does
    something at the end of an epoch can be resumed within an epoch, too, if it defines
    :meth:`state_within` and :meth:`load_state_within`. One whose steps sum over the processes of
    ``team`` says so by ``joins``; others learn in one process only.
    """

    #: Pseudo-counts that it learns with; None for none.
    prior: Prior | None = None
    #: Whether it carries nothing from epoch to epoch but the model.
    stateless: bool = False
    #: What it can maximise.
    objectives: tuple[Objective, ...] = ("generative",)
    #: Other processes that learn the same model from other rows; set by those who call it.
    team: Team = ALONE

    @property
    def joins(self) -> bool:
        """Whether its steps take the rows of all processes of :attr:`team` into account."""
        return False

    @property
    def stackable(self) -> bool:
        """Whether several models can learn by it side by side.

        Its step is then ``em_step`` with :meth:`step_size_at` and a share of its prior.
        """
        return False

    def finisher(self) -> Learner | None:
        """What takes its result to the end in a few epochs of all rows; None if nothing does."""
        return None

    def start(  # noqa: B027 (these may stay empty)
        self,
        model: Model,
        rows: Iterable[Batch] | None = None,
        objective: Objective = "generative",
    ) -> None:
        """Called once before the first step.

        Args:
            model: The model to learn, its leaves already set from data.
            rows: All the training rows, in parts; to be gone through only where it is needed.
            objective: What to maximise, one of ``objectives``.
        """

    @abstractmethod
    def step(self, model: Model, batch: Any, progress: float = 0.0) -> Float[Tensor, ""]:
        """Learn from a mini-batch and return its mean objective before the update.

        Args:
            model: The model to change.
            batch: A :class:`~einet.data.Batch`, which the methods of a model take as it is. With
                a :attr:`team` it is this process's part of the mini-batch, perhaps without rows;
                the mean may be of this part or of all.
            progress: How much of the training is done, from 0 to 1.
        """

    def end_epoch(self, model: Model, progress: float) -> None:  # noqa: B027
        """Called after the last mini-batch of an epoch."""

    def begin_epoch_anew(self) -> None:  # noqa: B027
        """Forget the steps since the last epoch: the model went back to its end."""

    def step_size_at(self, progress: float) -> float | None:
        """The step size at this point of the training, for the record; None if there is none."""
        return None

    def finish(self, model: Model) -> None:  # noqa: B027
        """Called once after the last step, also after an interruption or an error."""

    # -- going on after an interruption --------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        """Plain values that tell this learner from others; a run only goes on with the same."""
        return {
            "learner": type(self).__name__,
            "step_size": plain_schedule(self.step_size_at),
            "schedule": schedule_digest(self.step_size_at),
            "prior": None if self.prior is None else self.prior.settings(),
        }

    def state(self) -> LearnerState:
        """What it carries from epoch to epoch beside the model."""
        if self.stateless:
            return {}, {}
        raise ValueError(
            f"checkpoint needs a learner that can tell its state: {type(self).__name__} has one "
            "(stateless is False) but does not define state() and load_state()"
        )

    def load_state(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Take up what :meth:`state` told; called after :meth:`start`.

        What is not such a state should get a ``ValueError``. The file has a checksum: only somebody
        who changes it on purpose can make it tell anything else.
        """
        if not self.stateless:
            raise ValueError(f"{type(self).__name__} does not define load_state()")
        if values or tensors:
            told = ", ".join([*values, *tensors][:3])
            raise ValueError(f"{type(self).__name__} has no state, but the file tells of {told}")

    def state_within(self) -> LearnerState | None:
        """What it carries in the middle of an epoch, beside the model.

        None where it does not tell: then checkpoints are of full epochs alone. A learner that does
        nothing at the end of an epoch carries the same within it as between two.
        """
        return self.state() if type(self).end_epoch is Learner.end_epoch else None

    def load_state_within(
        self, model: Model, values: dict[str, Any], tensors: dict[str, Tensor]
    ) -> None:
        """Take up what :meth:`state_within` told, as with :meth:`load_state`."""
        self.load_state(values, tensors)


def plain_schedule(step_size_at: Any) -> list[float | None]:
    """A schedule told by some of its step sizes."""
    return [step_size_at(progress) for progress in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)]


def schedule_digest(step_size_at: Any) -> str:
    """A few characters that tell a schedule from others, by its step sizes at many places.

    To nine digits: the last ones of a cosine may differ between machines.

    Example:
        >>> schedule_digest(lambda progress: 0.5) == schedule_digest(lambda progress: 0.25 + 0.25)
        True
    """
    sizes = (step_size_at(place / _PLACES) for place in range(_PLACES + 1))
    text = ",".join("none" if size is None else f"{size:.9g}" for size in sizes)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
