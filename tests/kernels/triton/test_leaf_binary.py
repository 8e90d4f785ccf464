"""Fused Bernoulli leaves give what the torch path gives in float64."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

pytest.importorskip("triton")

import einet
from einet.kernels import dispatch
from einet.kernels.triton import leaf_binary, leaf_common, leaf_evidence
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


def binary_rows(rows: int, columns: int, seed: int = 0, missing: float = 0.3) -> Tensor:
    x = normal_rows(rows, columns, seed, missing)
    return (x > 0.2).float().masked_fill(x.isnan(), NAN)


def spread(both: Both, *probabilities: float) -> Both:
    """Set the parameters to some probabilities, over and over again."""
    for block, other in zip(both.fused.leaf.leaf_blocks, both.exact.leaf.leaf_blocks, strict=True):
        count = block.stored.numel()
        values = torch.tensor(probabilities, dtype=torch.float32).repeat(count)[:count]
        block.stored.data.copy_(values.view(block.stored.shape))
        other.stored.data.copy_(values.view(block.stored.shape))
    return both


class TestSizes:
    @on_devices
    @pytest.mark.parametrize(
        ("K", "batch"), [(1, 1), (1, 33), (3, 16), (3, 300), (10, 1), (10, 17), (40, 20)]
    )
    def test_entries_and_samples(self, K: int, batch: int, device: str) -> None:
        x = binary_rows(batch, 8)
        both = Both(graph_of(3, 1, 4), einet.Bernoulli(), K, device, binary_rows(20, 8, 1))
        both.all(x)
        assert all(isinstance(data.kernel, leaf_binary.BinaryKernel) for data in both.seen)
        both.values(x.nan_to_num(0.0))

    @on_devices
    @pytest.mark.parametrize("size", [1, 2, 8, 9, 40])
    def test_scopes(self, size: int, device: str) -> None:
        Both(graph_of(size, 1), einet.Bernoulli(), 3, device).all(binary_rows(6, size + 1))

    @on_devices
    @pytest.mark.parametrize("K", [3, 20])
    def test_large_scopes_are_divided(self, K: int, device: str) -> None:
        x = binary_rows(3, 134, missing=0.1)
        both = Both(graph_of(133, 1), einet.Bernoulli(), K, device)
        both.values(x)
        x[2, 100] = 2.0
        both.values(x)
        assert not both.possible.all()

    @on_devices
    @pytest.mark.parametrize(("sizes", "K"), [((5, 2), 10), ((1, 1), 3)], ids=str)
    def test_tiles_of_many_programs(
        self, sizes: tuple[int, ...], K: int, device: str, monkeypatch
    ) -> None:
        """Several variables and one warp a program, as models have that are large enough."""
        monkeypatch.setattr(leaf_binary, "_FULL", 1)
        Both(graph_of(*sizes), einet.Bernoulli(), K, device).all(binary_rows(70, sum(sizes)))

    @on_devices
    def test_beside_other_families(self, device: str) -> None:
        family = [*[einet.Gaussian()] * 5, *[einet.Bernoulli()] * 130]
        x = binary_rows(3, 135, missing=0.1)
        Both(graph_of(134, 1), family, 3, device).values(x)

    @pytest.mark.gpu
    @pytest.mark.parametrize(("K", "batch"), [(64, 500), (256, 100), (10, 2000), (1000, 33)])
    @pytest.mark.parametrize("sizes", [(32, 1, 17), (1,) * 50, (400, 400)], ids=len)
    def test_large(self, sizes: tuple[int, ...], K: int, batch: int) -> None:
        x = binary_rows(batch, sum(sizes))
        Both(graph_of(*sizes), einet.Bernoulli(), K, "cuda").all(x)

    def test_tiles_fit_the_device(self) -> None:
        for K, n, s in itertools.product(
            (1, 3, 10, 40, 256, 1000), (1, 80, 1556), (1, 2, 3, 8, 800)
        ):
            tile = leaf_binary.statistics_tile(n, s, K)
            assert tile["BR"] < 2 * s
            assert tile["BK"] < 2 * K
            cells = tile["BR"] * tile["BK"] * tile["BB"]
            assert cells <= 32 * 32 * tile["num_warps"]
            assert all(size >= 1 and size & (size - 1) == 0 for size in tile.values())
            # A program starts with a word, and reads all of it.
            assert tile["BB"] % leaf_evidence.WORD == 0


class TestValues:
    @on_devices
    @pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float16, torch.float64])
    def test_types_of_data(self, dtype: torch.dtype, device: str) -> None:
        x = torch.arange(28).view(7, 4) * 5 % 7 % 2
        both = Both(graph_of(3, 1), einet.Bernoulli(), 3, device)
        both.all(x.to(dtype), torch.arange(28).view(7, 4) % 3 > 0)
        both.values(x.to(dtype), None)

    @on_devices
    def test_impossible_values(self, device: str) -> None:
        x = torch.zeros(36, 4)
        x[0, 0], x[1, 1], x[2, 2], x[15, 3], x[16, 0], x[35, 1] = 2.0, -1.0, 0.5, INF, -INF, 1e30
        x[4], x[5, 1], x[6] = 1.0, NAN, NAN
        both = Both(graph_of(2, 2), einet.Bernoulli(), 3, device)
        both.all(x)
        assert (~both.possible).any(0).nonzero().flatten().tolist() == [0, 1, 2, 15, 16, 35]

    @on_devices
    def test_an_impossible_value_that_is_not_observed(self, device: str) -> None:
        x = torch.full((5, 3), 7.0)
        x[:, 0] = 1.0
        both = Both(graph_of(2, 1), einet.Bernoulli(), 3, device)
        both.all(x, x == 1.0)
        assert both.possible.all()

    @on_devices
    @pytest.mark.parametrize("p", [1e-6, 1 - 1e-6, 0.5, 0.0, 1.0])
    def test_extreme_probabilities(self, p: float, device: str) -> None:
        """Sums of many logarithms of one sign keep their digits, small ones as well."""
        both = spread(Both(graph_of(133, 1), einet.Bernoulli(), 1, device), p)
        x = torch.zeros(3, 134)
        x[1], x[2, ::3] = 1.0, 1.0
        leaf = both.fused.leaf
        v = torch.empty(leaf.num_nodes, 1, 3, device=device)
        m = torch.empty(leaf.num_nodes, 3, device=device, dtype=torch.float64)
        with dispatch.backend("triton"), torch.no_grad():
            leaf.propagate_(leaf.evidence(x.to(device), None), v, m)
        ones = x.double()[:, :133].sum(1)
        # The probability that is stored, within the bounds of the torch path.
        stored = float(torch.tensor(p, dtype=torch.float32))
        stored = min(max(stored, torch.finfo(torch.float64).tiny), 1 - 2.0**-53)
        chance = torch.tensor(stored, dtype=torch.float64)
        exact = ones * chance.log() + (133 - ones) * torch.log1p(-chance)
        torch.testing.assert_close(m[0].cpu(), exact, rtol=3e-7, atol=1e-12)

    @on_devices
    @pytest.mark.parametrize("K", [1, 10])
    def test_mixed_probabilities(self, K: int, device: str) -> None:
        both = Both(graph_of(5, 1), einet.Bernoulli(), K, device)
        spread(both, 1e-6, 0.3, 1 - 1e-6, 0.9, 1e-3).all(binary_rows(20, 6))

    @on_devices
    @pytest.mark.parametrize("sizes", [(3, 1), (133, 1)], ids=str)
    def test_other_natural_parameters(self, sizes: tuple[int, ...], device: str) -> None:
        both = Both(graph_of(*sizes), einet.Bernoulli(), 3, device)
        x = binary_rows(5, sum(sizes))
        x[0, 0] = 3.0
        results = []
        for model, at in ((both.fused, device), (both.exact, "cpu")):
            generator, natural = torch.Generator().manual_seed(0), []
            for block in model.leaf.leaf_blocks:
                theta = 5 * torch.randn(block.stored.shape, generator=generator).double()
                natural.append((theta.to(at), block.family.A(theta.to(at))))
            v = torch.empty(model.leaf.num_nodes, 3, 5, dtype=block.stored.dtype, device=at)
            m = torch.empty(model.leaf.num_nodes, 5, dtype=torch.float64, device=at)
            with dispatch.backend("triton" if model is both.fused else "torch"), torch.no_grad():
                seen = model.leaf.evidence(x.to(at), ~x.isnan().to(at))
                model.leaf.propagate_(seen, v, m, natural=natural)
            results.append((v.cpu().double(), m.cpu()))
        for mine, other in zip(*results, strict=True):
            torch.testing.assert_close(mine, other, rtol=2e-6, atol=3e-5)


class TestStep:
    @on_devices
    @pytest.mark.parametrize("step_size", [1e-3, 0.4, 0.6, 0.999, 1.0])
    def test_sizes(self, step_size: float, device: str) -> None:
        both = Both(graph_of(3, 1), einet.Bernoulli(), 3, device)
        spread(both, 1e-6, 0.3, 1 - 1e-6, 0.9, 1e-3)
        both.values(binary_rows(40, 4))
        flow = both.flow()
        flow[0, 1] *= 1e-30
        both.step(flow, step_size, rtol=1e-6)

    @on_devices
    def test_small_shares_keep_their_digits(self, device: str) -> None:
        """A target far below the old value, at a step size of 1 and just below it."""
        x = torch.zeros(64, 1)
        x[0] = 1.0
        for step_size in (1.0, 1 - 1e-5):
            both = spread(Both(graph_of(1), einet.Bernoulli(1e-12), 3, device), 0.9)
            both.values(x)
            flow = torch.ones(1, 3, 64)
            flow[:, :, 0] = 1e-7
            both.step(flow, step_size)
            (block,), (other,) = both.fused.leaf.leaf_blocks, both.exact.leaf.leaf_blocks
            torch.testing.assert_close(
                block.stored.detach().cpu().double(), other.stored.detach(), rtol=1e-6, atol=0
            )

    @on_devices
    def test_bounds(self, device: str) -> None:
        x = torch.tensor([1.0, 0.0, 1.0, 0.0]).repeat(9, 1)
        both = Both(graph_of(3, 1), einet.Bernoulli([0.1, 1e-6, 1e-12, 0.3]), 3, device)
        both.all(x, step_size=1.0)
        for block in both.fused.leaf.leaf_blocks:
            assert (block.stored < 1).all()
        both.exact = copy.deepcopy(both.fused).double().cpu()
        both.values(x)

    @on_devices
    def test_flow_of_impossible_cells_is_left_out(self, device: str) -> None:
        both = Both(graph_of(1), einet.Bernoulli(), 3, device)
        both.values(torch.tensor([[1.0], [2.0], [0.0], [NAN]]))
        (found,) = both.fused.leaf.statistics(both.seen, torch.ones(1, 3, 4, device=device))
        assert (found.total == 2).all()
        assert (found.weighted == 1).all()

    @interpreted
    @pytest.mark.parametrize(("sizes", "kernels"), [((4, 2), 4), ((200,), 5)], ids=str)
    def test_nothing_but_kernels(self, sizes: tuple[int, ...], kernels: int, monkeypatch) -> None:
        """A training step is one kernel each for the data, the logarithms, values and the step."""
        launched, operations = [], []
        for module in (leaf_binary, leaf_common, leaf_evidence):
            monkeypatch.setattr(module, "launch", lambda kernel, *_, **__: launched.append(kernel))

        class Record(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, arguments=(), named=None):
                operations.append(str(function))
                return function(*arguments, **(named or {}))

        both = Both(graph_of(*sizes), einet.Bernoulli(), 3)
        leaf, x = both.fused.leaf, torch.zeros(9, sum(sizes))
        v = torch.empty(leaf.num_nodes, 3, 9)
        m = torch.empty(leaf.num_nodes, 9, dtype=torch.float64)
        size = torch.tensor(0.5)
        blocks = len(leaf.leaf_blocks)
        with dispatch.backend("triton"), torch.no_grad(), Record():
            seen = leaf.evidence(x, None)
            leaf.propagate_(seen, v, m)
            leaf.step_(seen, v, size)
        assert len(launched) == 1 + (kernels - 1) * blocks
        assert {name.split(".")[1] for name in operations} <= {"empty", "new_empty", "detach"}
