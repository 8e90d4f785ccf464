"""Growing changes no density until EM moves it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import einet
from einet import Bernoulli, Categorical, Einet, Gaussian, grow, poon_domingos, random_trees

X = torch.randint(0, 2, (40, 4), generator=torch.Generator().manual_seed(0)).double()


@settings(max_examples=15, deadline=None)
@given(
    before=st.integers(1, 4),
    more=st.integers(0, 5),
    sums=st.sampled_from(["einsum", "linear"]),
    classes=st.integers(1, 2),
    seed=st.integers(0, 9),
)
def test_the_distribution_stays(before: int, more: int, sums: str, classes: int, seed: int):
    graph = random_trees(4, depth=2, replicas=2, seed=seed)
    model = Einet(
        graph, Bernoulli(), before, sums=sums, num_classes=classes, seed=seed, dtype=torch.float64
    )
    grown = grow(model, before + more, seed)
    assert grown.num_sums == before + more
    states = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 4)
    torch.testing.assert_close(
        grown.class_log_prob(states), model.class_log_prob(states), rtol=1e-12, atol=1e-12
    )
    assert abs(float(grown.log_prob(states).exp().sum()) - 1) < 1e-12


@pytest.mark.parametrize("family", [Gaussian(), Categorical(2)])
def test_other_families_shared_regions_and_leaves_of_their_own_number(family: object):
    graph = poon_domingos((2, 2), delta=1)
    model = Einet(graph, family, 3, num_leaves=2, dtype=torch.float64).initialize(X)  # type: ignore[arg-type]
    grown = grow(model, 7)
    assert (grown.num_leaves, grown.initialized) == (2, True)
    torch.testing.assert_close(grown.log_prob(X), model.log_prob(X), rtol=1e-12, atol=1e-12)
    # Bounds of leaves that came from the data are the same, too.
    hyper = [
        [group.get_buffer(name) for group in each.leaf.family_groups for name in group.raw_hyper]
        for each in (model, grown)
    ]
    for one, other in zip(*hyper, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def test_copies_part_and_the_likelihood_rises():
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randint(4, (300, 1), generator=generator)
    centre = torch.rand(4, 6, generator=generator).double()
    x = (torch.rand(300, 6, generator=generator).double() < centre[hidden[:, 0]]).double()
    graph = einet.chow_liu(x)
    small = Einet(graph, Bernoulli(), 2, sums="linear", dtype=torch.float64).initialize(x)
    einet.fit(small, x, epochs=30, optimizer=einet.EM(), progress=False)
    large = grow(small, 4)
    before = float(large.log_prob(x).mean())
    assert before == pytest.approx(float(small.log_prob(x).mean()), abs=1e-12)
    einet.fit(large, x, epochs=30, optimizer=einet.EM(), progress=False)
    assert float(large.log_prob(x).mean()) > before + 1e-3
    stored = large.leaf.leaf_blocks[0].stored.detach()
    assert not torch.allclose(stored[:2], stored[2:], atol=1e-3)


def test_bad_arguments():
    model = Einet(random_trees(2, 1, 1), Bernoulli(), 3)
    with pytest.raises(ValueError, match="num_sums must be at least 3"):
        grow(model, 2)
    with pytest.raises(TypeError, match="model must be an Einet, got Mixture"):
        grow(einet.Mixture([model, grow(model, 3)]), 4)
