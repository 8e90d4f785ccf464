"""Probabilities of bins: densities integrated over intervals, exactly, leaf by leaf."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from einet.engine.passes import Passes
from einet.engine.root import join, log_sum
from einet.inference.distribution import Distribution
from einet.kernels.memory import block_bytes
from einet.kernels.nodes import scaled
from einet.kernels.torch.leaf import Evidence, log_values
from einet.layers import LeafBlock

__all__ = ["bin_log_prob"]

# A table holds a number for each bin of each variable of each leaf entry. So large are the tables
# that are made at a time, and those that are kept for all rows.
_CPU_TABLE_BYTES, _GPU_TABLE_BYTES = 64 << 20, 1 << 30
_CPU_KEPT_BYTES, _GPU_KEPT_BYTES = 1 << 30, 8 << 30


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

    Args:
        model: A model whose families know ``log_interval``, as Gaussians do.
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
    bins, edges = bins.to(model.device), edges.double().to(model.device)
    log_weights, einets = zip(*model.weighted_einets(), strict=True)
    impossible = bins.new_full((len(bins),), -torch.inf, dtype=torch.float64)
    parts = [
        _log_prob(einet, bins, edges) if log_weight > -torch.inf else impossible
        for log_weight, einet in zip(log_weights, einets, strict=True)
    ]
    return log_sum(join(torch.stack(parts), torch.stack(log_weights)))


def _log_prob(model: Passes, bins: Tensor, edges: Tensor) -> Tensor:
    tables = _Tables(model, edges)
    parts = []
    for rows in model.pieces(len(bins)):
        v, m = scaled(_leaf_values(model, bins[rows], tables), model.dtype)
        parts.append(log_sum(join(model.circuit.root_from(v, m), model.log_class_prior)))
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
        nothing = total.new_zeros(len(states))
        evidence = Evidence(None, states, None, nothing, None, len(bins))
        K, n, s, _ = table.shape
        theta, columns = table.flatten(1, 2), block.columns[first : first + n]
        for part, rows, values in log_values(theta, theta.new_zeros(K, n * s), columns, evidence):
            leaves = slice(first + part.start, first + part.stop)
            block.rows.add_(total[:, :, rows], leaves, values)
    return total


class _Tables:
    """Log-probabilities of all bins of all leaves, in tables of bounded size.

    A table costs as much as so many rows as there are bins, and most sets have more rows than that.
    """

    def __init__(self, model: Passes, edges: Float[Tensor, " bins_and_1"]) -> None:
        self.blocks, self.edges = model.leaf.leaf_blocks, edges
        self.bounds = edges[:-1], edges[1:]
        cells = sum(block.stored[..., 0].numel() for block in self.blocks) * (len(edges) - 1)
        room = _CPU_KEPT_BYTES if edges.device.type == "cpu" else _GPU_KEPT_BYTES
        self._kept: list[_Table] | None = [] if 8 * cells <= room else None

    def __iter__(self) -> Iterator[_Table]:
        if self._kept is None:
            return self._made()
        if not self._kept:
            self._kept = list(self._made())
        return iter(self._kept)

    def _made(self) -> Iterator[_Table]:
        bins = len(self.edges) - 1
        room = _CPU_TABLE_BYTES if self.edges.device.type == "cpu" else _GPU_TABLE_BYTES
        for block in self.blocks:
            (n, s), K = block.columns.shape, block.stored.shape[0]
            stored = block.stored.detach().view(K, n, s, -1)
            step = max(1, room // (8 * K * s * bins))
            for first in range(0, n, step):
                columns = block.columns[first : first + step].unsqueeze(-1)
                family = block.group.family.at(columns)
                parameters = stored[:, first : first + step].unsqueeze(-2)
                table = self.edges.new_empty(K, *columns.shape[:2], bins)
                # A few entries at a time: what is computed on the way then stays in a core's cache.
                some = max(1, block_bytes(table.device) // table[0].nbytes)
                for k in range(0, K, some):
                    entries = parameters[k : k + some].double()
                    table[k : k + some] = family.log_interval(*self.bounds, entries)
                yield block, first, table
