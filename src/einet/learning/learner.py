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

    Example:
        >>> import einet, torch
        >>> class Slowing(einet.Learner):
        ...     stateless = True
        ...
        ...     def step(self, model, batch, progress=0.0):
        ...         return model.em_step(batch, step_size=0.5 / (1 + progress))
        >>> x = torch.randn(60, 2, generator=torch.manual_seed(0))
        >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
        >>> einet.fit(model, x, epochs=2, optimizer=Slowing(), progress=False).stopped
        'finished'
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
        """Whether its steps take the rows of all processes of :attr:`team` into account.

        Example:
            >>> import einet
            >>> einet.StochasticEM().joins, einet.EM().joins
            (True, True)
        """
        return False

    @property
    def stackable(self) -> bool:
        """Whether several models can learn by it side by side.

        Its step is then ``em_step`` with :meth:`step_size_at` and a share of its prior.

        Example:
            >>> import einet
            >>> einet.StochasticEM().stackable, einet.EM().stackable
            (True, False)
        """
        return False

    def finisher(self) -> Learner | None:
        """What takes its result to the end in a few epochs of all rows; None if nothing does.

        Example:
            >>> import einet
            >>> type(einet.StochasticEM().finisher()).__name__, einet.EM().finisher()
            ('EM', None)
        """
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

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Bernoulli(), num_sums=3)
            >>> rows = model.as_batch([[0, 1], [1, 1]])
            >>> learner = einet.StochasticEM(prior=einet.Prior(sums=1.0, leaves=1.0))
            >>> learner.start(model, [rows])  # a prior has to know all of them
            >>> learner.step(model, rows).isfinite().item()
            True
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

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Bernoulli(), num_sums=3)
            >>> rows, learner = [[0, 1], [1, 1]], einet.StochasticEM(step_size=0.5)
            >>> means = [learner.step(model, rows).item() for _ in range(4)]
            >>> means == sorted(means)
            True
        """

    def end_epoch(self, model: Model, progress: float) -> None:  # noqa: B027
        """Called after the last mini-batch of an epoch.

        Args:
            model: The model to change.
            progress: How much of the training is done, from 0 to 1.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Bernoulli(), num_sums=3)
            >>> learner, before = einet.EM(), model.log_prob([[1, 1]])
            >>> for batch in ([[0, 1], [1, 1]], [[1, 1]]):
            ...     mean = learner.step(model, batch)  # full-batch EM looks at all rows first
            >>> unchanged = bool(model.log_prob([[1, 1]]) == before)
            >>> learner.end_epoch(model, progress=1.0)
            >>> unchanged, bool(model.log_prob([[1, 1]]) > before)
            (True, True)
        """

    def begin_epoch_anew(self) -> None:  # noqa: B027
        """Forget the steps since the last epoch: the model went back to its end.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Bernoulli(), num_sums=3)
            >>> learner, before = einet.EM(), model.log_prob([[1, 1]])
            >>> mean = learner.step(model, [[0, 0]])
            >>> learner.begin_epoch_anew()
            >>> learner.end_epoch(model, progress=1.0)
            >>> bool(model.log_prob([[1, 1]]) == before)
            True
        """

    def step_size_at(self, progress: float) -> float | None:
        """The step size at this point of the training, for the record; None if there is none.

        Args:
            progress: How much of the training is done, from 0 to 1.

        Example:
            >>> import einet
            >>> learner = einet.StochasticEM(step_size=einet.linear(0.5, 0.1))
            >>> [learner.step_size_at(progress) for progress in (0.0, 0.5, 1.0)]
            [0.5, 0.3, 0.1]
        """
        return None

    def finish(self, model: Model) -> None:  # noqa: B027
        """Called once after the last step, also after an interruption or an error.

        Args:
            model: The model that was learnt.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Bernoulli(), num_sums=3)
            >>> learner = einet.StochasticEM(prior=einet.Prior(sums=1.0))
            >>> learner.start(model, [model.as_batch([[0, 1], [1, 1]])])
            >>> learner.finish(model)  # it forgets the rows
            >>> learner.step(model, [[0, 1], [1, 1]])
            Traceback (most recent call last):
            RuntimeError: prior has to know the training rows: ...
        """

    # -- going on after an interruption --------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        """Plain values that tell this learner from others; a run only goes on with the same.

        Example:
            >>> import einet
            >>> learner = einet.StochasticEM(step_size=0.5)
            >>> learner.settings()["learner"], learner.settings()["step_size"][:2]
            ('StochasticEM', [0.5, 0.5])
        """
        return {
            "learner": type(self).__name__,
            "step_size": plain_schedule(self.step_size_at),
            "schedule": schedule_digest(self.step_size_at),
            "prior": None if self.prior is None else self.prior.settings(),
        }

    def state(self) -> LearnerState:
        """What it carries from epoch to epoch beside the model.

        Example:
            >>> import einet
            >>> einet.StochasticEM().state()  # values and tensors by name: it needs none
            ({}, {})
        """
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

        Args:
            values: Plain values by name.
            tensors: Tensors by name.

        Example:
            >>> import einet
            >>> learner = einet.StochasticEM()
            >>> learner.load_state(*learner.state())
            >>> learner.load_state({"momentum": 0.9}, {})
            Traceback (most recent call last):
            ValueError: StochasticEM has no state, but the file tells of momentum
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

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Bernoulli(), num_sums=3)
            >>> learner = einet.EM()
            >>> mean = learner.step(model, [[0, 1], [1, 1]])
            >>> values, tensors = learner.state_within()  # the sums over the rows of this epoch
            >>> len(tensors) > 0
            True
        """
        return self.state() if type(self).end_epoch is Learner.end_epoch else None

    def load_state_within(
        self, model: Model, values: dict[str, Any], tensors: dict[str, Tensor]
    ) -> None:
        """Take up what :meth:`state_within` told, as with :meth:`load_state`.

        Args:
            model: The model that is learnt.
            values: Plain values by name.
            tensors: Tensors by name.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Bernoulli(), num_sums=3)
            >>> one, two = einet.EM(), einet.EM()
            >>> mean = one.step(model, [[0, 1], [1, 1]])
            >>> two.load_state_within(model, *one.state_within())
            >>> two.end_epoch(model, progress=1.0)  # as the other would have ended it
        """
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
