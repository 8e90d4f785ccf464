"""Moments of leaf densities, and of variables under posterior probabilities of leaves."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor

from einet.engine.changes import State, state_of
from einet.layers import LeafBlock, LeafLayer
from einet.layers.expectation import expectations

__all__ = ["Moments", "mean_and_variance", "moments_of", "moments_under"]


class Moments(NamedTuple):
    """First and second moments of all leaf densities about a number for each variable.

    Attributes:
        about: Where they are taken: in the middle of a variable's leaf means, so that nothing
            cancels for data far from the origin.
        of_blocks: Those of each block.
    """

    about: Float[Tensor, " variables"]
    of_blocks: dict[LeafBlock, Float[Tensor, "2 K pairs"]]

    def clone(self) -> Moments:
        """The same in memory of its own."""
        return Moments(self.about.clone(), {b: m.clone() for b, m in self.of_blocks.items()})

    def copy_(self, other: Moments) -> None:
        """Take the numbers of others of the same leaves."""
        self.about.copy_(other.about)
        for block, mine in self.of_blocks.items():
            mine.copy_(other.of_blocks[block])


def mean_and_variance(
    leaf: LeafLayer, flow: Float[Tensor, "leaf_nodes K batch"]
) -> tuple[Float[Tensor, "batch variables"], Float[Tensor, "batch variables"]]:
    """Posterior mean and variance of every variable, by the law of total variance."""
    return moments_under(leaf, flow, moments_of(leaf))


def moments_under(
    leaf: LeafLayer, flow: Float[Tensor, "leaf_nodes K batch"], moments: Moments
) -> tuple[Float[Tensor, "batch variables"], Float[Tensor, "batch variables"]]:
    """The same from moments of the leaves; nothing waits for the device."""
    shift, second = expectations(leaf, flow, moments.of_blocks, 2)
    variance = (second - shift**2).clamp_(min=0.0)
    return (moments.about.unsqueeze(-1) + shift).T, variance.T


# -- of leaves -------------------------------------------------------------------------------------


class _Made(NamedTuple):
    """Moments of the parameters in one state, and the stream that they were made in."""

    state: State
    moments: Moments
    stream: torch.cuda.Stream | None


# They go with their leaves, and are no part of them: files and copies hold parameters alone.
_made: WeakKeyDictionary[LeafLayer, _Made] = WeakKeyDictionary()


def moments_of(leaf: LeafLayer) -> Moments:
    """Moments of all leaf densities; on a GPU made once for the parameters as they are.

    There the launches take longer than all else about a mean, and moments are small beside what
    else lies there. No lock is held: threads may make them at the same time, and either serves.
    """
    state = _state_of(leaf)
    if state is None:
        return _find_moments(leaf)
    known, stream = _made.get(leaf), _stream_of(leaf)
    if known is None or known.state != state:
        known = _made[leaf] = _Made(state, _find_moments(leaf), stream)
    if stream is not None and known.stream is not None and stream != known.stream:
        # They may not be there yet, and must not be given away while they are read here.
        stream.wait_stream(known.stream)
        for tensor in (known.moments.about, *known.moments.of_blocks.values()):
            tensor.record_stream(stream)
    return known.moments


def _stream_of(leaf: LeafLayer) -> torch.cuda.Stream | None:
    """The stream that this thread's work on a GPU goes to."""
    index = leaf.leaf_blocks[0].leaves
    return torch.cuda.current_stream(index.device) if index.is_cuda else None


def _is_kept(leaf: LeafLayer) -> bool:
    return leaf.leaf_blocks[0].leaves.is_cuda


def _state_of(leaf: LeafLayer) -> State | None:
    """Which tensors leaves are made of, and how often each has changed; None if not counted."""
    if not _is_kept(leaf):
        return None
    kept = [block._parameters for block in leaf.leaf_blocks]
    # A group of variables has its hyper-parameters among its buffers.
    kept += [group._buffers for group in leaf.family_groups]
    return state_of(kept)


def _find_moments(leaf: LeafLayer) -> Moments:
    blocks = leaf.leaf_blocks
    middle = blocks[0].stored.new_zeros(leaf.num_variables, dtype=torch.float64)
    variables = [block.group.variables[block.columns].reshape(-1) for block in blocks]
    means, variances, centres = [], [], []
    for block in blocks:
        stored, family = block.stored.detach().double(), block.family
        means.append(family.mean(stored))
        variances.append(family.variance(stored))
        centres.append(means[-1].mean(0))
    if sum(map(len, variables)) == leaf.num_variables:
        # One leaf for each variable, as in a hidden tree: there is nothing to average.
        for which, centre in zip(variables, centres, strict=True):
            middle[which] = centre
    else:
        count = torch.zeros_like(middle)
        for which, centre in zip(variables, centres, strict=True):
            middle.index_add_(0, which, centre)
            count.index_add_(0, which, torch.ones_like(centre))
        middle /= count
        centres = [middle[which] for which in variables]
    moments = {}
    for number, block in enumerate(blocks):
        first = means[number] - centres[number]
        moments[block] = torch.stack([first, variances[number] + first**2])
    return Moments(middle, moments)
