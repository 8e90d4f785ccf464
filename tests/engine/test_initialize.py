"""Initial leaves."""

import math

import pytest
import torch
from torch import Tensor

from einet import Bernoulli, Categorical, Einet, Gaussian, poon_domingos, random_trees
from tests.families.cases import CASES, Case

GRAPH = random_trees(4, depth=2, replicas=2, seed=1)


def stored(model: Einet) -> list[Tensor]:
    return [block.stored.detach().clone() for block in model.leaf.leaf_blocks]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
class TestEveryFamily:
    def test_before_data(self, case: Case, dtype: torch.dtype) -> None:
        model = Einet(GRAPH, case.family, 3, dtype=dtype)
        assert not model.initialized
        assert all(parameters.isfinite().all() for parameters in stored(model))
        x = case.draw(case.references[0], 4).view(1, 4)
        assert model.log_prob(x).isfinite().all()

    def test_from_data(self, case: Case, dtype: torch.dtype) -> None:
        model = Einet(GRAPH, case.family, 3, dtype=dtype)
        x = case.draw(case.references[0], 200).view(50, 4)
        assert model.initialize(x) is model
        assert model.initialized
        assert model.log_prob(x).isfinite().all()
        for block in model.leaf.leaf_blocks:
            family, parameters = block.family, block.stored.detach().double()
            assert parameters.isfinite().all()
            torch.testing.assert_close(family.project(parameters), parameters, rtol=1e-5, atol=0)
            # EM could not tell equal entries apart; in float32 some may round to the same.
            if case.name != "Bernoulli" and dtype == torch.float64:
                assert (parameters[0] != parameters[1]).any()

    def test_the_seed_decides(self, case: Case, dtype: torch.dtype) -> None:
        x = case.draw(case.references[0], 200).view(50, 4)
        one, same, other = (
            stored(Einet(GRAPH, case.family, 3, dtype=dtype).initialize(x, seed=seed))
            for seed in (1, 1, 2)
        )
        assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
        assert not all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


class TestInitialize:
    def test_entries_lie_between_the_average_and_a_row(self) -> None:
        x = torch.tensor([[0.0, 1.0], [2.0, 5.0], [4.0, 0.0]]).double()
        model = Einet(random_trees(2, 0, 1), Gaussian(), 8, dtype=torch.float64).initialize(x)
        (block,) = model.leaf.leaf_blocks
        means = block.family.mean(block.stored.detach())
        halfway = (x + x.mean(0)) / 2
        for mean in means:
            assert (mean - halfway).abs().amax(1).min() < 1e-6

    def test_a_row_is_shared_by_the_variables_of_a_leaf(self) -> None:
        x = torch.eye(4)
        model = Einet(random_trees(4, 0, 1), Bernoulli(), 6).initialize(x)
        (block,) = model.leaf.leaf_blocks
        probabilities = block.stored.detach().squeeze(-1)
        assert ((probabilities > 0.5).sum(1) == 1).all()

    @pytest.mark.parametrize(
        "family", [Gaussian(), Categorical(3)], ids=["Gaussian", "Categorical"]
    )
    def test_missing_cells_fall_back_on_the_average(self, family) -> None:
        x = torch.tensor([[0.0, math.nan], [2.0, math.nan], [1.0, 1.0]]).double()
        model = Einet(random_trees(2, 0, 1), family, 5, dtype=torch.float64).initialize(x)
        assert model.log_prob(x).isfinite().all()

    def test_hyperparameters_are_read_off_the_data_once_more(self) -> None:
        model = Einet(poon_domingos((2, 2), 1), Gaussian(), 2)
        for scale in (1.0, 1e6):
            x = scale * torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
            model.initialize(x)
            assert model.mean().abs().max() < scale
            assert 0.2 * scale**2 < model.variance().min()
            assert model.variance().max() < 5 * scale**2

    def test_a_mask_counts_as_nan_does(self) -> None:
        x = torch.tensor([[0, 1, 1, 0], [1, 0, 9, 1], [1, 1, 0, 9]])
        seen = x < 9
        masked = Einet(GRAPH, Bernoulli(), 3).initialize(x, seen)
        with_nan = Einet(GRAPH, Bernoulli(), 3).initialize(torch.where(seen, x, math.nan))
        for a, b in zip(stored(masked), stored(with_nan), strict=True):
            assert torch.equal(a, b)

    def test_bad_data(self) -> None:
        model = Einet(GRAPH, Bernoulli(), 2)
        with pytest.raises(ValueError, match="data must have at least one row"):
            model.initialize(torch.zeros(0, 4))
        with pytest.raises(ValueError, match=r"data\[1, 2\] is 3"):
            model.initialize([[0, 0, 0, 0], [0, 0, 3, 0]])
        assert not model.initialized
