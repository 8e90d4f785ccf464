"""The most probable count of a mixture of counts, found without a table of all of them."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from einet.inference.conditioned import Conditioned
from einet.inference.distribution import Distribution
from einet.inference.states import state_sums

__all__ = ["most_probable_by_search", "range_of_modes"]

# Intervals are cut into so many; rows are searched so many at a time, as each has its own.
_PARTS = 16
_ROWS_AT_ONCE = 64
# Bounds this close to the best probability are rounding errors, and so is what tells states apart
# that are this close to each other, compared with their size.
_TOLERANCE, _RESOLUTION = 1e-12, 2.0**-40
# Cells of bounds computed at a time.
_CELLS_AT_ONCE = 1 << 20


def range_of_modes(
    model: Distribution,
) -> tuple[Float[Tensor, " variables"], Float[Tensor, " variables"], Bool[Tensor, " variables"]]:
    """Where the modes of each variable's densities lie, and whether all of these have one peak.

    A mixture of densities with one peak has its own mode between theirs: below all of them every
    one rises, above all of them every one falls. Of others (Categorical) the range is all states.
    The tensors are on the CPU.
    """
    kind = torch.float64
    lowest = torch.full((model.num_variables,), torch.inf, dtype=kind, device=model.device)
    highest = torch.full_like(lowest, -torch.inf)
    one_peak = torch.ones_like(lowest, dtype=torch.bool)
    for _, einet in model.weighted_einets():
        for block in einet.leaf.leaf_blocks:
            variables = block.group.variables[block.columns].reshape(-1)
            modes = block.family.mode(block.stored.detach().double())
            least, most = modes.amin(0), modes.amax(0)
            if block.family.kernel == "table":
                one_peak[variables] = False
                states = block.family.num_states
                assert states is not None
                least, most = torch.zeros_like(least), torch.full_like(most, states - 1.0)
            lowest.scatter_reduce_(0, variables, least, "amin")
            highest.scatter_reduce_(0, variables, most, "amax")
    return lowest.cpu(), highest.cpu(), one_peak.cpu()


def most_probable_by_search(
    posterior: Conditioned, variable: int, lowest: float, highest: float
) -> Float[Tensor, " batch"]:
    """argmax_s p(x_d = s | e) over ``lowest`` ≤ s ≤ ``highest``, for densities with one peak.

    An interval of states is left as soon as no state in it can be the best of any row: none is more
    probable than Σ_L p(L | e) times the largest probability that leaf L has in the interval. What
    is left is cut into smaller intervals, down to single states.
    """
    parts = []
    for start in range(0, len(posterior), _ROWS_AT_ONCE):
        rows = slice(start, min(start + _ROWS_AT_ONCE, len(posterior)))
        parts.append(_search(posterior.at(rows), variable, lowest, highest))
    return torch.cat(parts)


def _search(posterior: Conditioned, variable: int, lowest: float, highest: float) -> Tensor:
    width = 1.0
    while width < highest - lowest + 1:
        width *= _PARTS
    device, kind = posterior.model.device, torch.float64
    starts = torch.tensor([lowest], dtype=kind, device=device)
    best = torch.full((len(posterior), 1), -torch.inf, dtype=kind, device=device)
    state = torch.full((len(posterior),), lowest, dtype=kind, device=device)
    chosen = torch.tensor([variable], device=device)
    inside = torch.arange(_PARTS, dtype=kind, device=device)

    def bound(first: Tensor, last: Tensor) -> Float[Tensor, "batch states"]:
        step = max(1, _CELLS_AT_ONCE // len(posterior))
        pairs = zip(first.split(step), last.split(step), strict=True)
        return torch.cat([_bound(posterior, chosen, low, high) for low, high in pairs], 1)

    while len(starts):
        middle = (starts + (width - 1) // 2).clamp(max=highest)
        value, place = bound(middle, middle).max(1, keepdim=True)
        better = (value > best)[:, 0]
        state[better] = middle[place[better, 0]]
        best = torch.maximum(best, value)
        if width <= max(1.0, _RESOLUTION * highest):
            break
        upper = bound(starts, (starts + width - 1).clamp(max=highest))
        possible = (upper > best * (1 + _TOLERANCE)).any(0)
        width /= _PARTS
        starts = (starts[possible].unsqueeze(1) + width * inside).flatten()
        starts = starts[starts <= highest]
    return state


def _bound(
    posterior: Conditioned,
    variable: Int[Tensor, " 1"],
    first: Float[Tensor, " states"],
    last: Float[Tensor, " states"],
) -> Float[Tensor, "batch states"]:
    """No state from ``first`` to ``last`` is more probable; of a single state it is the truth."""
    return posterior.expectation(
        lambda leaves: state_sums(leaves, variable, first, last)[0].T, len(first)
    )
