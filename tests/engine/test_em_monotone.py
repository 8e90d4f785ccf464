"""EM never falls, whatever the rows: every family, from the ends of its support to the middle."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import einet
from tests.extremes import KINDS, Kind, climb


def values(kind: Kind) -> st.SearchStrategy[float]:
    """Values of the support, the ends of it more often than not."""
    named = st.sampled_from([float(value) for value in (*kind.usual, *kind.extreme)])
    most = kind.family.largest
    match kind.family:
        case einet.Gaussian():
            return named | st.floats(-most, most)
        case einet.Exponential():
            return named | st.floats(0, most)
        case einet.Gamma() | einet.Beta():
            return named | st.floats(0, most, exclude_min=True, exclude_max=most == 1)
        case einet.Poisson():
            return named | st.integers(0, int(most)).map(float)
        case _:
            return named


@st.composite
def tables(draw: st.DrawFn, kind: Kind) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of two columns, a few of them missing, with weights."""
    cell = values(kind) | st.just(math.nan)
    rows = draw(st.lists(st.tuples(cell, cell), min_size=2, max_size=8))
    weight = st.sampled_from([1.0, 1.0, 1e-9, 1e9, 0.0])
    weights = draw(st.lists(weight, min_size=len(rows), max_size=len(rows)))
    if not any(weights):
        weights[0] = 1.0
    return torch.tensor(rows, dtype=torch.float64), torch.tensor(weights, dtype=torch.float64)


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=5, deadline=None)
@given(data=st.data(), dtype=st.sampled_from([torch.float32, torch.float64]), entries=st.just(2))
def test_it_never_falls(name: str, data: st.DataObject, dtype: torch.dtype, entries: int):
    kind = KINDS[name]
    x, weights = data.draw(tables(kind))
    graph = einet.random_trees(2, depth=1, replicas=2)
    model = einet.Einet(graph, kind.family, entries, dtype=dtype)
    if data.draw(st.booleans(), label="initialised"):
        model.initialize(x)
    climb(model, x, weights, [kind, kind], steps=3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("outlier", [1e12, 1e18, 1e30])
@pytest.mark.parametrize("name", ["Gaussian", "Gamma", "Exponential"])
def test_one_value_far_out(name: str, outlier: float, dtype: torch.dtype):
    kind = KINDS[name]
    x = torch.rand(200, 3, generator=torch.manual_seed(0), dtype=torch.float64) + 0.5
    x[17, 1] = outlier
    for initialised in (True, False):
        model = einet.Einet(einet.random_trees(3, 1, 2), kind.family, 4, dtype=dtype)
        if initialised:
            model.initialize(x)
        climb(model, x, torch.ones(200, dtype=torch.float64), [kind] * 3, steps=8)


def times(rows: int, seed: int = 0) -> torch.Tensor:
    """Times in seconds since 1970, within a few milliseconds of each other."""
    noise = torch.randn(rows, 3, generator=torch.manual_seed(seed), dtype=torch.float64)
    return 1.7e9 + 1e-3 * noise


@pytest.mark.parametrize("start", ["initialised", "random", "other rows"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_milliseconds_beside_a_time(start: str, dtype: torch.dtype):
    """A model of one density: the sample's mean and variance, to the digits of its type."""
    x = times(500)
    family = einet.Gaussian(min_variance=1e-12)
    model = einet.Einet(einet.random_trees(3, 1, 1), family, 1, dtype=dtype)
    if start != "random":
        model.initialize(x if start == "initialised" else x - 1.7e9)
    ones = torch.ones(500, dtype=torch.float64)
    climb(model, x, ones, [KINDS["Gaussian, sharp"]] * 3, steps=6)
    if dtype == torch.float32 and start != "initialised":
        # Means are kept in units of other data, in which float32 has one every 128 seconds; the
        # variance makes up for what is missing.
        for block in model.leaf.leaf_blocks:
            mean, variance = block.family.mean(block.stored.double()), block.stored.double()[..., 1]
            assert ((mean - 1.7e9).abs() <= 64).all()
            deviation = variance.sqrt() * block.family.hyper["scale"]
            torch.testing.assert_close(deviation, (mean - x.mean()).abs(), rtol=1e-2, atol=2e-3)
        return
    centred = x - 1.7e9
    mean, variance = centred.mean(0), centred.var(0, correction=0)
    expected = torch.distributions.Normal(mean, variance.sqrt()).log_prob(centred).sum(1)
    found = model.log_prob(x).double()
    # Values themselves are 2e-7 apart, which is 2e-4 deviations.
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-3)
