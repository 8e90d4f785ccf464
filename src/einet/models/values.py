"""Whether the numbers of a model are those of a distribution."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from einet._memory import chunks
from einet.layers import FamilyGroup, LeafBlock, SumLayer

__all__ = ["check_values"]

# The parameters that are logarithms of probabilities.
_LOGARITHMS = ("log_class_prior", "log_weights")


@torch.no_grad()
def check_values(model: nn.Module) -> None:
    """Raise unless weights are normalised and leaves are within their families' bounds.

    All of it up to rounding: a sum that learning normalised in float32 is a few last digits off,
    and stays so if the model is cast to float64.

    Args:
        model: An Einet or a mixture, with canonical parameters or unconstrained ones.

    Raises:
        ValueError: Some are not; it says which.

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(4, 1, 2), einet.Bernoulli(), num_sums=2)
        >>> check_values(model)
        >>> model.circuit.sum_layers[0].weight[0, 0, 0] = -1
        >>> check_values(model)
        Traceback (most recent call last):
        ValueError: circuit.layers.0.weight must hold probabilities that add up to 1, got ...
    """
    for name, module in model.named_modules():
        # In a mixture, "components.1."
        start = f"{name}." if name else ""
        if isinstance(module, SumLayer):
            _check_weights(f"{start}weight", module)
        elif isinstance(module, FamilyGroup):
            _check_hyperparameters(name, module)
        elif isinstance(module, LeafBlock):
            _check_leaves(f"{start}stored", module)
        for logarithms in _LOGARITHMS:
            if isinstance(value := getattr(module, logarithms, None), Tensor):
                _check_logarithms(f"{start}{logarithms}", value)


def _slack(kind: torch.dtype, count: int) -> float:
    """How far from 1 the sum of so many probabilities may be."""
    rounding = max(torch.finfo(kind).eps, torch.finfo(torch.float32).eps)
    return 4 * rounding * (4 + math.sqrt(count))


def _check_weights(name: str, layer: SumLayer) -> None:
    for simplex in layer.simplices(layer.weight.detach()):
        totals, slack = (
            simplex.sum(-1, dtype=torch.float64),
            _slack(simplex.dtype, simplex.shape[-1]),
        )
        # No comparison holds for NaN.
        off = ~((totals - 1).abs() <= slack)
        smallest = simplex.amin()
        if bool(off.any()) or not bool(smallest >= 0):
            total = totals[off][0].item() if bool(off.any()) else 1.0
            raise ValueError(
                f"{name} must hold probabilities that add up to 1, got a sum of {total:.9g} and a "
                f"smallest one of {smallest.item():.9g}"
            )


def _check_logarithms(name: str, logarithms: Tensor) -> None:
    total = logarithms.detach().double().logsumexp(0)
    if not bool(total.abs() <= _slack(logarithms.dtype, logarithms.numel())):
        raise ValueError(
            f"{name} must hold the logarithms of probabilities that add up to 1, got the logarithm "
            f"of their sum {total.item():.9g}"
        )


def _check_hyperparameters(name: str, group: FamilyGroup) -> None:
    try:
        group.family.check_hyperparameters()
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _check_leaves(name: str, block: LeafBlock) -> None:
    stored, family = block.stored.detach(), block.family
    # A few entries at a time, as projecting them makes several copies in float64.
    for some in chunks(len(stored), "block", 32 * stored[0].numel(), stored.device):
        outside = ~family.is_within_bounds(stored[some])
        if bool(outside.any()):
            entry, pair = outside.nonzero()[0].tolist()
            variable = block.group.variables[block.columns.view(-1)[pair]].item()
            values = ", ".join(f"{value:.9g}" for value in stored[some][entry, pair].tolist()[:8])
            raise ValueError(
                f"{name} must hold parameters within the bounds of {type(family).__name__}, got "
                f"{values} for variable {variable}"
            )
