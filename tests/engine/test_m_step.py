"""The M-step: bounds, what stays untouched, and the extremes of float32."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from einet import (
    EM,
    Bernoulli,
    Binomial,
    Einet,
    Gaussian,
    StochasticEM,
    poon_domingos,
    random_trees,
)
from einet.engine.m_step import update_log_weights
from einet.engine.statistics import EinetStatistics
from einet.families.simplex import floored_simplex
from einet.kernels.update import RELATIVE_FLOOR

FLOATS = [torch.float32, torch.float64]


def em(model: Einet, x, steps: int) -> list[float]:
    learner, results = EM(), []
    for _ in range(steps):
        results.append(learner.step(model, x).item())
        learner.end_epoch(model, 0.0)
    return results


def simplices(model: Einet) -> list[Tensor]:
    layers = model.circuit.sum_layers
    return [view for layer in layers for view in layer.simplices(layer.weight.detach())]


def assert_sound(model: Einet, x) -> None:
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert model.log_prob(x).isfinite().all()
    assert abs(model.log_normalizer().item()) < 1e-4


class TestWeights:
    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize("learner", [EM(), StochasticEM(0.9)], ids=["EM", "stochastic"])
    def test_normalised_and_bounded(self, learner: EM | StochasticEM, dtype: torch.dtype) -> None:
        model = Einet(poon_domingos((2, 3), delta=1), Bernoulli(), 4, dtype=dtype)
        x = torch.tensor([[0, 1, 0, 1, 0, 1], [1, 0, 1, 0, 1, 0]])
        model.initialize(x)
        for _ in range(60):
            learner.step(model, x)
            learner.end_epoch(model, 0.0)
        learner.finish(model)
        lowest = []
        for w in simplices(model):
            torch.testing.assert_close(w.sum(-1), torch.ones_like(w[..., 0]))
            floor = RELATIVE_FLOOR / w.shape[-1]
            assert w.min() >= floor * (1 - 1e-6)
            lowest.append(w.min().item() / floor)
        # Two rows need few of the paths, so the bound was reached, not just respected.
        assert min(lowest) < 1.001
        assert_sound(model, x)

    def test_the_floor_does_not_lower_the_likelihood(self) -> None:
        model = Einet(random_trees(6, 2, 3), Bernoulli(1e-3), 5, dtype=torch.float64)
        x = (torch.arange(40).unsqueeze(1) % torch.tensor([2, 2, 3, 3, 5, 5]) == 0).double()
        results = em(model.initialize(x), x, 150)
        assert max(a - b for a, b in pairwise(results)) < 1e-12
        assert min(w.min() * w.shape[-1] for w in simplices(model)) < 1.001 * RELATIVE_FLOOR

    def test_the_floored_weights_solve_the_constrained_problem(self) -> None:
        """Karush–Kuhn–Tucker: n/w is one number τ off the floor, and at most τ on it."""
        model = Einet(random_trees(3, 0, 1), Bernoulli(), 5, dtype=torch.float64)
        statistics = EinetStatistics.zeros(model)
        counts = torch.tensor([5.0, 1e-9, 0.0, 2e-6, 3.0], dtype=torch.float64)
        statistics.weights[0].copy_(counts / model.circuit.weights[0].detach())
        model.m_step(statistics)
        w = model.circuit.weights[0].detach().flatten()
        tau = counts / w
        floor = RELATIVE_FLOOR / 5
        torch.testing.assert_close(w.sum(), torch.ones_like(w[0]), rtol=0, atol=1e-14)
        torch.testing.assert_close(w[[1, 2]], torch.full_like(w[:2], floor), rtol=1e-9, atol=0)
        torch.testing.assert_close(tau[[0, 3]], tau[[4, 4]], rtol=1e-9, atol=0)
        assert (tau[[1, 2]] <= tau[0]).all()


class TestUnreached:
    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize("step_size", [1.0, 0.3])
    def test_nothing_reached_changes_nothing(self, step_size: float, dtype: torch.dtype) -> None:
        graph = random_trees(4, 2, 3)
        families = [Gaussian(), Bernoulli(), Binomial(3), Gaussian()]
        model = Einet(graph, families, 3, num_classes=2, dtype=dtype)
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        model.m_step(EinetStatistics.zeros(model), step_size)
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor.nan_to_num(), before[name].nan_to_num()), name

    def test_one_sum_and_one_leaf(self) -> None:
        model = Einet(random_trees(4, 2, 2), Gaussian(), 3)
        x = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
        statistics = model.e_step(x)
        layer, block = model.circuit.sum_layers[0], model.leaf.leaf_blocks[0]
        statistics.weights[0][1, 2] = 0
        statistics.leaves[0].total[1, 3] = 0
        statistics.leaves[0].weighted[1, 3] = 0
        weight, stored = layer.weight.detach().clone(), block.stored.detach().clone()
        model.m_step(statistics)
        kept = (layer.weight == weight).all(-1)
        assert kept[1, 2]
        assert kept.sum() == 1
        kept = (block.stored == stored).all(-1)
        assert kept[1, 3]
        assert kept.sum() == 1
        assert_sound(model, x)

    def test_missing_cells_add_to_neither_sum(self) -> None:
        """K = 1: the mean and variance are those of the observed cells, whatever is missing."""
        model = Einet(random_trees(3, 1, 1), Gaussian(), 1, dtype=torch.float64)
        x = torch.tensor([[1.0, 2.0, 3.0], [3.0, math.nan, 5.0], [math.nan, 6.0, 10.0]]).double()
        em(model.initialize(x), x, 1)
        torch.testing.assert_close(model.mean(), torch.tensor([2.0, 4.0, 6.0]).double())
        expected = torch.tensor([1.0, 4.0, 26.0 / 3]).double()
        torch.testing.assert_close(model.variance(), expected)


class TestExtremesOfFloat32:
    """A float32 model on data that float32 arithmetic on x and x² could not handle."""

    @pytest.mark.parametrize("K", [1, 4])
    @pytest.mark.parametrize("given", [np.float64, np.float32])
    def test_far_from_the_origin(self, given: type, K: int) -> None:
        generator = np.random.default_rng(0)
        x = (1e4 + 1e-2 * generator.standard_normal((500, 3))).astype(given)
        model = Einet(random_trees(3, 1, 2), Gaussian(), K, dtype=torch.float32).initialize(x)
        results = em(model, x, 10)
        assert all(math.isfinite(result) for result in results)
        assert results[-1] >= results[0] - 1e-4
        assert_sound(model, x)
        own = x.astype(np.float64)
        np.testing.assert_allclose(model.double().mean().numpy(), own.mean(0), atol=2e-5)
        np.testing.assert_allclose(model.variance().numpy(), own.var(0), rtol=1e-3)
        # As good as the exact answer in float64, up to float32's rounding.
        exact = Einet(random_trees(3, 1, 2), Gaussian(), K, dtype=torch.float64).initialize(x)
        assert results == pytest.approx(em(exact, x, 10), abs=1e-3)

    @pytest.mark.parametrize("family", [Gaussian(), Binomial(255)], ids=["Gaussian", "Binomial"])
    @pytest.mark.parametrize("learner", [EM(), StochasticEM(0.5)], ids=["EM", "stochastic"])
    def test_pixels_with_constant_columns(
        self, family: Gaussian | Binomial, learner: EM | StochasticEM
    ) -> None:
        pixels = torch.randint(0, 256, (200, 9), generator=torch.Generator().manual_seed(0))
        pixels[:, 0], pixels[:, 4], pixels[:, 8] = 0, 255, 7
        x = pixels.to(torch.uint8)
        model = Einet(poon_domingos((3, 3), delta=1), family, 4, dtype=torch.float32).initialize(x)
        for _ in range(15):
            for part in x.split(64):
                assert learner.step(model, part).isfinite()
            learner.end_epoch(model, 0.0)
        learner.finish(model)
        assert_sound(model, x)
        spread = model.variance()
        # A binomial that is constantly 7 has a variance all the same.
        constant = [0, 4, 8] if isinstance(family, Gaussian) else [0, 4]
        assert (spread[constant] < 0.1).all()
        if isinstance(learner, EM) and isinstance(family, Gaussian):
            varied = [1, 2, 3, 5, 6, 7]
            own = x.double().var(0, correction=0)[varied].float()
            torch.testing.assert_close(spread[varied], own, rtol=1e-2, atol=0)

    def test_variances_at_their_lower_bound(self) -> None:
        """As many entries as distinct rows, each near one: it collapses onto it, to the bound."""
        points = torch.tensor([[0.0, 100.0], [1.0, 200.0], [5.0, -300.0]])
        x = points.repeat(20, 1)
        family = Gaussian(min_variance=1e-6)
        model = Einet(random_trees(2, 0, 1), family, 3, dtype=torch.float32).initialize(x)
        (block,) = model.leaf.leaf_blocks
        family = block.family
        near = family.T(points.double() + torch.tensor([0.1, 10.0]))
        block.stored.data.copy_(block.from_phi(near + torch.tensor([0.0, 1.0])))
        em(model, x, 80)
        assert_sound(model, x)
        stored = block.stored.detach().double()
        torch.testing.assert_close(
            family.variance(stored), torch.full((3, 2), 1e-6).double(), rtol=1e-3, atol=0
        )
        torch.testing.assert_close(family.mean(stored).float(), points, atol=1e-4, rtol=1e-5)

    def test_the_default_bound_is_relative_to_the_column(self) -> None:
        x = torch.tensor([[0.0, 0.0], [1e6, 1e-6]]).double().repeat(10, 1)
        model = Einet(random_trees(2, 0, 1), Gaussian(), 2, dtype=torch.float32).initialize(x)
        em(model, x, 60)
        assert_sound(model, x)
        (block,) = model.leaf.leaf_blocks
        variance = block.family.variance(block.stored.detach().double())
        relative = variance / x.var(0, correction=0)
        torch.testing.assert_close(relative, torch.full((2, 2), 1e-4).double(), rtol=1e-3, atol=0)


class TestLogWeights:
    """The class prior and a mixture's weights, which are kept as logs."""

    @given(
        counts=st.lists(st.one_of(st.just(0.0), st.floats(1e-9, 1e6)), min_size=1, max_size=6),
        step_size=st.floats(0.0, 1.0),
        on_device=st.booleans(),
        dtype=st.sampled_from(FLOATS),
    )
    def test_against_the_constrained_solution(
        self, counts: list[float], step_size: float, on_device: bool, dtype: torch.dtype
    ) -> None:
        n = torch.tensor(counts, dtype=torch.float64)
        old = torch.linspace(-1.0, 1.0, len(n)).log_softmax(0).to(dtype)
        new = old.clone()
        size = torch.tensor(step_size, dtype=torch.float64) if on_device else step_size
        update_log_weights(new, n, size)
        if not n.sum() > 0:
            assert new.equal(old)
            return
        target = floored_simplex(n, RELATIVE_FLOOR / len(n))
        wanted = torch.lerp(old.double().exp(), target, step_size).log()
        rtol = 1e-9 if dtype == torch.float64 else 1e-5
        torch.testing.assert_close(new, wanted.to(dtype), rtol=rtol, atol=1e-9)

    def test_the_counts_stay_as_they_are(self) -> None:
        counts = torch.tensor([0.0, 2.0, 6.0], dtype=torch.float64)
        log_weights = torch.full((3,), 1 / 3).log()
        update_log_weights(log_weights, counts)
        assert counts.tolist() == [0.0, 2.0, 6.0]
        torch.testing.assert_close(
            log_weights.exp(), torch.tensor([0.0, 0.25, 0.75]), rtol=1e-5, atol=1e-6
        )
        assert log_weights.isfinite().all()
