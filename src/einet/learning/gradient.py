"""Gradient learning: unconstrained parameters behind the canonical ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from einet.data.batch import Batch
from einet.kernels.update import RELATIVE_FLOOR
from einet.layers import LeafBlock, SumLayer
from einet.layers.parameter import canonicalize, release
from einet.learning.joint_gradient import joint_backward
from einet.learning.learner import Learner, LearnerState, Objective
from einet.learning.less_memory import with_less
from einet.learning.objective import objective_of, row_weights, weighted_mean
from einet.learning.optimizer_state import Groups, groups_of, load_state_of, state_of
from einet.models.base import Model
from einet.models.einet import Einet
from einet.models.mixture import Mixture

__all__ = ["Gradient", "unconstrained"]


class _Simplex(nn.Module):
    """Weights of a sum layer as softmax of reals, mixed with the floor."""

    def __init__(self, layer: SumLayer) -> None:
        super().__init__()
        self._layer = (layer,)

    def forward(self, raw: Tensor) -> Tensor:
        layer = self._layer[0]
        views = layer.simplices(raw)
        return layer.from_simplices(
            [RELATIVE_FLOOR / v.shape[-1] + (1 - RELATIVE_FLOOR) * v.softmax(-1) for v in views]
        )

    def right_inverse(self, weight: Tensor) -> Tensor:
        layer = self._layer[0]
        tiny = torch.finfo(weight.dtype).tiny
        return layer.from_simplices(
            [
                (v - RELATIVE_FLOOR / v.shape[-1]).clamp(min=tiny).log()
                for v in layer.simplices(weight)
            ]
        )


class _Constrained(nn.Module):
    """Stored leaf parameters as the family's function of reals."""

    def __init__(self, block: LeafBlock) -> None:
        super().__init__()
        self._block = (block,)

    def forward(self, raw: Tensor) -> Tensor:
        family = self._block[0].family
        return family.rounded(family.constrain(raw.double()), raw.dtype)

    def right_inverse(self, stored: Tensor) -> Tensor:
        family = self._block[0].family
        return family.unconstrain(family.project(stored.double())).to(stored.dtype)


class _LogSimplex(nn.Module):
    """A log class prior, or log weights of a mixture, as log-softmax of reals."""

    def forward(self, raw: Tensor) -> Tensor:
        return raw.log_softmax(-1)

    def right_inverse(self, logs: Tensor) -> Tensor:
        return logs


@contextmanager
def unconstrained(model: Model) -> Iterator[Model]:
    """Within this context ``model.parameters()`` are free reals, fit for any ``torch.optim``.

    The model stays normalised at every point. On leaving, its canonical parameters are set to
    where the optimiser went.

    Args:
        model: The model.

    Example:
        >>> import einet, torch
        >>> model = einet.Einet(einet.random_trees(4, 1, 2), einet.Gaussian(), num_sums=3)
        >>> x = torch.randn(32, 4)
        >>> with einet.unconstrained(model):
        ...     optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        ...     for _ in range(3):
        ...         optimizer.zero_grad()
        ...         (-model.log_prob(x).mean()).backward()
        ...         optimizer.step()
        >>> abs(model.log_normalizer().item()) < 1e-5
        True
    """
    attach(model)
    try:
        yield model
    finally:
        detach(model)


def attach(model: Model) -> None:
    """Put unconstrained parameters behind the canonical ones."""
    if not isinstance(model, Model):
        raise TypeError(f"model must be an Einet or a Mixture, got {type(model).__name__}")
    modules = list(model.modules())
    if any(parametrize.is_parametrized(module) for module in modules):
        raise RuntimeError("the model is inside einet.unconstrained already; leave it first")
    for module in modules:
        if isinstance(module, SumLayer):
            _attach_one(module, "weight", _Simplex(module))
        elif isinstance(module, LeafBlock):
            _attach_one(module, "stored", _Constrained(module))
        elif isinstance(module, Einet) and module.num_classes > 1:
            _attach_one(module, "log_class_prior", _LogSimplex())
        elif isinstance(module, Mixture):
            _attach_one(module, "log_weights", _LogSimplex())


def _attach_one(module: nn.Module, name: str, parametrization: nn.Module) -> None:
    # Of the plain parameter, torch makes the free one: a canonical one would refuse gradients.
    release(module, name)
    parametrize.register_parametrization(module, name, parametrization)


def detach(model: Model) -> None:
    """Fix the canonical parameters at their present values and drop the unconstrained ones."""
    for module in list(model.modules()):
        if parametrize.is_parametrized(module):
            for name in list(module.parametrizations):  # type: ignore[arg-type]
                parametrize.remove_parametrizations(module, name, leave_parametrized=True)
    # Their gradients were of the reals, and go with them.
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    canonicalize(model)


class Gradient(Learner):
    """Any ``torch.optim`` optimiser on the negative mean log-likelihood, or cross-entropy.

    The latter is ``einet.fit(..., objective="discriminative")``.

    Args:
        optimizer: A class of ``torch.optim``, or a function from parameters to an optimiser.
        **options: Passed to it.

    Example:
        >>> import einet, torch
        >>> optimizer = einet.Gradient(torch.optim.Adam, lr=0.01)
    """

    objectives = ("generative", "discriminative")

    def __init__(self, optimizer: Callable[..., torch.optim.Optimizer], **options: Any) -> None:
        if not callable(optimizer):
            raise TypeError(
                "optimizer must be a class of torch.optim, or a function from parameters to an "
                f"optimiser, got {type(optimizer).__name__}"
            )
        self._make = optimizer
        self._options = options
        self._optimizer: torch.optim.Optimizer | None = None
        self._objective: Objective = "generative"
        # The optimiser's settings as it was made.
        self._began: Groups = []

    def start(
        self,
        model: Model,
        rows: Iterable[Batch] | None = None,
        objective: Objective = "generative",
    ) -> None:
        self._objective = objective
        attach(model)
        try:
            self._optimizer = self._make(model.parameters(), **self._options)
            self._began = groups_of(self._optimizer)
        except BaseException:
            # A wrong option, say: the model must not stay behind with other parameters.
            detach(model)
            raise

    def step(self, model: Model, batch: Any, progress: float = 0.0) -> Float[Tensor, ""]:
        optimizer, means = self._started(), []
        # Checked here, once: some optimisers evaluate a mini-batch many times.
        checked = model.as_batch(batch)

        def loss() -> Any:
            optimizer.zero_grad(set_to_none=True)
            if not self.team.alone:
                mean = joint_backward(model, checked, self._objective, self.team)
                means.append(mean)
                return -mean
            while True:
                try:
                    mean = self._backward(model, checked)
                    break
                except torch.OutOfMemoryError:
                    # Nothing has moved yet: the same gradients come from fewer rows at a time.
                    if not with_less(model, len(checked)):
                        raise
                optimizer.zero_grad(set_to_none=True)
            means.append(mean.detach().double())
            return -mean

        # As a closure, for those optimisers (L-BFGS) that look several times before they leap.
        optimizer.step(loss)
        return means[0]

    def _backward(self, model: Model, batch: Batch) -> Float[Tensor, ""]:
        with torch.enable_grad(), parametrize.cached():
            values = objective_of(model, batch, self._objective)
            mean = weighted_mean(values, row_weights(batch, self._objective))
            (-mean).backward()
        return mean

    @property
    def joins(self) -> bool:
        return type(self).step is Gradient.step

    def _started(self) -> torch.optim.Optimizer:
        if self._optimizer is None:
            raise RuntimeError("call start(model) before step, or let einet.fit do both")
        return self._optimizer

    def finish(self, model: Model) -> None:
        if self._optimizer is not None:
            detach(model)
            self._optimizer, self._objective = None, "generative"

    def step_size_at(self, progress: float) -> float | None:
        if self._optimizer is None:
            return None
        # Optimisers need not have a rate of this name.
        rate = self._optimizer.param_groups[0].get("lr")
        return None if rate is None else float(rate)

    # -- going on after an interruption --------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        options = {name: repr(value) for name, value in sorted(self._options.items())}
        made = getattr(self._make, "__qualname__", type(self._make).__qualname__)
        return {"learner": type(self).__name__, "optimizer": made, "options": options}

    def state(self) -> LearnerState:
        """The optimiser's state; see :mod:`einet.learning.optimizer_state`."""
        return state_of(self._started(), self._began)

    def load_state(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        def make(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
            return self._make(parameters, **self._options)

        load_state_of(self._started(), self._began, make, values, tensors)
