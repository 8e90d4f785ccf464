"""The leaf layer: factorised exponential families, K of them in each leaf region."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from einet.families import ExponentialFamily
from einet.kernels import leaf as kernel
from einet.kernels.leaf import Evidence
from einet.kernels.memory import Rows, block_bytes, spacing
from einet.kernels.torch import scale_, scaled
from einet.layers.base import Visits
from einet.structures import RegionGraph

__all__ = ["FamilyGroup", "LeafBlock", "LeafLayer", "LeafStatistics"]


@dataclass
class LeafStatistics:
    """Expected statistics of one block: Σ p_L and Σ p_L T(x) for each (entry, pair), float64."""

    total: Float[Tensor, "K pairs"]
    weighted: Float[Tensor, "K pairs S"]


class FamilyGroup(nn.Module):
    """The variables of a model that share one kind of family."""

    variables: Int[Tensor, " V"]

    def __init__(self, family: ExponentialFamily, variables: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("variables", torch.tensor(list(variables)))
        self._spacing = (variables[0], spacing(variables))
        self.adopt(family.expand(len(variables)))

    def adopt(self, family: ExponentialFamily) -> None:
        """Take over a family's hyper-parameters (as buffers, so that they move with the model)."""
        self._family = family
        for name, value in family.hyper.items():
            old = getattr(self, name, None)
            self.register_buffer(name, value.to(old) if old is not None else value)

    @property
    def family(self) -> ExponentialFamily:
        values = {name: getattr(self, name).double() for name in self._family.hyperparameters}
        return self._family.with_hyperparameters(values)

    def evidence(
        self, x: Float[Tensor, "batch variables"], observed: Bool[Tensor, "batch variables"] | None
    ) -> Evidence:
        """What leaves of this family need to know of the data."""
        every, columns = slice(0, len(self.variables)), Rows(self.variables, *self._spacing)
        mine = columns.take(x.T, every, "x").T
        seen = None if observed is None else columns.take(observed.T, every, "seen").T
        if seen is not None and bool(seen.all()):
            seen = None
        if seen is not None:
            mine = torch.where(seen, mine, self._family.filler)
        return Evidence.of(self.family, mine, seen)


class LeafBlock(nn.Module):
    """Leaves with the same number of variables of one family: ``n`` leaves, ``s`` variables each.

    ``parameters_[k, pair]`` belongs to pair ``leaf · s + position``; ``columns[leaf, position]`` is
    the variable, counted within the family's group.
    """

    leaves: Int[Tensor, " n"]
    columns: Int[Tensor, "n s"]

    def __init__(
        self,
        group: FamilyGroup,
        leaves: Sequence[int],
        columns: Sequence[Sequence[int]],
        num_entries: int,
    ) -> None:
        super().__init__()
        # A plain tuple hides the group from the module tree: the layer owns it.
        self._group = (group,)
        self._spacing = (leaves[0], spacing(leaves))
        self.register_buffer("leaves", torch.tensor(list(leaves)))
        self.register_buffer("columns", torch.tensor([list(row) for row in columns]))
        size = (num_entries, self.columns.numel(), group.family.num_parameters)
        self.stored = nn.Parameter(torch.empty(size))

    @property
    def group(self) -> FamilyGroup:
        return self._group[0]

    @property
    def rows(self) -> Rows:
        """The leaves as nodes of the circuit."""
        return Rows(self.leaves, *self._spacing)

    @property
    def family(self) -> ExponentialFamily:
        """The family with hyper-parameters for each pair."""
        return self.group.family.at(self.columns.reshape(-1))

    def natural(self) -> tuple[Float[Tensor, "K pairs S"], Float[Tensor, "K pairs"]]:
        """θ and A, as separate float64 tensors."""
        family = self.family
        if torch.is_grad_enabled() and self.stored.requires_grad:
            theta = family.theta_of(self.stored.double())
            return theta, family.A(theta)
        # A few entries at a time: what is computed on the way then stays in a core's cache.
        stored = self.stored
        K, pairs, _ = stored.shape
        theta = stored.new_empty(K, pairs, family.num_statistics, dtype=torch.float64)
        A = theta.new_empty(K, pairs)
        step = max(1, block_bytes(stored.device) // (2 * theta[0].nbytes))
        for start in range(0, K, step):
            some = slice(start, start + step)
            theta[some] = family.theta_of(stored[some].double())
            A[some] = family.A(theta[some])
        return theta, A

    def log_peaks(self) -> Float[Tensor, "K pairs"]:
        """The log density of each pair at its mode."""
        stored, family = self.stored.double(), self.family
        return family.log_prob(family.mode(stored), stored)

    def from_phi(self, phi: Float[Tensor, "*K pairs S"]) -> Float[Tensor, "*K pairs P"]:
        """Stored parameters for given expectation parameters of all pairs."""
        family = self.family
        return family.project(family.store(phi.to(self.columns.device)))

    def extra_repr(self) -> str:
        n, s = self.columns.shape
        return f"{type(self.group._family).__name__}, leaves={n}, variables={s}"


class LeafLayer(nn.Module):
    """All leaves of an Einet; parameters live for each (leaf, variable) pair, so none is wasted.

    Args:
        graph: The structure.
        families: One family for all variables, or one for each.
        num_entries: K, the densities in each leaf.
    """

    def __init__(
        self,
        graph: RegionGraph,
        families: ExponentialFamily | Sequence[ExponentialFamily],
        num_entries: int,
    ) -> None:
        super().__init__()
        self.num_nodes, self.num_entries = len(graph.leaves), num_entries
        self.num_variables = graph.num_variables
        groups = _grouped(families, graph.num_variables)
        self.groups = nn.ModuleList(groups)
        position = {}
        for number, group in enumerate(groups):
            for column, variable in enumerate(group.variables.tolist()):
                position[variable] = (number, column)
        kinds: dict[tuple[int, int], list[tuple[int, list[int]]]] = defaultdict(list)
        for leaf, region in enumerate(graph.leaves):
            columns: dict[int, list[int]] = defaultdict(list)
            for variable in graph.variables(region):
                number, column = position[variable]
                columns[number].append(column)
            for number, of_group in columns.items():
                kinds[number, len(of_group)].append((leaf, of_group))
        self.blocks = nn.ModuleList(
            LeafBlock(
                groups[number], [leaf for leaf, _ in rows], [cs for _, cs in rows], num_entries
            )
            for (number, _), rows in sorted(kinds.items())
        )

    @property
    def leaf_blocks(self) -> list[LeafBlock]:
        return list(self.blocks)  # type: ignore[arg-type]

    @property
    def family_groups(self) -> list[FamilyGroup]:
        return list(self.groups)  # type: ignore[arg-type]

    def evidence(self, x: Tensor, observed: Tensor | None) -> list[Evidence]:
        """The data as each block needs them."""
        by_group = {id(g): g.evidence(x, observed) for g in self.family_groups}
        return [by_group[id(block.group)] for block in self.leaf_blocks]

    # -- values and statistics -----------------------------------------------------------------

    def propagate_(
        self,
        evidence: list[Evidence],
        v: Float[Tensor, "leaf_nodes K batch"],
        m: Float[Tensor, "leaf_nodes batch"],
        maximise: bool = False,
        natural: list[tuple[Tensor, Tensor]] | None = None,
    ) -> None:
        """Scaled values of all leaves into ``v`` and ``m``.

        A missing cell is integrated out, or with ``maximise`` set to its density's mode.
        """
        natural = [b.natural() for b in self.leaf_blocks] if natural is None else natural
        alone = len(self.family_groups) == 1
        total = None if alone else m.new_zeros(v.shape)
        for block, (theta, A), seen in zip(self.leaf_blocks, natural, evidence, strict=True):
            peaks = block.log_peaks() if maximise and seen.observed is not None else None
            pieces = kernel.log_values(theta, A, block.columns, seen, peaks)
            for part, columns, log_values in pieces:
                if total is not None:
                    block.rows.add_(total[:, :, columns], part, log_values)
                    continue
                its_v = block.rows.view(v[:, :, columns], part)
                its_m = block.rows.view(m[:, columns], part)
                if its_v is not None and its_m is not None:
                    scale_(log_values, its_v, its_m)
                else:
                    new_v, new_m = scaled(log_values, v.dtype)
                    block.rows.put_(v[:, :, columns], part, new_v)
                    block.rows.put_(m[:, columns], part, new_m)
        if total is not None:
            v[:], m[:] = scaled(total, v.dtype)

    def statistics(
        self,
        evidence: list[Evidence],
        flow: Float[Tensor, "leaf_nodes K batch"],
        into: list[LeafStatistics] | None = None,
    ) -> list[LeafStatistics]:
        """Σ p_L and Σ p_L T(x) of every block for posterior leaf probabilities p_L, added up."""
        into = into or self.empty_statistics()
        for block, seen, statistic in zip(self.leaf_blocks, evidence, into, strict=True):
            kernel.add_statistics(
                flow, block.rows, block.columns, seen, statistic.total, statistic.weighted
            )
        return into

    def empty_statistics(self) -> list[LeafStatistics]:
        result = []
        for block in self.leaf_blocks:
            K, pairs, _ = block.stored.shape
            size = (K, pairs, block.group.family.num_statistics)
            new = block.stored.new_zeros
            result.append(
                LeafStatistics(new(size[:2], dtype=torch.float64), new(size, dtype=torch.float64))
            )
        return result

    def forward(
        self,
        x: Float[Tensor, "batch variables"],
        observed: Bool[Tensor, "batch variables"] | None = None,
    ) -> tuple[Float[Tensor, "leaf_nodes K batch"], Float[Tensor, "leaf_nodes batch"]]:
        """Scaled leaf values; differentiable in the parameters."""
        natural = [tensor for block in self.leaf_blocks for tensor in block.natural()]
        return _Leaves.apply(self, self.evidence(x, observed), *natural)  # type: ignore[return-value]

    # -- choices -------------------------------------------------------------------------------

    def draw_(
        self, visits: Visits, out: Float[Tensor, "samples variables"], how: str, **options: Any
    ) -> None:
        """Write a value of every visited leaf into ``out``; ``how`` is a method of the family."""
        for block in self.leaf_blocks:
            n, s = block.columns.shape
            local = torch.full((self.num_nodes,), -1, device=out.device)
            local[block.leaves] = torch.arange(n, device=out.device)
            here = visits[local[visits.node] >= 0]
            leaf = local[here.node]
            family, variables = block.group.family.at(block.columns), block.group.variables
            entries = block.stored.detach().view(-1, s * block.stored.shape[-1])
            step = max(1, block_bytes(out.device) // (16 * s))
            for start in range(0, leaf.shape[0], step):
                part = slice(start, start + step)
                some = leaf[part]
                parameters = entries.index_select(0, here.k[part] * n + some).view(len(some), s, -1)
                values = getattr(family.at(some), how)(parameters, **options)
                columns = variables[block.columns[some]]
                out[here.sample[part].unsqueeze(1), columns] = values.to(out.dtype)


class _Leaves(torch.autograd.Function):
    """Leaf values as a function of θ and A of every block, with gradients Σ p_L T(x) and −Σ p_L."""

    @staticmethod
    def forward(ctx, layer: LeafLayer, evidence: list[Evidence], *natural: Tensor):
        pairs = list(zip(natural[::2], natural[1::2], strict=True))
        batch, like = evidence[0].batch, layer.leaf_blocks[0].stored
        v = like.new_empty(layer.num_nodes, layer.num_entries, batch)
        m = like.new_empty(layer.num_nodes, batch, dtype=torch.float64)
        layer.propagate_(evidence, v, m, natural=pairs)
        ctx.layer, ctx.evidence = layer, evidence
        ctx.save_for_backward(v)
        ctx.mark_non_differentiable(m)
        return v, m

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient: Tensor, _: Tensor):
        (v,) = ctx.saved_tensors
        statistics = ctx.layer.statistics(ctx.evidence, gradient * v)
        result: list[Tensor | None] = [None, None]
        for statistic in statistics:
            result += [statistic.weighted, -statistic.total]
        return tuple(result)


def _grouped(
    families: ExponentialFamily | Sequence[ExponentialFamily], num_variables: int
) -> list[FamilyGroup]:
    if isinstance(families, ExponentialFamily):
        return [FamilyGroup(families, range(num_variables))]
    kinds: dict[tuple, list[int]] = defaultdict(list)
    for variable, family in enumerate(families):
        kinds[type(family), repr(family.config())].append(variable)
    groups = []
    for (kind, _), variables in kinds.items():
        stacked = kind.stack([families[variable] for variable in variables])
        groups.append(FamilyGroup(stacked, variables))
    return groups
