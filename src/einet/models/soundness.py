"""Whether the numbers of a model are those of a distribution: finite, possible and normalised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from einet._memory import chunks
from einet.families import ExponentialFamily
from einet.layers import LeafBlock, SumLayer
from einet.layers.parameter import original_of

__all__ = ["check_values"]

# Weights may miss a total of 1 by this much. Rounding is far below it in every type that models
# come in; whatever is above it changes answers.
_TOLERANCE = 1e-3
# Tensors of log probabilities, in any module that has one.
_LOGS = ("log_class_prior", "log_weights")


@torch.no_grad()
def check_values(model: nn.Module, tensors: Mapping[str, Tensor] | None = None) -> None:
    """Raise unless the parameters are those of a distribution.

    Weights of sums must not be negative and add up to 1; so must class priors and the weights of a
    mixture. Parameters of leaves, with their hyper-parameters, must be those of a density. They
    need not lie within the bounds that learning keeps to.

    Args:
        model: A model, or any module that is made of its parts.
        tensors: What to look at in place of the model's own numbers, by their names in its
            ``state_dict``: tensors of the same shapes that are to be put into it. What is not there
            is not looked at.

    Raises:
        ValueError: It names the tensor, and what is wrong with it.

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(4, 1, 2), einet.Gaussian(), num_sums=3)
        >>> check_values(model)
        >>> model.circuit.layers[0].weight[0, 0] *= 2
        >>> check_values(model)
        Traceback (most recent call last):
        ValueError: circuit.layers.0.weight must hold weights that add up to 1, got a sum of 2
    """
    starts = {module: f"{name}." if name else "" for name, module in model.named_modules()}
    for module, start in starts.items():
        if isinstance(module, SumLayer):
            for name, weight in _given(module, start, "weight", tensors):
                _check_weights(name, module, weight)
        elif isinstance(module, LeafBlock):
            for name, stored in _given(module, start, "stored", tensors):
                hyper = _under(starts.get(module.group), tensors)
                _check_leaves(name, _family(module, hyper, stored), stored)
            free = start + original_of("stored")
            if tensors is not None and free in tensors:
                family = _family(module, _under(starts.get(module.group), tensors), tensors[free])
                _check_leaves(free, family, family.constrain(tensors[free].detach().double()))
        for log in _LOGS:
            if isinstance(getattr(module, log, None), Tensor):
                for name, logs in _given(module, start, log, tensors):
                    _check_logs(name, logs)


def _given(
    module: nn.Module, start: str, name: str, tensors: Mapping[str, Tensor] | None
) -> Iterator[tuple[str, Tensor]]:
    """The tensor to look at, with its name; none where it was not given.

    Inside :func:`einet.unconstrained` a state holds free reals, which only have to be finite.
    """
    if tensors is None:
        yield start + name, getattr(module, name).detach()
        return
    if start + name in tensors:
        yield start + name, tensors[start + name].detach()
    free = start + original_of(name)
    if free in tensors:
        reals = tensors[free]
        # Where a probability is 0, its logarithm is what is free.
        wrong = reals.isnan() | (reals == torch.inf) | (reals.isinf() & (name not in _LOGS))
        if bool(wrong.any()):
            raise ValueError(f"{free} must hold finite numbers, got {reals[wrong][0].item():g}")


def _check_weights(name: str, layer: SumLayer, weight: Tensor) -> None:
    for simplex in layer.simplices(weight):
        _check_finite(name, simplex)
        if bool((simplex < 0).any()):
            raise ValueError(f"{name} must not be negative, got {simplex.min().item():g}")
        _check_total(name, simplex.sum(-1, dtype=torch.float64), "weights")


def _check_logs(name: str, logs: Tensor) -> None:
    wrong = logs.isnan() | (logs == torch.inf)
    if bool(wrong.any()):
        raise ValueError(f"{name} must hold log probabilities, got {logs[wrong][0].item():g}")
    _check_total(name, logs.double().exp().sum(-1), "logarithms of probabilities")


def _check_total(name: str, totals: Tensor, what: str) -> None:
    wrong = (totals - 1).abs() > _TOLERANCE
    if bool(wrong.any()):
        got = totals[wrong][0].item()
        raise ValueError(f"{name} must hold {what} that add up to 1, got a sum of {got:g}")


def _check_finite(name: str, values: Tensor) -> None:
    wrong = ~values.isfinite()
    if bool(wrong.any()):
        raise ValueError(f"{name} must hold finite numbers, got {values[wrong][0].item():g}")


def _under(start: str | None, tensors: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
    if start is None or tensors is None:
        return {}
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}


def _family(block: LeafBlock, hyper: Mapping[str, Tensor], like: Tensor) -> ExponentialFamily:
    """The family of every pair of a block, with these hyper-parameters in place of its own."""
    family = block.group.family
    values = {name: hyper.get(name, value) for name, value in family.hyper.items()}
    values = {name: value.detach().double().to(like.device) for name, value in values.items()}
    return family.with_hyperparameters(values).at(block.columns.reshape(-1).to(like.device))


def _check_leaves(name: str, family: ExponentialFamily, stored: Tensor) -> None:
    """Parameters are those of a density if their density is a number somewhere in the support.

    That does not see all: a Beta's density at one point is a number for negative parameters too,
    and the logit of a probability above 1 is cut off. Bounds tell what is positive in a family, and
    expectation parameters must be those of the natural ones.
    """
    _check_finite(name, stored)
    bytes_each = 8 * stored[0].numel()
    for some in chunks(len(stored), "statistics", 4 * bytes_each, stored.device):
        parameters = stored[some].double()
        try:
            # A probability may be 0; a rate, a mean, a shape or a variance may not.
            low = parameters < 0 if family.num_states is not None else parameters <= 0
            outside = low & (family.project(parameters) > 0)
            peak = family.log_prob(family.mode(parameters), parameters)
            theta, phi = family.theta_of(parameters), family.phi_of(parameters)
            again = family.phi(theta)
        except (ValueError, RuntimeError) as error:
            # Hyper-parameters may be such that nothing can be computed with them.
            raise ValueError(f"{name} and its hyper-parameters do not fit: {error}") from error
        apart = ~((again - phi).abs() <= _TOLERANCE * (1 + phi.abs()))
        wrong = outside.any(-1) | ~peak.isfinite() | apart.any(-1)
        if bool(wrong.any()):
            shown = ", ".join(f"{value:g}" for value in parameters[wrong][0].tolist()[:4])
            raise ValueError(
                f"{name} must hold parameters of a {type(family).__name__} density, got [{shown}]"
            )
