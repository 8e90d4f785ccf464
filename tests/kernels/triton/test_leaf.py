"""Fused leaves give what the torch path gives in float64: Gaussians, tables and products."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch

import einet
from einet.kernels import dispatch
from einet.kernels.leaf_kernel import Evidence, FusedEvidence
from tests.kernels.triton.leaf_check import (
    DEVICES,
    INF,
    NAN,
    Both,
    graph_of,
    interpreted,
    normal_rows,
)

# numpy, in which kernels are interpreted, warns where a GPU computes inf or NaN without a word.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
on_devices = pytest.mark.parametrize("device", DEVICES)
MIXED = [
    einet.Gaussian(), einet.Bernoulli(), einet.Categorical(3), einet.Poisson(), einet.Gamma(),
    einet.Gaussian(min_variance=0.1), einet.Binomial(5), einet.Categorical(4),
]  # fmt: skip


def mixed_rows(rows: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(rows, 8, generator=generator) + 0.01
    for column, count in {1: 2, 2: 3, 3: 6, 6: 6, 7: 4}.items():
        x[:, column] = torch.randint(0, count, (rows,), generator=generator)
    x[torch.rand(rows, 8, generator=generator) < 0.2] = NAN
    return x


class TestGaussian:
    @on_devices
    @pytest.mark.parametrize(
        ("K", "batch"), [(1, 1), (1, 33), (3, 7), (10, 1), (10, 33), (16, 7), (40, 7)]
    )
    def test_sizes(self, K: int, batch: int, device: str) -> None:
        x = normal_rows(batch, 8)
        Both(graph_of(3, 1, 4), einet.Gaussian(), K, device, normal_rows(20, 8, 1)).all(x)

    @on_devices
    @pytest.mark.parametrize("size", [1, 2, 8, 9, 40])
    def test_scopes(self, size: int, device: str) -> None:
        x = normal_rows(6, size + 1) + 3.0
        Both(graph_of(size, 1), einet.Gaussian(), 3, device, x.nan_to_num(1.0)).all(x)

    @on_devices
    @pytest.mark.parametrize(("K", "missing"), [(3, 0.1), (20, 0.0), (20, 0.1)])
    def test_large_scopes_are_divided(self, K: int, missing: float, device: str) -> None:
        """Few leaves of many variables; few entries, and more, which look for holes first."""
        x = normal_rows(3, 134, missing=missing)
        both = Both(graph_of(133, 1), einet.Gaussian(), K, device, normal_rows(9, 134, 1))
        both.values(x)
        x[2, 100] = INF
        both.values(x)

    @on_devices
    def test_large_scopes_of_several_families(self, device: str) -> None:
        family = [*[einet.Gaussian()] * 130, *[einet.Bernoulli()] * 5]
        x = normal_rows(3, 135, missing=0.1)
        x[:, 130:] = (x[:, 130:] > 0).float().masked_fill(x[:, 130:].isnan(), NAN)
        Both(graph_of(134, 1), family, 3, device).values(x)

    @pytest.mark.gpu
    @pytest.mark.parametrize(("K", "batch"), [(64, 500), (256, 100), (10, 2000), (1000, 33)])
    def test_large(self, K: int, batch: int) -> None:
        x = normal_rows(batch, 50)
        Both(graph_of(32, 1, 17), einet.Gaussian(), K, "cuda", normal_rows(99, 50, 1)).all(x)

    @on_devices
    def test_infinite_and_far_values(self, device: str) -> None:
        data = normal_rows(30, 4, missing=0.0)
        both = Both(graph_of(3, 1), einet.Gaussian(), 3, device, data)
        x = data[:7].clone()
        x[0, 0], x[1, 3], x[2, 1], x[3, 2], x[4, 0] = INF, -INF, 1e6, -1e12, NAN
        both.values(x)
        assert not both.possible.all()
        flow = both.flow()
        flow[:, :, 2:4] = 0
        both.statistics(flow)
        both.step(flow, 0.5)

    @on_devices
    def test_what_lies_beyond_the_support_is_impossible(self, device: str) -> None:
        x = torch.zeros(4, 3, dtype=torch.float64)
        x[0, 0], x[1, 1], x[2, 2] = 1.1e30, -1e300, INF
        for K in (3, 20):
            Both(graph_of(2, 1), einet.Gaussian(), K, device).all(x)

    @on_devices
    def test_rows_far_from_where_the_densities_are(self, device: str) -> None:
        """A step from far away ends at the rows, with a variance that is not too small."""
        noise = torch.randn(200, 1, generator=torch.manual_seed(0), dtype=torch.float64)
        x = 1e7 + noise.round(decimals=1)
        builder = einet.RegionGraphBuilder(1)
        builder.leaf([0])
        model = einet.Einet(builder.build(), einet.Gaussian(), 1, device=device)
        with dispatch.backend("triton"):
            seen = [model.em_step(x.to(device)).item() for _ in range(6)]
        assert all(after >= before - 1e-4 for before, after in itertools.pairwise(seen))
        stored = model.leaf.leaf_blocks[0].stored.detach().double().flatten().tolist()
        assert stored[0] == pytest.approx(x.mean().item(), abs=0.6)
        away = x.float().double() - stored[0]
        assert stored[1] == pytest.approx(away.square().mean().item(), rel=1e-3)

    @on_devices
    def test_a_value_of_the_support_is_never_impossible(self, device: str) -> None:
        both = Both(graph_of(2, 1), einet.Gaussian(), 3, device, normal_rows(30, 3, missing=0.0))
        x = torch.zeros(4, 3, dtype=torch.float64)
        x[0, 0], x[1, 1], x[2] = 1e30, -1e25, -1e30
        leaf = both.fused.leaf
        v = torch.full((leaf.num_nodes, 3, 4), NAN, device=device)
        m = torch.full((leaf.num_nodes, 4), NAN, device=device, dtype=torch.float64)
        with dispatch.backend("triton"):
            seen = leaf.evidence(x.to(device), None)
        leaf.propagate_(seen, v, m)
        assert m.isfinite().all()
        assert (v.amax(1) == 1).all()
        for _ in range(3):
            leaf.step_(seen, torch.rand_like(v), 0.9)
        assert all(block.stored.isfinite().all() for block in leaf.leaf_blocks)

    @on_devices
    def test_bounds(self, device: str) -> None:
        family = einet.Gaussian([0.5, 1e-3, 0.2], [0.6, 1e-2, 5.0])
        both = Both(graph_of(2, 1), family, 3, device, normal_rows(30, 3, missing=0.0))
        both.values(normal_rows(9, 3) * torch.tensor([0.01, 10.0, 1.0]))
        both.step(both.flow(), 0.9)

    @on_devices
    def test_far_from_the_origin(self, device: str) -> None:
        """Where E[x²] − E[x]² would have no digits left in float32."""
        x = normal_rows(30, 4).double() * 1e-3 + 1e4
        both = Both(graph_of(3, 1), einet.Gaussian(), 3, device, x)
        for _ in range(3):
            both.all(x, step_size=0.9)
            # Rounding adds up over steps: each is compared for itself.
            both.exact = copy.deepcopy(both.fused).double().cpu()

    @on_devices
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64, torch.uint8])
    def test_types_of_data(self, dtype: torch.dtype, device: str) -> None:
        x = torch.arange(28).view(7, 4) % 5
        both = Both(graph_of(3, 1), einet.Gaussian(), 3, device, x)
        observed = torch.arange(28).view(7, 4) % 3 > 0
        both.all(x.to(dtype), observed)
        both.values(x.to(dtype), None)


class TestTable:
    @on_devices
    @pytest.mark.parametrize(
        ("K", "batch", "counts"),
        [(1, 1, [2, 3, 5, 4]), (3, 33, [2, 3, 5, 4]), (40, 7, [3, 3, 3, 3]), (16, 33, [20] * 4)],
    )
    def test_sizes(self, K: int, batch: int, counts: list[int], device: str) -> None:
        generator = torch.Generator().manual_seed(0)
        data = (torch.rand(batch + 5, 4, generator=generator) * torch.tensor(counts)).floor()
        both = Both(graph_of(3, 1), einet.Categorical(counts, 1e-3), K, device, data)
        x = data[:batch].clone()
        x[torch.rand(batch, 4, generator=generator) < 0.3] = NAN
        both.all(x)

    @pytest.mark.gpu
    @pytest.mark.parametrize(
        ("K", "states"), [(10, 256), (64, 10), (256, 2), (64, 256), (3, 1000), (40, 1500)]
    )
    def test_large(self, K: int, states: int) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randint(0, states, (300, 9), generator=generator)
        both = Both(graph_of(4, 5), einet.Categorical(states, 1e-7), K, "cuda", x)
        both.all(x, torch.rand(300, 9, generator=generator) < 0.9)

    @on_devices
    def test_more_states_than_fit_a_program(self, device: str, monkeypatch) -> None:
        from einet.kernels.triton import leaf_table_step

        monkeypatch.setattr(leaf_table_step, "LARGEST_STEP", 16)
        x = torch.arange(18).view(9, 2) * 7 % 40
        Both(graph_of(1, 1), einet.Categorical(40), 3, device, x).all(x)

    @on_devices
    @pytest.mark.parametrize(("states", "batch"), [(70, 9), (100, 150), (300, 40)])
    def test_many_states_of_which_some_occur(self, states: int, batch: int, device: str) -> None:
        generator = torch.Generator().manual_seed(states)
        data = torch.rand(batch, 3, generator=generator) ** 2 * states
        data = data.floor()
        # The states of the last variable that occur fill one block of ranks and more.
        data[:, 2] = torch.arange(batch) * 7 % states
        both = Both(graph_of(2, 1), einet.Categorical(states, 1e-4), 3, device, data)
        data[torch.rand(batch, 3, generator=generator) < 0.1] = NAN
        data[2] = states
        both.all(data, step_size=0.7)
        data[:, 1] = NAN
        both.all(data, step_size=1.0)

    @on_devices
    @pytest.mark.parametrize("K", [64, 65, 130])
    def test_many_entries_of_single_variables(self, K: int, device: str) -> None:
        x = torch.arange(74.0).view(37, 2) % 5
        both = Both(graph_of(1, 1), einet.Categorical(5), K, device, x)
        x[3, 1], x[36, 0] = NAN, 7.0
        both.all(x)

    @on_devices
    @pytest.mark.parametrize(("K", "states", "batch"), [(3, 5, 37), (65, 300, 70), (16, 1, 1)])
    def test_values_of_any_scale(self, K: int, states: int, batch: int, device: str) -> None:
        x = torch.arange(2.0 * batch).view(batch, 2) * 7 % states
        both = Both(graph_of(1, 1), einet.Categorical(states), K, device, x)
        if batch > 1:
            x[3, 1], x[36, 0] = NAN, states
        both.of_any_scale(x)

    @on_devices
    def test_ranks(self, device: str) -> None:
        from einet.kernels.triton.leaf_table_step import Ranks

        states = torch.tensor([[7, -1, 3, 7, -2, 9], [-1] * 6, [0, 0, 0, 0, 0, 0]])
        ranks = Ranks.of(states.int().to(device), 10)
        assert ranks.numbers.tolist() == [3, 0, 1]
        assert ranks.cells.tolist() == [[1, -1, 0, 1, -1, 2], [-1] * 6, [0] * 6]
        assert ranks.states[0, :3].tolist() == [3, 7, 9]
        assert ranks.of_state[0].tolist() == [-1, -1, -1, 0, -1, -1, -1, 1, -1, 2]

    @on_devices
    def test_floors_that_bind(self, device: str) -> None:
        x = torch.zeros(9, 2, dtype=torch.long)
        both = Both(graph_of(1, 1), einet.Categorical([4, 3], [0.24, 0.1]), 3, device, x)
        both.all(x, step_size=0.99)
        for block in both.fused.leaf.leaf_blocks:
            sums = block.stored.detach().sum(-1)
            torch.testing.assert_close(sums, torch.ones_like(sums))

    @on_devices
    def test_impossible_values(self, device: str) -> None:
        both = Both(graph_of(2, 2), einet.Categorical([2, 3, 3, 2]), 3, device)
        x = torch.zeros(7, 4)
        x[0, 0], x[1, 1], x[2, 2], x[3, 3], x[4, 0], x[5, 1] = 2.0, -1.0, 0.5, INF, NAN, 2.0
        both.all(x)
        assert (~both.possible).any(0).tolist() == [True] * 4 + [False] * 3


class TestProduct:
    @on_devices
    @pytest.mark.parametrize(("K", "batch"), [(1, 7), (3, 33), (40, 1)])
    @pytest.mark.parametrize("family", [einet.Binomial(4), einet.Gamma()], ids=["1", "2"])
    def test_sizes(self, family: einet.ExponentialFamily, K: int, batch: int, device: str) -> None:
        x = torch.arange(8 * batch, dtype=torch.float32).view(batch, 8) * 7 % 4 + 1
        x[:, 1:5][torch.arange(4 * batch).view(batch, 4) % 3 == 0] = NAN
        Both(graph_of(3, 1, 4), family, K, device).all(x)

    @pytest.mark.gpu
    @pytest.mark.parametrize(("K", "batch"), [(64, 500), (256, 100), (10, 500), (1000, 33)])
    def test_large(self, K: int, batch: int) -> None:
        x = (normal_rows(batch, 50).abs() * 3).round().clamp(max=9)
        Both(graph_of(32, 1, 17), einet.Binomial(9), K, "cuda").all(x)


class TestSeveralFamilies:
    @on_devices
    @pytest.mark.parametrize("sizes", [(8,), (3, 1, 4), (1,) * 8], ids=str)
    def test_share_leaves(self, sizes: tuple[int, ...], device: str) -> None:
        both = Both(graph_of(*sizes), MIXED, 3, device, mixed_rows(40, 1))
        x = mixed_rows(17)
        x[3], x[4, 1], x[5, 2], x[6, 0] = NAN, 2.0, -1.0, INF
        both.all(x)
        assert not both.possible.all()

    @pytest.mark.gpu
    def test_large(self) -> None:
        both = Both(graph_of(3, 1, 4), MIXED, 64, "cuda", mixed_rows(400, 1))
        both.all(mixed_rows(500))


class TestLayer:
    @on_devices
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_a_step_size_on_the_device(self, dtype: torch.dtype, device: str) -> None:
        for family in (einet.Gaussian(), einet.Categorical(2), einet.Bernoulli()):
            both = Both(graph_of(1, 2), family, 3, device)
            both.values(torch.tensor([[0.0, 1.0, NAN], [1.0, 1.0, NAN]]))
            both.step(both.flow(), torch.tensor(0.25, dtype=dtype, device=device))

    @on_devices
    def test_the_same_twice(self, device: str) -> None:
        results = []
        for _ in range(2):
            both = Both(graph_of(3, 1, 4), MIXED, 5, device, mixed_rows(40, 1))
            both.values(mixed_rows(33))
            both.fused.leaf.step_(both.seen, both.flow().to(device), 0.5)
            results.append([p.detach().clone() for p in both.fused.leaf.parameters()])
        assert all(a.equal(b) for a, b in zip(*results, strict=True))

    @interpreted
    def test_which_evidence(self) -> None:
        leaf = einet.Einet(graph_of(1, 1), einet.Gaussian(), 2).leaf
        x = torch.zeros(3, 2)
        assert isinstance(leaf.evidence(x, None)[0], Evidence)
        v, m = torch.empty(4, 2, 3), torch.empty(4, 3, dtype=torch.float64)
        with dispatch.backend("triton"):
            assert isinstance(leaf.evidence(x, None)[0], FusedEvidence)
            assert isinstance(leaf.evidence(x, None, fused=False)[0], Evidence)
            assert isinstance(leaf.double().evidence(x, None)[0], Evidence)
            seen = leaf.float().evidence(x, None)
            with pytest.raises(ValueError, match="maximise"):
                leaf.propagate_(seen, v, m, maximise=True)

    @on_devices
    def test_no_rows(self, device: str) -> None:
        leaf = Both(graph_of(3, 1, 4), MIXED, 3, device).fused.leaf
        before = [p.detach().clone() for p in leaf.parameters()]
        with dispatch.backend("triton"):
            seen = leaf.evidence(torch.zeros(0, 8, device=device), None)
        v = torch.empty(leaf.num_nodes, 3, 0, device=device)
        leaf.propagate_(seen, v, torch.empty(leaf.num_nodes, 0, device=device).double())
        assert all((s.total == 0).all() for s in leaf.statistics(seen, v))
        leaf.step_(seen, v, 0.5)
        assert all(a.equal(b) for a, b in zip(before, leaf.parameters(), strict=True))

    @pytest.mark.gpu
    @pytest.mark.parametrize("family", [einet.Gaussian(), einet.Categorical(300), MIXED], ids=str)
    def test_never_waits_for_the_device(self, family) -> None:
        """Captured in a CUDA graph, a pass and a step do on replay what they do when called."""
        x = mixed_rows(50).cuda()
        if isinstance(family, einet.Categorical):
            x = (x * 10).round()
        both = Both(graph_of(3, 1, 4), family, 10, "cuda")
        leaf, observed = both.fused.leaf, ~x.isnan()
        step_size = torch.tensor(0.5, device="cuda")
        v = torch.full((leaf.num_nodes, 10, 50), NAN, device="cuda")
        m = torch.full((leaf.num_nodes, 50), NAN, device="cuda", dtype=torch.float64)
        start = [p.detach().clone() for p in leaf.parameters()]

        def step() -> None:
            seen = leaf.evidence(x, observed)
            leaf.propagate_(seen, v, m)
            leaf.statistics(seen, v)
            leaf.step_(seen, v, step_size)

        with torch.no_grad():
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                step()
            torch.cuda.synchronize()
            expected = [p.detach().clone() for p in leaf.parameters()]
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                step()
            for p, old in zip(leaf.parameters(), start, strict=True):
                p.copy_(old)
            v.fill_(NAN)
            graph.replay()
            torch.cuda.synchronize()
        assert all(a.equal(b) for a, b in zip(expected, leaf.parameters(), strict=True))


def test_tiles_fit_the_device() -> None:
    from einet.kernels.triton.leaf_common import forward_tile, statistics_tile

    for K in (1, 3, 10, 16, 40, 64, 256, 1000):
        for n, batch, s in itertools.product((1, 4, 160, 5120), (1, 100, 500, 2000), (1, 32, 768)):
            tile = forward_tile(n, s, K, batch)
            # All entries of a leaf, and not many more.
            assert K <= tile["BK"] < 2 * K
            assert tile["CHUNK"] <= max(1, 2 * s - 1)
            assert 1 <= tile["num_warps"] <= 8
            # What a thread holds in registers.
            assert tile["BK"] * tile["BB"] <= max(128 * 32 * tile["num_warps"], 16 * tile["BK"])
            _assert_powers_of_2(tile)
        for rows in (1, 2, 32, 768):
            tile = statistics_tile(rows, K)
            assert tile["BK"] < 2 * K
            assert tile["BR"] * tile["BK"] * tile["BB"] <= 4096
            assert rows > 1 or tile["BR"] == 1
            _assert_powers_of_2(tile)


def _assert_powers_of_2(tile: dict[str, int]) -> None:
    for name, size in tile.items():
        assert size >= 1, name
        assert size & (size - 1) == 0, name
