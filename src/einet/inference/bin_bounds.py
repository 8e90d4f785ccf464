"""Upper bounds of probabilities of bins: by a matrix product, where the integral needs a table."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from einet.engine.passes import Passes
from einet.engine.root import join, log_sum
from einet.families import ExponentialFamily
from einet.kernels.leaf import PRODUCT, log_values
from einet.kernels.leaf_kernel import Evidence
from einet.kernels.nodes import scaled
from einet.layers import LeafBlock

__all__ = ["bin_log_bounds", "root_log_prob"]

# Rows are taken so many cells at a time: their statistics are a few float64 for each.
_CPU_CELLS, _GPU_CELLS = 1 << 22, 1 << 23


def bin_log_bounds(
    einets: Sequence[Passes],
    bins: Integer[Tensor, "batch variables"],
    edges: Float[Tensor, " bins_and_1"],
) -> Float[Tensor, "einets batch"]:
    """At least log P of the box of each row under each Einet, and seldom much more (float64).

    A circuit never falls where its leaves rise, so that bounds of all leaves give one of the root.
    Bins of finite width have that of :meth:`~einet.ExponentialFamily.interval_bound`, which is a
    product with the statistics of the bin's centre. A first or last bin that reaches to infinity
    has its exact probability, by a statistic of its own.

    Args:
        einets: Einets of the same variables, all of whose leaves are densities.
        bins, edges: As in :func:`~einet.inference.bins.bin_log_prob`, on the Einets' device.
    """
    cells = _CPU_CELLS if edges.device.type == "cpu" else _GPU_CELLS
    result = []
    for some in bins.T.split(max(1, cells // bins.shape[1]), 1):
        places = _Places(some.long().contiguous(), edges)
        result.append(torch.stack([_bound(einet, places) for einet in einets]))
    return torch.cat(result, 1)


class _Places:
    """Where the bins of some rows are, apart from what a family makes of it."""

    def __init__(
        self, bins: Int[Tensor, "variables batch"], edges: Float[Tensor, " bins_and_1"]
    ) -> None:
        low, high = edges[:-1], edges[1:]
        finite = low.isfinite() & high.isfinite()
        self.edges, self.batch = edges, bins.shape[1]
        #: The largest width of a finite bin.
        self.width = (high - low)[finite].max() if bool(finite.any()) else edges.new_ones(())
        self.centres = torch.where(finite, (low + high) / 2, 0.0)[bins]
        inner = finite[bins]
        # A single bin is both the first and the last one.
        ends = [~inner & (bins == 0), ~inner & (bins == len(finite) - 1) & (bins > 0)]
        #: 1 in a finite bin, in a first one that is not, in a last one that is not.
        self.flags = torch.stack([inner, *ends], 1).to(edges.dtype)

    def evidence(self, family: ExponentialFamily, variables: Int[Tensor, " V"]) -> Evidence:
        """Statistics of the centres of finite bins, with the flags behind them."""
        per_variable = family.at(torch.arange(len(variables), device=variables.device)[:, None])
        centres, flags = self.centres, self.flags
        if len(variables) < len(centres) or bool((variables.diff() != 1).any()):
            centres, flags = centres[variables], flags[variables]
        size = family.num_statistics
        statistics = centres.new_empty(len(centres), size + 3, self.batch)
        of_centres = per_variable.T(centres).transpose(1, 2)
        torch.mul(of_centres, flags[:, :1], out=statistics[:, :size])
        statistics[:, size:] = flags
        constant = statistics.new_zeros(len(statistics))
        return Evidence(PRODUCT, self.batch, statistics, None, constant, None)

    def coefficients(self, block: LeafBlock) -> Float[Tensor, "K pairs S_3"]:
        """What the bound multiplies these statistics by."""
        family = block.group.family.at(block.columns.reshape(-1))
        stored = block.stored.detach().double()
        theta, constant = family.interval_bound(self.width, stored)
        ends = (self.edges[:2], self.edges[-2:])
        of_ends = [family.log_prob_between(low, high, stored) for low, high in ends]
        return torch.cat([theta, torch.stack([constant, *of_ends], -1)], -1)


def _bound(model: Passes, places: _Places) -> Float[Tensor, " batch"]:
    groups = model.leaf.family_groups
    evidence = {group: places.evidence(group.family, group.variables) for group in groups}
    shape = (model.leaf.num_nodes, model.leaf.num_entries, places.batch)
    total = torch.zeros(shape, dtype=torch.float64, device=places.edges.device)
    for block in model.leaf.leaf_blocks:
        theta = places.coefficients(block)
        nothing = theta.new_zeros(theta.shape[:2])
        for leaves, rows, values in log_values(
            theta, nothing, block.columns, evidence[block.group]
        ):
            block.rows.add_(total[:, :, rows], leaves, values)
    return root_log_prob(model, total)


def root_log_prob(
    model: Passes, leaf_values: Float[Tensor, "leaf_nodes K batch"]
) -> Float[Tensor, " batch"]:
    """The root's log value, given the log values of all leaf entries (float64)."""
    root = model.circuit.root_from(*scaled(leaf_values, model.dtype))
    return log_sum(join(root, model.log_class_prior))
