"""EM and stochastic EM."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from einet import (
    EM,
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    Einet,
    Exponential,
    ExponentialFamily,
    Gamma,
    Gaussian,
    Poisson,
    RegionGraph,
    StochasticEM,
    linear,
    poon_domingos,
    random_trees,
)
from tests.families.cases import CASES, Case

STRUCTURES = {
    "random trees": random_trees(4, depth=2, replicas=3, seed=0),
    "Poon-Domingos": poon_domingos((2, 2), delta=1),
}


def draws(case: Case, rows: int = 60, variables: int = 4, seed: int = 0) -> Tensor:
    """Rows of two kinds, so that there is something to find."""
    kinds = [
        case.draw(reference, rows * variables, seed + number).view(rows, variables)
        for number, reference in enumerate(case.references[:2])
    ]
    return torch.where((torch.arange(rows) % 3 == 0).unsqueeze(1), *kinds)


def holes(x: Tensor, share: float = 0.3) -> Tensor:
    gone = torch.rand(x.shape, generator=torch.Generator().manual_seed(7)) < share
    return torch.where(gone, math.nan, x)


def ascent(model: Einet, x: Tensor, steps: int = 12, **rows) -> list[float]:
    """Mean log-likelihoods before each EM step and after the last."""
    learner, results, batch = EM(), [], model.as_batch(x, **rows)
    for _ in range(steps):
        results.append(learner.step(model, batch).item())
        learner.end_epoch(model, 0.0)
    return [*results, learner.step(model, batch).item()]


def assert_never_decreases(results: list[float], tolerance: float = 1e-9) -> None:
    for before, after in pairwise(results):
        assert after >= before - tolerance * (1 + abs(before)), results
    assert results[-1] > results[0]


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
class TestMonotone:
    """The log-likelihood never decreases, for every family and both structures."""

    def model(self, structure: str, case: Case, **options) -> Einet:
        options = {"num_sums": 3, "dtype": torch.float64} | options
        return Einet(STRUCTURES[structure], case.family, **options)

    def test_from_data(self, structure: str, case: Case) -> None:
        model = self.model(structure, case)
        x = draws(case)
        assert_never_decreases(ascent(model.initialize(x), x))

    def test_with_missing_data(self, structure: str, case: Case) -> None:
        model = self.model(structure, case)
        x = holes(draws(case))
        assert_never_decreases(ascent(model.initialize(x), x))

    def test_with_classes(self, structure: str, case: Case) -> None:
        model = self.model(structure, case, num_classes=2, num_sums=2)
        x = holes(draws(case), 0.1)
        labels = (torch.arange(len(x)) % 3 == 0).long()
        labels[::2] = -1
        assert_never_decreases(ascent(model.initialize(x), x, 6, labels=labels))


@pytest.mark.parametrize(
    "family",
    [
        Bernoulli(0.3),
        Beta(1.0, 4.0),
        Binomial(7, 0.2),
        Categorical(4, 0.15),
        Exponential(0.5, 1.5),
        Gamma(1.0, 3.0),
        Gaussian(0.5, 1.0),
        Poisson(1.0),
    ],
    ids=lambda family: type(family).__name__,
)
def test_monotone_at_the_bounds_of_the_parameters(family: ExponentialFamily) -> None:
    (case,) = [case for case in CASES if case.name == type(family).__name__]
    x = draws(case)
    model = Einet(STRUCTURES["random trees"], family, 3, dtype=torch.float64)
    assert_never_decreases(ascent(model.initialize(x), x))


class TestEM:
    @pytest.fixture
    def graph(self) -> RegionGraph:
        return random_trees(5, depth=2, replicas=2, seed=2)

    @pytest.fixture
    def x(self) -> Tensor:
        return holes(torch.randn(50, 5, generator=torch.Generator().manual_seed(1)), 0.2)

    def test_mixed_families_weights_and_a_long_run(self) -> None:
        graph = random_trees(4, depth=1, replicas=3, seed=0)
        model = Einet(
            graph, [Gaussian(), Bernoulli(), Categorical(3), Gaussian()], 4, dtype=torch.float64
        )
        generator = torch.Generator().manual_seed(2)
        kind = torch.randint(2, (80,), generator=generator).double()
        x = torch.stack([kind + torch.randn(80, generator=generator), kind, 2 * kind, -kind], 1)
        weights = torch.rand(80, generator=generator)
        results = ascent(model.initialize(x), holes(x, 0.1), 60, weights=weights)
        assert_never_decreases(results)

    def test_batches_are_as_good_as_one(self, graph: RegionGraph, x: Tensor) -> None:
        models = [Einet(graph, Gaussian(), 3, dtype=torch.float64).initialize(x) for _ in range(2)]
        for model, size in zip(models, (50, 7), strict=True):
            learner = EM()
            for _ in range(3):
                for part in x.split(size):
                    learner.step(model, part)
                learner.end_epoch(model, 0.0)
        for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)

    def test_steps_return_the_mean_of_their_own_batch(self, graph: RegionGraph, x: Tensor) -> None:
        model = Einet(graph, Gaussian(), 3, dtype=torch.float64)
        learner = EM()
        for part in x.split(20):
            expected = model.log_prob(part).mean()
            torch.testing.assert_close(learner.step(model, part), expected)

    def test_parameters_rest_until_the_epoch_ends(self, graph: RegionGraph, x: Tensor) -> None:
        model = Einet(graph, Gaussian(), 3)
        before = [p.detach().clone() for p in model.parameters()]
        learner = EM()
        learner.step(model, x)
        assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
        learner.end_epoch(model, 0.0)
        assert not all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))

    def test_moments_are_matched(self, graph: RegionGraph) -> None:
        """The complete model is an exponential family: an M-step matches its statistics."""
        x = 3 + 2 * torch.randn(50, 5, generator=torch.Generator().manual_seed(1)).double()
        model = Einet(graph, Gaussian(), 3, dtype=torch.float64).initialize(x)
        ascent(model, x, 3)
        torch.testing.assert_close(model.mean(), x.mean(0), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(model.variance(), x.var(0, correction=0), rtol=1e-4, atol=1e-4)

    def test_the_class_prior_is_learnt_from_counts(self, graph: RegionGraph, x: Tensor) -> None:
        model = Einet(graph, Gaussian(), 2, num_classes=3, dtype=torch.float64).initialize(x)
        labels = torch.tensor([0] * 10 + [1] * 25 + [2] * 15)
        ascent(model, x, 1, labels=labels)
        torch.testing.assert_close(
            model.log_class_prior.exp().detach(), torch.tensor([0.2, 0.5, 0.3]).double()
        )

    def test_a_class_without_rows_keeps_its_distribution(
        self, graph: RegionGraph, x: Tensor
    ) -> None:
        model = Einet(random_trees(5, 0, 1), Gaussian(), 2, num_classes=2).initialize(x)
        before = model.circuit.weights[-1].detach().clone()
        ascent(model, x, 2, labels=torch.zeros(50, dtype=torch.long))
        after = model.circuit.weights[-1].detach()
        assert torch.equal(before[:, 1], after[:, 1])
        assert not torch.equal(before[:, 0], after[:, 0])


class TestStochasticEM:
    @pytest.fixture
    def model(self) -> Einet:
        graph = random_trees(4, depth=2, replicas=2, seed=2)
        return Einet(graph, Gaussian(), 3, dtype=torch.float64)

    @pytest.fixture
    def x(self) -> Tensor:
        return torch.randn(30, 4, generator=torch.Generator().manual_seed(1)).double()

    def test_a_step_is_the_gliding_average(self, model: Einet, x: Tensor) -> None:
        """Eqs. (8) and (9): weights and φ move by λ towards the mini-batch's own."""

        def parameters() -> list[Tensor]:
            blocks = model.leaf.leaf_blocks
            phis = [block.family.phi_of(block.stored.detach()) for block in blocks]
            return [w.detach().clone() for w in model.circuit.weights] + phis

        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        before = parameters()
        model.m_step(model.e_step(x), 1.0)
        full = parameters()
        model.load_state_dict(state)
        StochasticEM(0.3).step(model, x)
        for old, own, new in zip(before, full, parameters(), strict=True):
            torch.testing.assert_close(new, 0.7 * old + 0.3 * own, rtol=1e-9, atol=1e-9)

    def test_a_step_of_one_is_an_em_step(self, model: Einet, x: Tensor) -> None:
        other = Einet(model.graph, Gaussian(), 3, dtype=torch.float64)
        other.load_state_dict(model.state_dict())
        StochasticEM(1.0).step(model, x)
        ascent(other, x, 1)
        for one, two in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(one, two)

    def test_weights_stay_normalised(self, model: Einet, x: Tensor) -> None:
        learner = StochasticEM(0.7)
        for part in x.split(3):
            learner.step(model, part)
        assert abs(model.log_normalizer().item()) < 1e-9

    def test_the_schedule_is_followed(self, model: Einet, x: Tensor) -> None:
        learner = StochasticEM(linear(0.5, 0.1))
        asked = []

        def em_step(*_, step_size: float, **__) -> Tensor:
            asked.append(step_size)
            return torch.zeros(())

        model.em_step = em_step  # type: ignore[method-assign]
        for progress in (0.0, 0.5, 1.0):
            learner.step(model, x, progress=progress)
            assert learner.step_size_at(progress) == asked[-1]
        assert asked == pytest.approx([0.5, 0.3, 0.1])

    @pytest.mark.parametrize("size", [0.0, -0.1, 1.5, math.nan])
    def test_step_sizes_outside_the_interval(self, model: Einet, x: Tensor, size: float) -> None:
        with pytest.raises(ValueError, match=r"step_size must lie in \(0, 1\]"):
            StochasticEM(size)
        with pytest.raises(ValueError, match="step_size"):
            StochasticEM(lambda _: size).step(model, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("learner", [EM(), StochasticEM(0.5)], ids=["EM", "stochastic"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_variable_never_observed_keeps_its_parameters(
    case: Case, learner: EM | StochasticEM, dtype: torch.dtype
) -> None:
    model = Einet(STRUCTURES["random trees"], case.family, 2, dtype=dtype)
    x = draws(case, 10)
    x[:, 2] = math.nan
    # Initialisation has to leave it alone as well.
    kept = {id(block): block.stored.detach().clone() for block in model.leaf.leaf_blocks}
    model.initialize(x)
    for _ in range(2):
        learner.step(model, x)
        learner.end_epoch(model, 0.0)
    for block in model.leaf.leaf_blocks:
        of_it = block.columns.reshape(-1) == 2
        assert torch.equal(block.stored[:, of_it], kept[id(block)][:, of_it])
        assert not torch.equal(block.stored[:, ~of_it], kept[id(block)][:, ~of_it])
    learner.finish(model)
