"""What an M-step makes of statistics, wherever they are counted from."""

import copy
import math

import pytest
import torch
from torch import Tensor

import einet
from einet.engine.statistics import EinetStatistics
from einet.layers.leaf_statistics import LeafStatistics, next_parameters


def far_rows(seed: int, rows: int = 60) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 1.7e9 + 1e-3 * torch.randn(rows, 4, generator=generator, dtype=torch.float64)


def far_model(dtype: torch.dtype = torch.float64) -> einet.Einet:
    model = einet.Einet(
        einet.random_trees(4, 1, 2), einet.Gaussian(min_variance=1e-12), 3, dtype=dtype
    )
    for _ in range(2):
        model.em_step(far_rows(0))
    return model


def stored(model: einet.Einet) -> list[Tensor]:
    return [block.stored.detach().clone() for block in model.leaf.leaf_blocks]


def assert_close(first: einet.Einet, second: einet.Einet) -> None:
    for a, b in zip(stored(first), stored(second), strict=True):
        torch.testing.assert_close(a[..., 0], b[..., 0], rtol=1e-15, atol=0)
        torch.testing.assert_close(a[..., 1], b[..., 1], rtol=1e-6, atol=0)


def test_parts_add_up_to_the_whole():
    x = far_rows(1)
    whole, added, into = far_model(), far_model(), far_model()
    whole.m_step(whole.e_step(x))
    added.m_step(added.e_step(x[:20]).add_(added.e_step(x[20:])))
    statistics = EinetStatistics.zeros(into)
    for part in x.split(7):
        into.e_step(part, into=statistics)
    into.m_step(statistics)
    assert_close(whole, added)
    assert_close(whole, into)


def test_statistics_from_different_origins_add_up():
    x, model = far_rows(1), far_model()
    before = model.e_step(x[:20])
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for block in moved.leaf.leaf_blocks:
            block.stored[..., 0] += 5e-4
    for first, second in ((before, moved.e_step(x[20:])), (moved.e_step(x[20:]), before)):
        both = copy.deepcopy(first).add_(second)
        for leaf, a, b in zip(both.leaf_statistics(), first.leaves, second.leaves, strict=True):
            assert leaf.origin is not None
            assert b.origin is not None
            assert torch.equal(leaf.origin, b.origin)
            torch.testing.assert_close(leaf.total, a.total + b.total)
            expected = a.from_origin(b.origin) + b.sums
            torch.testing.assert_close(leaf.sums, expected)


def test_statistics_that_were_emptied_start_from_where_the_model_is_now():
    x = far_rows(1)
    model = einet.Einet(
        einet.random_trees(4, 1, 2), einet.Gaussian(min_variance=1e-12), 3, dtype=torch.float64
    )
    fresh = copy.deepcopy(model)
    kept = model.e_step(x)
    for _ in range(4):
        model.m_step(kept)
        kept.zero_()
        model.e_step(x, into=kept)
        fresh.m_step(fresh.e_step(x))
    assert_close(model, fresh)
    for block, leaf in zip(model.leaf.leaf_blocks, kept.leaves, strict=True):
        assert leaf.origin is not None
        assert torch.equal(leaf.origin, block.stored[..., 0].detach())


def test_sums_of_statistics_wherever_they_are_counted_from():
    x = torch.randn(30, 4, generator=torch.manual_seed(0), dtype=torch.float64)
    model = einet.Einet(einet.random_trees(4, 1, 2), einet.Gaussian(), 3, dtype=torch.float64)
    for leaf in model.e_step(x).leaves:
        assert leaf.origin is not None
        raw = LeafStatistics(leaf.total, leaf.weighted)
        torch.testing.assert_close(raw.from_origin(leaf.origin), leaf.sums)
        torch.testing.assert_close(leaf.from_origin(None), leaf.weighted)
        torch.testing.assert_close(raw.from_origin(None), leaf.weighted)


def test_the_variance_is_about_the_mean_that_float32_can_hold():
    """The nearest mean may be many deviations away: then the variance has to make up for it."""
    family = einet.Gaussian(min_variance=1e-12)
    total = torch.ones(1, 1, dtype=torch.float64)
    exact, variance = 1.7e9 + 11.0, 1e-4
    origin = torch.full((1, 1), exact - 1.0, dtype=torch.float64)
    statistic = LeafStatistics(total, torch.tensor([[[1.0, 1.0 + variance]]]).double(), origin)
    new = next_parameters(family, torch.tensor([[[0.0, 1.0]]]), statistic, 1.0).double()
    away = exact - new[0, 0, 0].item()
    assert 0 < abs(away) <= 64
    assert new[0, 0, 1].item() == pytest.approx(variance + away**2)


class Clumsy(einet.Poisson):
    """Rates are found badly: three times what they should be."""

    def store(self, phi: Tensor) -> Tensor:
        return 3 * phi


def test_a_whole_step_for_the_worse_is_not_taken():
    statistic = LeafStatistics(torch.ones(1, 2).double(), torch.tensor([[[4.0], [4.0]]]).double())
    old = torch.tensor([[[5.0], [4000.0]]], dtype=torch.float64)
    new = next_parameters(Clumsy(), old, statistic, 1.0)
    # The first was better where it was; to the second even this is a help.
    assert new.tolist() == [[[5.0], [12.0]]]
    # A part of a step promises nothing: mini-batches differ from each other.
    assert next_parameters(Clumsy(), old, statistic, 0.5)[0, 0] == 3 * 4.5


def test_a_density_that_no_row_reaches_keeps_what_it_had():
    for family in (einet.Gaussian(), einet.Beta(), einet.Categorical(3)):
        phi = family.random_phi((2, 3), torch.manual_seed(0))
        old = family.project(family.store(phi))
        total = torch.zeros(2, 3, dtype=torch.float64)
        origin = old[..., 0] if isinstance(family, einet.Gaussian) else None
        statistic = LeafStatistics(total, torch.zeros_like(phi), origin)
        for size in (1.0, 0.5, torch.tensor(1.0).double()):
            assert torch.equal(next_parameters(family, old, statistic, size), old)


def test_a_prior_is_counted_from_the_same_origin():
    x = far_rows(0, 200)
    model = einet.Einet(einet.random_trees(4, 1, 1), einet.Gaussian(), 1, dtype=torch.float64)
    model.initialize(x)
    counts = einet.Prior(leaves=1e9).pseudo_counts(model, x)
    model.m_step(model.e_step(x[:1]), prior=counts)
    # So strong a prior leaves nothing but the whole column.
    variance = (x - 1.7e9).var(0, correction=0)
    found = model.given(torch.full((1, 4), math.nan)).variance()[0]
    torch.testing.assert_close(found, variance, rtol=1e-4, atol=0)
