"""Whether the numbers of a model are those of a distribution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from einet._memory import chunks
from einet.families import ExponentialFamily
from einet.layers import FamilyGroup, LeafBlock, SumLayer
from einet.layers.parameter import original_of

__all__ = ["check_values"]

# The parameters that are logarithms of probabilities.
_LOGARITHMS = ("log_class_prior", "log_weights")
# Probabilities may miss a sum of 1 by this much. Each small step of stochastic EM in float32 rounds
# them, and on a CPU nothing normalises them again: with steps of 1e-4 sums are off by up to 1e-4.
_SLACK = 3e-4


@torch.no_grad()
def check_values(model: nn.Module, tensors: Mapping[str, Tensor] | None = None) -> None:
    """Raise unless weights are normalised and leaves are within their families' bounds.

    All of it up to rounding, also that which adds up in a long training.

    Args:
        model: An Einet or a mixture, or any module that is made of their parts.
        tensors: What to look at in place of the model's own numbers, by their names in its
            ``state_dict``: tensors of the same shapes that are to be put into it. What is not there
            is not looked at. Inside :func:`einet.unconstrained` some of them are free reals, which
            only have to be finite.

    Raises:
        ValueError: It names the tensor, and what is wrong with it.

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(4, 1, 2), einet.Bernoulli(), num_sums=2)
        >>> check_values(model)
        >>> model.circuit.sum_layers[0].weight[0, 0, 0] = -1
        >>> check_values(model)
        Traceback (most recent call last):
        ValueError: circuit.layers.0.weight must hold probabilities that add up to 1, got ...
    """
    # In a mixture, "components.1."
    starts = {module: f"{name}." if name else "" for name, module in model.named_modules()}
    families: dict[FamilyGroup, ExponentialFamily] = {}
    for module, start in starts.items():
        if isinstance(module, FamilyGroup):
            families[module] = _checked_family(module, start, tensors)
    for module, start in starts.items():
        if isinstance(module, SumLayer):
            for name, weight in _given(module, start, "weight", tensors):
                _check_weights(name, module, weight)
        elif isinstance(module, LeafBlock):
            family = families[module.group]
            for name, stored in _given(module, start, "stored", tensors):
                _check_leaves(name, module, family, stored)
        for logarithms in _LOGARITHMS:
            if isinstance(getattr(module, logarithms, None), Tensor):
                for name, logs in _given(module, start, logarithms, tensors):
                    _check_logarithms(name, logs)


def _given(
    module: nn.Module, start: str, name: str, tensors: Mapping[str, Tensor] | None
) -> Iterator[tuple[str, Tensor]]:
    """The tensor to look at, with its name; none where it was not given."""
    if tensors is None:
        yield start + name, getattr(module, name).detach()
        return
    if start + name in tensors:
        yield start + name, tensors[start + name].detach()
    free = start + original_of(name)
    if free in tensors:
        reals = tensors[free]
        # Where a probability is 0, its logarithm is what is free.
        wrong = reals.isnan() | (reals == torch.inf) | (reals.isinf() & (name not in _LOGARITHMS))
        if bool(wrong.any()):
            raise ValueError(f"{free} must hold finite numbers, got {reals[wrong][0].item():g}")


def _check_weights(name: str, layer: SumLayer, weight: Tensor) -> None:
    for simplex in layer.simplices(weight):
        totals = simplex.sum(-1, dtype=torch.float64)
        # No comparison holds for NaN.
        off = ~((totals - 1).abs() <= _SLACK)
        smallest = simplex.amin()
        if bool(off.any()) or not bool(smallest >= 0):
            total = totals[off][0].item() if bool(off.any()) else 1.0
            raise ValueError(
                f"{name} must hold probabilities that add up to 1, got a sum of {total:.9g} and a "
                f"smallest one of {smallest.item():.9g}"
            )


def _check_logarithms(name: str, logarithms: Tensor) -> None:
    # One column for each of several models side by side.
    totals = logarithms.double().logsumexp(-1)
    off = ~(totals.abs() <= _SLACK)
    if bool(off.any()):
        raise ValueError(
            f"{name} must hold the logarithms of probabilities that add up to 1, got the logarithm "
            f"of their sum {totals[off][0].item():.9g}"
        )


def _checked_family(
    group: FamilyGroup, start: str, tensors: Mapping[str, Tensor] | None
) -> ExponentialFamily:
    """The family of a group, with the hyper-parameters given in place of its own."""
    family = group.family
    if tensors is not None:
        hyper = {name: tensors.get(start + name, value) for name, value in family.hyper.items()}
        hyper = {name: value.detach().double() for name, value in hyper.items()}
        family = family.with_hyperparameters(hyper)
    if any(value.is_meta for value in family.hyper.values()):
        return family
    try:
        family.check_hyperparameters()
    except ValueError as error:
        raise ValueError(f"{start.removesuffix('.')}: {error}") from error
    return family


def _check_leaves(name: str, block: LeafBlock, family: ExponentialFamily, stored: Tensor) -> None:
    family = family.to(stored.device).at(block.columns.reshape(-1).to(stored.device))
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
