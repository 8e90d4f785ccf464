"""The leaf layer: factorised exponential families, K of them in each leaf region."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from einet._memory import chunks
from einet.data.batch_events import Events
from einet.families import ExponentialFamily
from einet.kernels.dispatch import MOST_ENTRIES
from einet.kernels.dispatch import fused as use_fused
from einet.kernels.leaf import PRODUCT, add_centred, add_statistics, centred_values, log_values
from einet.kernels.leaf_kernel import Evidence, FusedEvidence, Out, Pieces
from einet.kernels.nodes import scale_, scaled
from einet.layers.base import Visits
from einet.layers.event_draws import answer_events_
from einet.layers.leaf_block import FamilyGroup, LeafBlock, LeafPrior, LeafStatistics, grouped
from einet.layers.leaf_events import log_masses, without_events
from einet.layers.leaf_flow import LeafFlow
from einet.structures import RegionGraph

__all__ = ["FamilyGroup", "LeafBlock", "LeafLayer", "LeafPrior", "LeafStatistics"]

AnyEvidence = Evidence | FusedEvidence


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
        groups = grouped(families, graph.num_variables)
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

    def repeated(self, times: int) -> LeafLayer:
        """The leaves of as many copies of a circuit in one, each with variables of its own.

        Leaf n of copy c is node ``n · times + c``, its variable v is ``c · num_variables + v``.
        Parameters are yet to be set (:meth:`LeafBlock.of_copy`, :meth:`FamilyGroup.of_copy`).
        """
        new = LeafLayer.__new__(LeafLayer)
        nn.Module.__init__(new)
        new.num_nodes, new.num_entries = self.num_nodes * times, self.num_entries
        new.num_variables = self.num_variables * times
        groups = {group: group.repeated(times, self.num_variables) for group in self.family_groups}
        new.groups = nn.ModuleList(groups.values())
        blocks = [block.repeated(times, groups[block.group]) for block in self.leaf_blocks]
        new.blocks = nn.ModuleList(blocks)
        return new

    @property
    def leaf_blocks(self) -> list[LeafBlock]:
        """The blocks of leaves alike."""
        return list(self.blocks)  # type: ignore[arg-type]

    @property
    def family_groups(self) -> list[FamilyGroup]:
        """The variables by the kind of their family."""
        return list(self.groups)  # type: ignore[arg-type]

    def evidence(
        self,
        x: Float[Tensor, "batch variables"] | Integer[Tensor, "batch variables"],
        observed: Bool[Tensor, "batch variables"] | None,
        fused: bool | None = None,
    ) -> list[AnyEvidence]:
        """The data as each block needs them.

        Args:
            x, observed: The data, of any type, and which cells are known; None: all of them.
            fused: Whether they are for the fused kernels; by default where those are in use.
        """
        if fused is None:
            fused = self._uses_fused()
        groups = self.family_groups
        by_group: dict[int, AnyEvidence] = {
            id(g): g.fused_evidence(x, observed) if fused else g.evidence(x, observed)
            for g in groups
        }
        return [by_group[id(block.group)] for block in self.leaf_blocks]

    def _uses_fused(self) -> bool:
        return self.num_entries <= MOST_ENTRIES and use_fused(self.leaf_blocks[0].stored)

    # -- values and statistics -----------------------------------------------------------------

    def propagate_(
        self,
        evidence: Sequence[AnyEvidence],
        v: Float[Tensor, "leaf_nodes K batch"],
        m: Float[Tensor, "leaf_nodes batch"],
        maximise: bool = False,
        natural: list[tuple[Tensor, Tensor]] | None = None,
        events: Events | None = None,
        any_scale: bool = False,
    ) -> None:
        """Scaled values of all leaves into ``v`` and ``m``; of ``any_scale`` where that is as good.

        A missing cell is integrated out, or with ``maximise`` set to its density's mode; where it
        has one of the ``events``, within that only. The fused kernels do not maximise: ask for
        ``evidence(..., fused=False)``.
        """
        # Before values are scaled: an event may leave nothing but what would be rounded away.
        total = None if events is None else log_masses(self, events, peaks=maximise)
        if isinstance(evidence[0], FusedEvidence):
            if maximise:
                raise ValueError("maximise needs evidence(..., fused=False)")
            self._propagate_fused_(evidence, Out(v, m, total, any_scale), natural)
            return
        if total is None and len(self.family_groups) > 1:
            total = m.new_zeros(v.shape)
        for number, (block, data) in enumerate(zip(self.leaf_blocks, evidence, strict=True)):
            assert isinstance(data, Evidence)
            peaks = block.log_peaks() if maximise and data.observed is not None else None
            plain = without_events(block, events)
            if peaks is not None and plain is not None:
                peaks = torch.where(plain, peaks, 0.0)
            given = None if natural is None else natural[number]
            for part, columns, values in _log_values(block, given, data, peaks):
                if total is not None:
                    block.rows.add_(total[:, :, columns], part, values)
                    continue
                part_v = block.rows.view(v[:, :, columns], part)
                part_m = block.rows.view(m[:, columns], part)
                if part_v is not None and part_m is not None:
                    scale_(values, part_v, part_m)
                else:
                    new_v, new_m = scaled(values, v.dtype)
                    block.rows.put_(v[:, :, columns], part, new_v)
                    block.rows.put_(m[:, columns], part, new_m)
        if total is not None:
            v[:], m[:] = scaled(total, v.dtype)

    def _propagate_fused_(
        self,
        evidence: Sequence[AnyEvidence],
        out: Out,
        natural: list[tuple[Tensor, Tensor]] | None,
    ) -> None:
        from einet.kernels.triton import leaf as triton

        if out.total is None and len(self.family_groups) > 1:
            out.total = out.m.new_zeros(out.v.shape)
        for number, (block, data) in enumerate(zip(self.leaf_blocks, evidence, strict=True)):
            assert isinstance(data, FusedEvidence)
            given = None if natural is None else natural[number]
            if given is None and data.kernel.by_family:
                given = block.natural()
            triton.values(block.pairs, data, given, out)
        if out.total is not None:
            triton.scale_values(out)

    def statistics(
        self,
        evidence: Sequence[AnyEvidence],
        flow: LeafFlow | Float[Tensor, "leaf_nodes K batch"],
        into: list[LeafStatistics] | None = None,
    ) -> list[LeafStatistics]:
        """Σ p_L and Σ p_L T(x) of every block for posterior leaf probabilities p_L, added up."""
        into = into or self.empty_statistics(centred=True)
        for block, data, statistic in zip(self.leaf_blocks, evidence, into, strict=True):
            _add_statistics(block, data, LeafFlow.of(flow), statistic)
        return into

    @torch.no_grad()
    def step_(
        self,
        evidence: Sequence[AnyEvidence],
        flow: LeafFlow | Float[Tensor, "leaf_nodes K batch"],
        step_size: float | Tensor,
        prior: LeafPrior | None = None,
    ) -> None:
        """A whole M-step of the leaves, from the batch alone: what stochastic EM does."""
        flows = LeafFlow.of(flow)
        for block, data in zip(self.leaf_blocks, evidence, strict=True):
            if isinstance(data, FusedEvidence):
                from einet.kernels.triton import leaf as triton

                centres = None if prior is None else prior.at(block.group)
                pseudo = None if prior is None else prior.count
                pairs = flows.found_by(block.pairs)
                if triton.step(pairs, data, flows.flow, step_size, pseudo, centres):
                    continue
            statistic = block.empty_statistics(centred=True)
            _add_statistics(block, data, flows, statistic)
            block.update_(statistic, step_size, prior)

    def empty_statistics(self, centred: bool = False) -> list[LeafStatistics]:
        """Statistics of no rows, for every block; see :meth:`LeafBlock.empty_statistics`."""
        return [block.empty_statistics(centred) for block in self.leaf_blocks]

    @torch.no_grad()
    def values(
        self,
        x: Float[Tensor, "batch variables"] | Integer[Tensor, "batch variables"],
        observed: Bool[Tensor, "batch variables"] | None = None,
    ) -> tuple[Float[Tensor, "leaf_nodes K batch"], Float[Tensor, "leaf_nodes batch"]]:
        """Scaled leaf values; no gradients."""
        like = self.leaf_blocks[0].stored
        v = like.new_empty(self.num_nodes, self.num_entries, x.shape[0])
        m = like.new_empty(self.num_nodes, x.shape[0], dtype=torch.float64)
        self.propagate_(self.evidence(x, observed), v, m)
        return v, m

    # -- choices -------------------------------------------------------------------------------

    def draw_(
        self,
        visits: Visits,
        out: Float[Tensor, "samples variables"],
        answer: str,
        events: Events | None = None,
        blocks: Sequence[LeafBlock] | None = None,
        **options: Any,
    ) -> None:
        """Write a value of every visited leaf into ``out``: what this method of its family answers.

        Args:
            visits: The leaves.
            out: Where their values go.
            answer: ``"sample"``, ``"mean"`` or ``"mode"``.
            events: Those of the rows of evidence, of which sample s belongs to row s modulo their
                number; values obey them.
            blocks: The blocks of leaves to look at; all of them by default.
            options: What else the method is to be given.
        """
        for block in self.leaf_blocks if blocks is None else blocks:
            n, s = block.columns.shape
            local = torch.full((self.num_nodes,), -1, device=out.device)
            local[block.leaves] = torch.arange(n, device=out.device)
            here = visits[local[visits.node] >= 0]
            leaf = local[here.node]
            family, variables = block.group.family.at(block.columns), block.group.variables
            entries = block.stored.detach().view(-1, s * block.stored.shape[-1])
            for part in chunks(len(leaf), "block", 16 * s, out.device):
                some = leaf[part]
                parameters = entries.index_select(0, here.k[part] * n + some).view(len(some), s, -1)
                values = getattr(family.at(some), answer)(parameters, **options).to(out.dtype)
                samples = here.sample[part]
                if events is not None:
                    rows = samples % events.lower.shape[0]
                    visited = (block, some, here.k[part], rows)
                    answer_events_(values, *visited, events, answer, **options)
                out[samples.unsqueeze(1), variables[block.columns[some]]] = values


def _add_statistics(
    block: LeafBlock, data: AnyEvidence, flows: LeafFlow, statistic: LeafStatistics
) -> None:
    total, sums, origin = statistic.total, statistic.sums, statistic.origin
    from_means = origin is not None and statistic.empty
    if origin is not None and from_means:
        # Nothing was counted yet, from wherever: from here on it is from the present means.
        origin.copy_(block.stored.detach()[..., 0])
    statistic.empty = False
    if isinstance(data, FusedEvidence):
        from einet.kernels.triton import leaf as triton

        pairs = flows.found_by(block.pairs_from(origin))
        triton.add_statistics(pairs, data, flows.flow, total, sums)
        return
    flow = flows.each()
    if origin is not None:
        stored = block.stored.detach()
        add_centred(flow, block.rows, block.columns, data, total, sums, origin, stored, from_means)
    else:
        add_statistics(flow, block.rows, block.columns, data, total, sums)


def _log_values(
    block: LeafBlock,
    natural: tuple[Tensor, Tensor] | None,
    data: Evidence,
    peaks: Tensor | None,
) -> Pieces:
    """Log densities of a block: by θ and A where they are given or needed, else as it is stored."""
    kernel = None
    if natural is None and block.is_centred:
        exact = centred_values(block.stored.detach(), block.columns, data, peaks)
        if exact is not None:
            return exact
        kernel = PRODUCT
    theta, A = block.natural() if natural is None else natural
    return log_values(theta, A, block.columns, data, peaks, kernel)
