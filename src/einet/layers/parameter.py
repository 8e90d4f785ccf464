"""Canonical parameters: probabilities and moments, which no gradient step may touch.

And parameters that have no values yet, for models that a file is about to fill.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList
from torch.overrides import TorchFunctionMode

__all__ = ["CanonicalParameter", "OnPaper", "canonicalize", "original_of", "release"]

_REFUSAL = (
    "canonical parameters take no gradients: they are probabilities and moments, and a gradient "
    "step would leave a model that is not normalised. Make the optimiser inside "
    "`with einet.unconstrained(model):`, or train with einet.fit(model, x, "
    "optimizer=einet.Gradient(torch.optim.Adam))"
)

# Frames that may lie between the question and an optimiser: checks of types, in tests.
_MOST_FRAMES = 8


class CanonicalParameter(nn.Parameter):
    """A parameter in the form that EM updates: it asks for no gradients, and refuses to.

    So queries record nothing, and an optimiser over such parameters fails as soon as it is made:
    every ``torch.optim.Optimizer`` asks each tensor whether it is a leaf.
    """

    def __new__(cls, data: Tensor, requires_grad: bool = False) -> CanonicalParameter:
        if requires_grad:
            raise RuntimeError(_REFUSAL)
        return super().__new__(cls, data.detach(), False)

    @property
    def is_leaf(self) -> bool:  # type: ignore[override]
        if _asked_by_an_optimiser():
            raise RuntimeError(_REFUSAL)
        return True

    def requires_grad_(self, requires_grad: bool = True) -> CanonicalParameter:
        if requires_grad:
            raise RuntimeError(_REFUSAL)
        return self

    @property
    def requires_grad(self) -> bool:  # type: ignore[override]
        return False

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)


class OnPaper(TorchFunctionMode):
    """Within it ``torch.empty`` makes tensors on the meta device, which take no memory.

    So a model can be planned, and its shapes looked at, however large it would be. In this thread
    only.

    Example:
        >>> with OnPaper():
        ...     large = torch.empty(10**6, 10**6)
        >>> large.shape, large.device
        (torch.Size([1000000, 1000000]), device(type='meta'))
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.empty:
            kwargs = {**kwargs, "device": "meta"}
        return func(*args, **kwargs)


def _asked_by_an_optimiser() -> bool:
    """Whether ``Optimizer.add_param_group`` is asking; modules and torch.export ask as well."""
    frame = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return False
        if frame.f_code.co_name == "add_param_group":
            return True
        frame = frame.f_back
    return False


def canonicalize(model: nn.Module) -> None:
    """Make parameters without gradients canonical: torch replaces some kinds by plain ones."""
    for module in model.modules():
        if isinstance(module, ParametrizationList):
            continue
        for name, parameter in module._parameters.items():
            if parameter is None or parameter.requires_grad:
                continue
            if not isinstance(parameter, CanonicalParameter):
                module._parameters[name] = CanonicalParameter(parameter)


def release(module: nn.Module, name: str) -> nn.Parameter:
    """Put a plain parameter with gradients in the place of a canonical one."""
    plain = nn.Parameter(module._parameters[name].detach())  # type: ignore[union-attr]
    module._parameters[name] = plain
    return plain


def original_of(name: str) -> str:
    """What a state calls the free parameter that a parametrised one is computed from.

    >>> original_of("weight")
    'parametrizations.weight.original'
    """
    return f"parametrizations.{name}.original"
