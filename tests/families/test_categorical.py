import math

import pytest
import torch

from einet.families import Categorical


@pytest.fixture
def family() -> Categorical:
    return Categorical([2, 4, 1])


@pytest.fixture
def stored(family: Categorical) -> torch.Tensor:
    return family.project(torch.rand(5, 3, 4, dtype=torch.float64))


def test_padding_has_no_probability(family: Categorical, stored: torch.Tensor):
    assert (stored[:, 0, 2:] == 0).all()
    assert (stored[:, 2] == torch.tensor([1.0, 0.0, 0.0, 0.0]).double()).all()
    torch.testing.assert_close(stored.sum(-1), torch.ones(5, 3).double(), rtol=1e-14, atol=0)
    raw = torch.randn(5, 3, 4, dtype=torch.float64)
    assert (family.constrain(raw)[:, 0, 2:] == 0).all()
    assert (family.phi(raw)[:, 0, 2:] == 0).all()
    x = torch.tensor([[2.0, 4.0, 1.0], [3.0, -1.0, 2.0]]).double()
    assert (family.log_prob(x, stored[0]) == -math.inf).all()


def test_padding_gives_no_nan(family: Categorical, stored: torch.Tensor):
    stored = stored.clone().requires_grad_()
    theta = family.theta_of(stored)
    assert theta.isfinite().all()
    torch.testing.assert_close(family.A(theta), torch.zeros(5, 3).double(), atol=1e-14, rtol=0)
    x = torch.zeros(5, 3, dtype=torch.float64)
    (family.log_prob(x, stored).sum() + theta.sum()).backward()
    assert stored.grad is not None
    assert stored.grad.isfinite().all()


def test_samples_keep_to_each_variables_categories(family: Categorical):
    stored = family.project(torch.rand(3, 4)).expand(20_000, 3, 4)
    x = family.sample(stored, torch.Generator().manual_seed(0))
    assert (x.amax(0) == torch.tensor([1.0, 3.0, 0.0])).all()
    frequencies = family.T(x).mean(0)
    torch.testing.assert_close(frequencies, stored[0], atol=0.02, rtol=0)


def test_categories_without_probability_are_never_drawn():
    stored = torch.tensor([0.0, 0.5, 0.0, 0.5]).expand(10_000, 4)
    x = Categorical(4).sample(stored, torch.Generator().manual_seed(0))
    assert set(x.tolist()) == {1.0, 3.0}


def test_zero_counts_are_lifted_to_the_floor():
    family = Categorical(3, min_probability=0.1)
    lifted = family.project(torch.tensor([0.0, 0.2, 0.8]))
    torch.testing.assert_close(lifted, torch.tensor([0.1, 0.18, 0.72]))


def test_the_width_of_tables_outlives_a_selection(family: Categorical):
    narrow = family.at(torch.tensor([0, 2]))
    assert narrow.num_statistics == narrow.num_states == 4
    assert narrow.config() == {"width": 4}
    again = Categorical.stack([Categorical(2), Categorical(5), Categorical(3)])
    assert again.num_statistics == 5
    assert again.num_categories.tolist() == [2, 5, 3]


def test_moments_mean_nothing(family: Categorical, stored: torch.Tensor):
    assert family.mean(stored).isnan().all()
    assert family.variance(stored).isnan().all()


def test_categories_that_are_numbers(stored: torch.Tensor):
    family = Categorical([2, 4, 1], numeric=True)
    states = torch.arange(4).double()
    mean = (stored * states).sum(-1)
    torch.testing.assert_close(family.mean(stored), mean)
    second = (stored * states**2).sum(-1)
    torch.testing.assert_close(family.variance(stored), second - mean**2)
    assert family.at(torch.tensor(1)).numeric
    assert "numeric" not in Categorical(3).config()
    assert Categorical(3).mean(stored[0, :, :3]).isnan().all()
