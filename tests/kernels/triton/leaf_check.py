"""Fused leaves beside the torch path in float64: the same questions, put to both."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

import einet
from einet.kernels import dispatch
from einet.layers import LeafStatistics

__all__ = ["DEVICES", "INF", "NAN", "Both", "graph_of", "interpreted", "normal_rows"]

NAN, INF = math.nan, math.inf

interpreted = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="kernels are compiled here, for a GPU"
)
#: The interpreter on a CPU, where it is in use, and a GPU where there is one.
DEVICES = [
    pytest.param("cpu", marks=interpreted),
    pytest.param("cuda", marks=pytest.mark.gpu),
]


def graph_of(*sizes: int) -> einet.RegionGraph:
    """Leaves of the given sizes twice, the second time over other variables in another order."""
    num = sum(sizes)
    builder = einet.RegionGraphBuilder(num)
    if len(sizes) == 1:
        builder.leaf(range(num))
        return builder.build()
    root = builder.region(range(num))
    for order, shift in ((sizes, 0), (sizes[::-1], 1)):
        leaves, start = [], shift
        for size in order:
            leaves.append(builder.leaf([(start + i) % num for i in range(size)]))
            start += size
        builder.partition(leaves, region=root)
    return builder.build()


def normal_rows(rows: int, columns: int, seed: int = 0, missing: float = 0.3) -> Tensor:
    """Real numbers, some missing: among them, with more than two rows, a whole row and a column."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, columns, generator=generator)
    x[torch.rand(rows, columns, generator=generator) < missing] = NAN
    if rows > 2 and missing:
        x[1] = NAN
        x[:, columns // 2] = NAN
    return x


class Both:
    """A float32 model on a device, with fused kernels, and its float64 twin on the torch path."""

    def __init__(
        self,
        graph: einet.RegionGraph,
        family: einet.ExponentialFamily | Sequence[einet.ExponentialFamily],
        K: int,
        device: str = "cpu",
        data: Tensor | None = None,
    ) -> None:
        model = einet.Einet(graph, family, 1, num_leaves=K, seed=1, dtype=torch.float32)
        if data is not None:
            model.initialize(data)
        self.fused, self.exact = model.to(device), copy.deepcopy(model).double().cpu()
        self.device = device

    def values(self, x: Tensor, observed: Tensor | None = None) -> None:
        """Compare the scaled values; what lies around them must stay as it was."""
        leaf, batch = self.fused.leaf, len(x)
        nodes, K = leaf.num_nodes, leaf.num_entries
        v = torch.full((nodes + 1, K + 2, batch), NAN, device=self.device)
        m = torch.full((nodes + 1, batch), NAN, device=self.device, dtype=torch.float64)
        with dispatch.backend("triton"), torch.no_grad():
            seen = leaf.evidence(*self._on(self.device, x, observed))
            leaf.propagate_(seen, v[:nodes, :K], m[:nodes])
        self.seen = seen
        v, m = v.cpu().double(), m.cpu()
        assert v[nodes].isnan().all()
        assert v[:, K:].isnan().all()
        assert m[nodes].isnan().all()
        v, m = v[:nodes, :K], m[:nodes]
        exact_v = torch.full((nodes, K, batch), NAN, dtype=torch.float64)
        exact_m = torch.full((nodes, batch), NAN, dtype=torch.float64)
        with torch.no_grad():
            self.exact_seen = self.exact.leaf.evidence(*self._on("cpu", x, observed))
            self.exact.leaf.propagate_(self.exact_seen, exact_v, exact_m)
        torch.testing.assert_close(m, exact_m, rtol=2e-6, atol=3e-5)
        possible = exact_m > -INF
        error = torch.where(possible, (3e-5 + 4e-6 * exact_m.abs()), 0.0).unsqueeze(1)
        assert ((v - exact_v).abs() <= error).all()
        assert (v.amax(1) == possible).all()
        self.possible = possible

    def of_any_scale(self, x: Tensor) -> None:
        """Compare values where their scale does not matter."""
        nodes, K, batch = self.fused.leaf.num_nodes, self.fused.leaf.num_entries, len(x)
        v = torch.full((nodes + 1, K + 2, batch), NAN, device=self.device)
        m = torch.full((nodes + 1, batch), NAN, device=self.device, dtype=torch.float64)
        with dispatch.backend("triton"), torch.no_grad():
            seen = self.fused.leaf.evidence(*self._on(self.device, x, None))
            self.fused.leaf.propagate_(seen, v[:nodes, :K], m[:nodes], any_scale=True)
        v, m = v.cpu().double(), m.cpu()
        assert v[nodes].isnan().all()
        assert v[:, K:].isnan().all()
        exact_v = torch.empty(nodes, K, batch, dtype=torch.float64)
        exact_m = torch.empty(nodes, batch, dtype=torch.float64)
        with torch.no_grad():
            exact_seen = self.exact.leaf.evidence(*self._on("cpu", x, None))
            self.exact.leaf.propagate_(exact_seen, exact_v, exact_m)
        values = (v[:nodes, :K].log() + m[:nodes].unsqueeze(1)).exp()
        exact = (exact_v.log() + exact_m.unsqueeze(1)).exp()
        torch.testing.assert_close(values, exact, rtol=2e-6, atol=0.0)

    def flow(self, seed: int = 0) -> Tensor:
        """Random flows, none from impossible values and none in the last leaf; as a view."""
        nodes, batch = self.possible.shape
        generator = torch.Generator().manual_seed(seed)
        p = torch.rand(nodes + 1, self.fused.leaf.num_entries + 2, batch, generator=generator)
        p[:nodes] *= self.possible.unsqueeze(1)
        if nodes > 1:
            p[nodes - 1] = 0
        return p[:nodes, :-2]

    def statistics(self, flow: Tensor) -> list[LeafStatistics]:
        """Compare Σ p and Σ p T, added up twice."""
        flows = flow.to(self.device)
        found = self.fused.leaf.statistics(self.seen, flows)
        first = [(s.total.clone(), s.weighted.clone()) for s in found]
        self.fused.leaf.statistics(self.seen, flows, found)
        exact = self.exact.leaf.statistics(self.exact_seen, flow.double())
        for mine, once, other in zip(found, first, exact, strict=True):
            assert mine.total.equal(2 * once[0])
            torch.testing.assert_close(once[0].cpu(), other.total, rtol=4e-6, atol=1e-5)
            size = other.weighted.abs().amax().item() if other.weighted.numel() else 0.0
            torch.testing.assert_close(
                once[1].cpu(), other.weighted, rtol=1e-5, atol=1e-5 + 1e-6 * size
            )
        return found

    def step(self, flow: Tensor, step_size: float | Tensor, rtol: float = 2e-5) -> None:
        """Compare the parameters after a step; pairs without any flow keep theirs exactly."""
        reached = self.exact.leaf.statistics(self.exact_seen, flow.double())
        before = [block.stored.detach().clone() for block in self.fused.leaf.leaf_blocks]
        self.fused.leaf.step_(self.seen, flow.to(self.device), step_size)
        size = float(step_size)
        self.exact.leaf.step_(self.exact_seen, flow.double(), size)
        for block, other, old, statistic in zip(
            self.fused.leaf.leaf_blocks, self.exact.leaf.leaf_blocks, before, reached, strict=True
        ):
            found = block.stored.detach()
            kept = (statistic.total == 0).to(self.device)
            assert found[kept].equal(old[kept])
            assert found.isfinite().all()
            torch.testing.assert_close(
                found.cpu().double(), other.stored.detach(), rtol=rtol, atol=2e-6
            )

    def all(self, x: Tensor, observed: Tensor | None = None, step_size: float = 0.3) -> None:
        """Values, statistics and a step."""
        self.values(x, observed)
        flow = self.flow()
        self.statistics(flow)
        self.step(flow, step_size)

    @staticmethod
    def _on(device: str, x: Tensor, observed: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if observed is None and x.is_floating_point():
            observed = ~x.isnan()
        return x.to(device), None if observed is None else observed.to(device)
