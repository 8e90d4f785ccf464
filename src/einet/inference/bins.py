"""Probabilities of bins: densities integrated over intervals, exactly, leaf by leaf."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from einet._memory import budget, fitting
from einet.data.batch_events import Events
from einet.engine.passes import Passes
from einet.inference.bin_bounds import bin_log_bounds, root_log_prob
from einet.inference.distribution import Distribution
from einet.kernels.leaf import TABLE, log_values
from einet.kernels.memory import block_bytes
from einet.layers import LeafBlock
from einet.layers.leaf_events import log_masses

__all__ = ["bin_log_prob"]

# A component of a mixture is left out of a row's sum where it is less than a share exp(−45) of it:
# float64 would round it away, and bounds are rounded by far less than the rest of these nats.
_NATS = 45.0


@torch.no_grad()
def bin_log_prob(
    model: Distribution,
    bins: Integer[Tensor, "batch variables"],
    edges: Float[Tensor, " bins_and_1"],
) -> Float[Tensor, " batch"]:
    r"""log P of the box of each row, in which variable d lies in bin ``bins[row, d]`` (float64).

    Bin i reaches from ``edges[i]`` to ``edges[i + 1]``. A circuit is a sum of products of leaves,
    so that its integral over a box is the same sum of products with each leaf density replaced by
    its own integral, :math:`\Phi(\frac{b - \mu}{\sigma}) - \Phi(\frac{a - \mu}{\sigma})` for a
    Gaussian: this is no approximation. With infinite outer edges the bins of a variable cover
    everything, and their probabilities add up to 1.

    Tables of integrals take long, and few components of a mixture matter for a row. So all of them
    are bounded from above first (:mod:`einet.inference.bin_bounds`), and those are left out that
    float64 would round away.

    Args:
        model: A model whose leaves are all densities.
        bins: The number of each variable's bin.
        edges: Ascending bounds of the bins, the same for all variables; in the model's units.

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
        >>> edges = torch.tensor([-torch.inf, -1.0, 0.5, torch.inf], dtype=torch.float64)
        >>> boxes = torch.cartesian_prod(torch.arange(3), torch.arange(3))
        >>> bin_log_prob(model, boxes, edges).exp().sum().item()
        1.0
    """
    for name, tensor, whole in (("bins", bins, True), ("edges", edges, False)):
        plain = isinstance(tensor, Tensor) and tensor.ndim == 1 + whole
        if not plain or tensor.is_complex() or tensor.is_floating_point() == whole:
            kind = "whole numbers [rows, variables]" if whole else "floating numbers [bins + 1]"
            raise TypeError(f"{name} must be a tensor of {kind}, got {type(tensor).__name__}")
    count = edges.shape[0] - 1
    if count < 1 or not bool((edges[1:] > edges[:-1]).all()):
        raise ValueError(f"edges must be at least two ascending numbers, got {edges.tolist()}")
    if bins.shape[1] != model.num_variables:
        raise ValueError(
            f"bins must have shape [rows, {model.num_variables}], got {list(bins.shape)}"
        )
    if bins.numel() and not 0 <= int(bins.min()) <= int(bins.max()) < count:
        raise ValueError(
            f"bins must lie between 0 and {count - 1}, got {int(bins.min())} to {int(bins.max())}"
        )
    for _, einet in model.weighted_einets():
        for group in einet.leaf.family_groups:
            if group.family.discrete:
                # Neighbouring bins share an edge, which may hold a state.
                name = type(group.family).__name__
                raise ValueError(f"bins are for densities, but a variable is {name}")
    bins, edges = bins.to(model.device), edges.double().to(model.device)
    parts = [part for part in model.weighted_einets() if part[0] > -torch.inf]
    if len(parts) == 1:
        return _log_prob(parts[0][1], bins, edges) + parts[0][0]
    log_weights = torch.stack([log_weight for log_weight, _ in parts]).unsqueeze(-1)
    bounds = bin_log_bounds([einet for _, einet in parts], bins, edges) + log_weights
    best = bounds.argmax(0)
    least = _NATS + math.log(len(parts))
    total = torch.full_like(bounds[0], -torch.inf)
    for first in (True, False):
        for number, (log_weight, einet) in enumerate(parts):
            is_best = best == number
            needed = is_best if first else ~is_best & (bounds[number] > total - least)
            rows = needed.nonzero().flatten()
            if rows.numel():
                logs = _log_prob(einet, bins[rows], edges) + log_weight
                total[rows] = torch.logaddexp(total[rows], logs)
    return total


def _log_prob(model: Passes, bins: Tensor, edges: Tensor) -> Tensor:
    # Fewer rows are events in every cell; a table costs as much as so many rows as there are bins.
    tables = _Tables(model, edges) if len(bins) >= len(edges) - 1 else None
    parts = []
    for rows in model.pieces(len(bins)):
        if tables is None:
            some, every = bins[rows].long(), tuple(range(model.num_variables))
            values = log_masses(model.leaf, Events(every, edges[some], edges[some + 1]))
        else:
            values = _leaf_values(model, bins[rows], tables)
        parts.append(root_log_prob(model, values))
    return torch.cat(parts) if parts else edges.new_empty(0)


#: A block, the number of the first leaf, and the table of some leaves from there on.
_Table: TypeAlias = tuple[LeafBlock, int, Float[Tensor, "K n s bins"]]


def _leaf_values(
    model: Passes, bins: Tensor, tables: Iterable[_Table]
) -> Float[Tensor, "leaf_nodes K batch"]:
    """The log-probabilities of all leaf entries."""
    shape = (model.leaf.num_nodes, model.leaf.num_entries, len(bins))
    total = torch.zeros(shape, dtype=torch.float64, device=bins.device)
    for block, first, table in tables:
        states = bins[:, block.group.variables].T.long().contiguous()
        evidence = TABLE.of_states(states)
        K, n, s, _ = table.shape
        theta, columns = table.flatten(1, 2), block.columns[first : first + n]
        for part, rows, values in log_values(theta, theta.new_zeros(K, n * s), columns, evidence):
            leaves = slice(first + part.start, first + part.stop)
            block.rows.add_(total[:, :, rows], leaves, values)
    return total


class _Tables:
    """Log-probabilities of all bins of all leaves, in tables of bounded size."""

    def __init__(self, model: Passes, edges: Float[Tensor, " bins_and_1"]) -> None:
        self.blocks, self.edges = model.leaf.leaf_blocks, edges
        self.bounds = edges[:-1], edges[1:]
        cells = sum(block.stored[..., 0].numel() for block in self.blocks) * (len(edges) - 1)
        fits = 8 * cells <= budget("kept tables", edges.device)
        self._kept: list[_Table] | None = [] if fits else None

    def __iter__(self) -> Iterator[_Table]:
        if self._kept is None:
            return self._made()
        if not self._kept:
            self._kept = list(self._made())
        return iter(self._kept)

    def _made(self) -> Iterator[_Table]:
        bins = len(self.edges) - 1
        for block in self.blocks:
            (n, s), K = block.columns.shape, block.stored.shape[0]
            stored = block.stored.detach().view(K, n, s, -1)
            step = fitting("table", 8 * K * s * bins, self.edges.device)
            for first in range(0, n, step):
                columns = block.columns[first : first + step].unsqueeze(-1)
                family = block.group.family.at(columns)
                parameters = stored[:, first : first + step].unsqueeze(-2)
                table = self.edges.new_empty(K, *columns.shape[:2], bins)
                # A few entries at a time: what is computed on the way then stays in a core's cache.
                some = max(1, block_bytes(table.device) // table[0].nbytes)
                for k in range(0, K, some):
                    entries = parameters[k : k + some].double()
                    table[k : k + some] = family.log_prob_between(*self.bounds, entries)
                yield block, first, table
