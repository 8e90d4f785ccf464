"""Growing: a model with more sums that is the same distribution, for EM to go on with."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet._checks import as_int, as_seed
from einet.layers import EinsumLayer, LinearLayer, MixingLayer, SumLayer
from einet.models.base import Model
from einet.models.einet import Einet

__all__ = ["grow"]


@torch.no_grad()
def grow(model: Model, num_sums: int, seed: int = 0) -> Einet:
    r"""The same distribution with a larger K: some states become two or more of their kind.

    Entry k' of a region is a copy of entry k' mod K. A weight of a sum is split at random among the
    copies of what it belonged to, :math:`W'_{k'i'} = \alpha_{k'i'} W_{ki}` with :math:`\sum \alpha
    = 1` over the copies i' of i. So every copy has the density of its original, and the model that
    of the model given. As different sums split their weights differently, copies hear from
    different rows, and the next EM steps lead them apart.

    A model that has grown reaches in a few epochs what one of that size takes long to learn.

    Args:
        model: The model, which stays as it is.
        num_sums: The new K, at least the old one.
        seed: Seed of the splits.

    Returns:
        A new model on the same graph, with the same families, classes, type and device.

    Example:
        >>> import einet, torch
        >>> small = einet.Einet(einet.random_trees(4, 2, 1), einet.Bernoulli(), num_sums=3)
        >>> large = einet.grow(small, num_sums=6)
        >>> x = torch.tensor([[0.0, 1.0, 1.0, 0.0]])
        >>> bool((small.log_prob(x) - large.log_prob(x)).abs() < 1e-5)
        True
        >>> large.num_sums
        6
    """
    if not isinstance(model, Einet):
        raise TypeError(f"model must be an Einet, got {type(model).__name__}")
    num_sums = as_int("num_sums", num_sums, minimum=1)
    if num_sums < model.num_sums:
        raise ValueError(
            f"num_sums must be at least {model.num_sums}, as many as the model has, got {num_sums}"
        )
    generator = torch.Generator().manual_seed(as_seed(seed))
    # Leaves have K densities each, or a number of their own, which stays.
    follows = model.num_leaves == model.num_sums
    num_leaves = num_sums if follows else model.num_leaves
    grown = Einet(
        model.graph,
        model.families,
        num_sums,
        num_leaves=num_leaves,
        sums=model.sums,
        num_classes=model.num_classes,
        precision=model.precision,
        dtype=model.dtype,
        device=model.device,
    )
    for old, new in zip(model.leaf.leaf_blocks, grown.leaf.leaf_blocks, strict=True):
        new.stored.copy_(old.stored[_originals(num_leaves, model.num_leaves, old.stored.device)])
    for old, new in zip(model.leaf.family_groups, grown.leaf.family_groups, strict=True):
        for name in old.raw_hyper:
            # Bounds that were read off the data, say.
            new.get_buffer(name).copy_(old.get_buffer(name))
    for old, new in zip(model.circuit.sum_layers, grown.circuit.sum_layers, strict=True):
        new.weight.copy_(_larger(old, new, generator))
    grown.log_class_prior.copy_(model.log_class_prior)
    grown.initialized, grown.columns = model.initialized, model.columns
    return grown


def _originals(count: int, before: int, device: torch.device) -> Int[Tensor, " count"]:
    """Which entry each is a copy of."""
    return torch.arange(count, device=device) % before


def _larger(old: SumLayer, new: SumLayer, generator: torch.Generator) -> Tensor:
    """The weights of a layer for more outputs and inputs."""
    device = old.weight.device
    outputs = _originals(new.num_outputs, old.num_outputs, device)
    if isinstance(old, MixingLayer):
        return old.weight[:, outputs]
    if isinstance(old, LinearLayer) and isinstance(new, LinearLayer):
        inputs = _originals(new.num_inputs, old.num_inputs, device)
    elif isinstance(old, EinsumLayer) and isinstance(new, EinsumLayer):
        left = _originals(new.num_left, old.num_left, device)
        right = _originals(new.num_right, old.num_right, device)
        inputs = (left.unsqueeze(1) * old.num_right + right).flatten()
    else:
        raise TypeError(f"model must have sums that can grow, got a {type(old).__name__}")
    copied = old.weight[:, outputs][:, :, inputs]
    return copied * _shares(copied, inputs, old.weight.shape[-1], generator)


def _shares(
    like: Float[Tensor, "L K inputs"],
    originals: Int[Tensor, " inputs"],
    num_originals: int,
    generator: torch.Generator,
) -> Float[Tensor, "L K inputs"]:
    """Random shares that add up to 1 over the copies of each input, for every sum."""
    drawn = torch.rand(like.shape, generator=generator, dtype=torch.float64).to(like.device)
    # Away from 0: a copy that nobody uses would learn nothing.
    drawn = drawn + 0.1
    total = drawn.new_zeros(*like.shape[:2], num_originals).index_add_(-1, originals, drawn)
    return (drawn / total[:, :, originals]).to(like.dtype)
