r"""The marginal of a variable given the evidence, as the mixture of leaf densities that it is.

Every question about a single variable is a sum over leaves,
:math:`\sum_L p(L \mid e)\, f_L(x_d)` for a density, with another function of the leaf in place of
f_L for anything else. :class:`Mixtures` holds the leaves with their posterior probabilities, so
that such sums can be asked for many times. Leaves of a variable with an event are cut off by it:
see :mod:`einet.inference.cut_leaves`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from einet._memory import fitting
from einet.families import ExponentialFamily
from einet.inference.conditioned import Conditioned, WeightedLeaves
from einet.inference.cut_leaves import cut_leaves
from einet.inference.distribution import Distribution
from einet.kernels.memory import block_bytes, blocks
from einet.layers import LeafBlock

__all__ = ["LeafFunction", "Leaves", "Mixtures", "densities", "is_discrete", "is_ordered", "up_to"]

#: A function of some leaves at given values: their family, the values, their stored parameters.
LeafFunction = Callable[[ExponentialFamily, Tensor, Tensor], Tensor]


def up_to(family: ExponentialFamily, x: Tensor, parameters: Tensor) -> Tensor:
    """P(X ≤ x) under each leaf."""
    return family.log_prob_between(torch.full_like(x, -torch.inf), x, parameters).exp()


def densities(family: ExponentialFamily, x: Tensor, parameters: Tensor) -> Tensor:
    """f(x) under each leaf."""
    if family.kernel != "table":
        return family.log_prob(x, parameters).exp()
    # One-hot statistics of all states would take the square of their number.
    theta = family.theta_of(parameters)
    logs = (theta - family.A(theta).unsqueeze(-1)).squeeze(-2)
    states = x.clamp(0, logs.shape[-1] - 1).long()
    logs = logs.gather(-1, states.expand(*logs.shape[:-1], states.shape[-1]))
    return (logs + family.log_h(x)).exp()


@dataclass(frozen=True)
class Leaves:
    """Leaves of one block that hold some of the variables, one pair of leaf and variable each.

    Attributes:
        kind: The family, for all variables of the block's group.
        column: The variable of each pair within that group.
        place: The same, as its place among the variables that are asked for.
        node: The leaf of each pair.
        block: The block.
        pair: The pair's number within the block.
        weighted: The leaves' posterior probabilities, and of which rows they are.
    """

    kind: ExponentialFamily
    column: Int[Tensor, " pairs"]
    place: Int[Tensor, " pairs"]
    node: Int[Tensor, " pairs"]
    block: LeafBlock
    pair: Int[Tensor, " pairs"]
    weighted: WeightedLeaves

    def stored(self, part: slice = slice(None)) -> Float[Tensor, "K pairs P"]:
        """The parameters of some pairs."""
        return self.block.stored.detach()[:, self.pair[part]].double()

    def family(self, part: slice = slice(None)) -> ExponentialFamily:
        """The family of some pairs, for values ``[pairs, any]``; parameters have such an axis."""
        return self.kind.at(self.column[part].unsqueeze(-1))

    def posterior(self, part: slice, piece: slice) -> Float[Tensor, "pairs K rows"]:
        """p(L | e) of some pairs for some rows."""
        flow = self.weighted.flow[self.node[part]][:, :, piece]
        return flow.double() * self.weighted.share[piece]


class Mixtures:
    """The marginals of some variables for some rows of evidence.

    Args:
        leaves: All leaves that explain these rows.
        variables: The variables.
        rows: How many rows there are.
    """

    def __init__(
        self, leaves: Sequence[WeightedLeaves], variables: Int[Tensor, " some"], rows: int
    ) -> None:
        self.variables, self.rows = variables, rows
        self.parts = [part for each in leaves for part in _parts(each, variables)]
        self.cut = [part for each in leaves for part in cut_leaves(each, variables)]
        self._weight = torch.zeros(
            len(variables), rows, dtype=torch.float64, device=variables.device
        )
        for part in self.parts:
            for pairs, piece in self._cut(part, 1):
                self._add(self._weight, part, pairs, piece, part.posterior(pairs, piece).sum(1))
        for part in self.cut:
            self._weight[part.place, part.rows] += part.posterior.sum(0)

    @classmethod
    def pieces(
        cls, posterior: Conditioned, variables: Int[Tensor, " some"], bytes_each: int = 0
    ) -> Iterator[tuple[slice, Mixtures]]:
        """All rows of a posterior, some at a time, so that what is held of them is bounded.

        Args:
            posterior: The posterior.
            variables: The variables.
            bytes_each: How much memory the caller takes for a row, besides.
        """
        for _, einet in posterior.model.weighted_einets():
            leaf = einet.leaf
            bytes_each += leaf.num_nodes * leaf.num_entries * einet.dtype.itemsize
        step = fitting("values", bytes_each, posterior.model.device, least=16)
        for start in range(0, len(posterior), step):
            rows = slice(start, min(start + step, len(posterior)))
            some = posterior if step >= len(posterior) else posterior.at(rows)
            yield rows, cls(list(some.weighted_leaves()), variables, rows.stop - rows.start)

    def at(self, of: LeafFunction, x: Float[Tensor, "rows some"]) -> Float[Tensor, "rows some"]:
        """Σ_L p(L | e) of(L, x) at a value for each row and variable (float64)."""
        total = torch.zeros_like(self._weight)
        for part in self.parts:
            cells = x[part.weighted.rows].T
            for pairs, piece in self._cut(part, part.block.stored.shape[-1]):
                values = self._values(of, part, pairs, cells[part.place[pairs]][:, piece])
                weighted = values * part.posterior(pairs, piece)
                self._add(total, part, pairs, piece, weighted.sum(1))
        for part in self.cut:
            _check_cut(of, up_to)
            cells = x[part.rows, part.place].unsqueeze(0)
            total[part.place, part.rows] += part.up_to(cells)
        return (total / self._weight).T

    def table(
        self,
        of: LeafFunction,
        points: Float[Tensor, "some points"],
        kept: dict[LeafBlock, Tensor] | None = None,
    ) -> Float[Tensor, "some points rows"]:
        """The same at points of each variable that all rows share (float64).

        Args:
            of: The function of leaves.
            points: The points.
            kept: Where to keep its values for other rows, that ask at the same points.
        """
        shape = (*points.shape, self.rows)
        total = torch.zeros(shape, dtype=torch.float64, device=points.device)
        for part in self.parts:
            if kept is not None and part.block not in kept:
                kept[part.block] = self._values(of, part, slice(None), points[part.place])
            for pairs, piece in self._cut(part, part.block.stored.shape[-1], points.shape[1]):
                if kept is not None:
                    values = kept[part.block][pairs]
                else:
                    values = self._values(of, part, pairs, points[part.place[pairs]])
                sums = torch.bmm(values.transpose(1, 2), part.posterior(pairs, piece))
                self._add(total, part, pairs, piece, sums)
        for part in self.cut:
            if of is up_to and part.is_alike:
                found = part.up_to_points(points[part.place])
            else:
                _check_cut(of, densities)
                found = part.densities(points[part.place])
            total[part.place][:, part.rows] += found
        return total / self._weight.unsqueeze(1)

    def _cut(
        self, part: Leaves, numbers: int, points: int | None = None
    ) -> list[tuple[slice, slice]]:
        """Pairs and rows to do at a time; each cell of them takes so many numbers."""
        K, rows = part.block.stored.shape[0], len(part.weighted.share)
        each = 8 * K * (4 + numbers) * (1 if points is None else points)
        if points is not None:
            # Their values are the same for all rows, which only the product has.
            each = max(8 * K, each // max(1, rows)) + 8 * points
        room = 8 * block_bytes(part.weighted.flow.device)
        pairs, pieces = blocks(len(part.pair), rows, each, room)
        return [(some, piece) for some in pairs for piece in pieces]

    def _values(
        self, of: LeafFunction, part: Leaves, pairs: slice, x: Float[Tensor, "pairs cells"]
    ) -> Float[Tensor, "pairs K cells"]:
        stored = part.stored(pairs).unsqueeze(-2)
        return of(part.family(pairs), x, stored).transpose(0, 1)

    def _add(self, total: Tensor, part: Leaves, pairs: slice, piece: slice, values: Tensor) -> None:
        """Add numbers of pairs and rows to those of their variables."""
        rows, place = part.weighted.rows, part.place[pairs]
        if isinstance(rows, slice):
            first = rows.start or 0
            total[..., first + piece.start : first + piece.stop].index_add_(0, place, values)
            return
        sums = torch.zeros((len(total), *values.shape[1:]), dtype=total.dtype, device=total.device)
        total[..., rows[piece]] += sums.index_add_(0, place, values)


def _parts(weighted: WeightedLeaves, variables: Int[Tensor, " some"]) -> Iterator[Leaves]:
    place = torch.full((weighted.leaf.num_variables,), -1, device=variables.device)
    place[variables] = torch.arange(len(variables), device=variables.device)
    if weighted.events is not None:
        place[list(weighted.events.all_variables)] = -1
    for block in weighted.leaf.leaf_blocks:
        number = place[block.group.variables[block.columns]]
        leaf, position = (number >= 0).nonzero().unbind(1)
        if len(leaf):
            s = block.columns.shape[1]
            yield Leaves(
                kind=block.group.family,
                column=block.columns[leaf, position],
                place=number[leaf, position],
                node=block.leaves[leaf],
                block=block,
                pair=leaf * s + position,
                weighted=weighted,
            )


def _check_cut(of: LeafFunction, known: LeafFunction) -> None:
    """Raise where a variable with an event is asked for what nobody needed yet."""
    if of is not known:
        raise NotImplementedError("variables with events answer up_to by rows, densities by tables")


def is_discrete(
    model: Distribution, asked: Bool[Tensor, " variables"]
) -> Bool[Tensor, " variables"]:
    """Which variables are discrete; those asked for must be so in all components, or in none."""
    kinds = []
    for _, einet in model.weighted_einets():
        kind = torch.zeros(model.num_variables, dtype=torch.bool, device=model.device)
        for group in einet.leaf.family_groups:
            kind[group.variables] = group.family.discrete
        kinds.append(kind)
    every = torch.stack(kinds)
    both = asked & every.any(0) & ~every.all(0)
    if bool(both.any()):
        raise ValueError(
            f"variable {int(both.nonzero()[0])} is discrete in some components and continuous in "
            "others, so that it has neither probabilities nor a density"
        )
    return every.any(0)


def is_ordered(model: Distribution) -> Bool[Tensor, " variables"]:
    """Which variables are numbers: those whose leaves have means."""
    ordered = torch.ones(model.num_variables, dtype=torch.bool, device=model.device)
    for _, einet in model.weighted_einets():
        for block in einet.leaf.leaf_blocks:
            nameless = block.family.mean(block.stored.detach()[:1].double()).isnan().any(0)
            ordered[block.group.variables[block.columns].reshape(-1)[nameless]] = False
    return ordered
