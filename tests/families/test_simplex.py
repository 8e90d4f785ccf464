import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from einet.families.simplex import floored_simplex


def solve_by_sorting(totals: np.ndarray, floors: np.ndarray) -> np.ndarray:
    """The same problem for one row: try every number of entries at their floors."""
    positive = floors > 0
    ratio = np.where(positive, totals / np.where(positive, floors, 1), math.inf)
    order = np.argsort(ratio)
    for held in range(len(totals)):
        free = order[held:]
        u = (1 - floors[order[:held]].sum()) / totals[free].sum()
        w = floors.copy()
        w[free] = totals[free] * u
        if (w[free] >= floors[free] - 1e-13).all():
            return w
    raise AssertionError("no solution")


totals = st.one_of(st.just(0.0), st.floats(1e-8, 1.0), st.sampled_from([1e-12, 1e-3, 1.0, 1e6]))


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[float], list[float]]:
    counts = draw(st.lists(totals, min_size=1, max_size=8).filter(lambda n: sum(n) > 0))
    shares = draw(
        st.lists(st.just(0.0) | st.floats(1e-3, 1), min_size=len(counts), max_size=len(counts))
    )
    filled = draw(st.sampled_from([0.0, 1e-6, 0.3, 0.99]))
    size = max(sum(shares), 1e-3)
    return counts, [filled * share / size for share in shares]


@given(problems())
@example(([0.0, 0.0, 1.0], [0.5, 0.25, 0.0]))
@example(([1.0, 2.0, 4.0, 8.0, 16.0], [0.19] * 5))
def test_agrees_with_brute_force(problem):
    counts, floors = (np.array(values) for values in problem)
    expected = solve_by_sorting(counts, floors)
    w = floored_simplex(torch.tensor(counts), torch.tensor(floors)).numpy()
    np.testing.assert_allclose(w, expected, rtol=1e-9, atol=1e-15)
    assert (w >= floors).all()
    assert w.sum() == pytest.approx(1, abs=1e-14)


@given(problems(), st.integers(0, 2**32 - 1))
def test_nothing_feasible_is_likelier(problem, seed):
    counts, floors = (np.array(values) for values in problem)
    w = floored_simplex(torch.tensor(counts), torch.tensor(floors)).numpy()
    draws = np.random.default_rng(seed).dirichlet(np.full(len(w), 0.3), 200)
    others = floors + (1 - floors.sum()) * draws
    others = np.concatenate([others, 0.999 * w + 0.001 * others])

    def likelihood(w):
        return np.where(counts > 0, counts * np.log(np.maximum(w, 1e-300)), 0).sum(-1)

    assert (likelihood(others) <= likelihood(w) + 1e-9 * counts.sum()).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("filled", [0.0, 1e-6, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("rounds", [None, 0, 1, 16])
def test_rows_sum_to_one_above_their_floors(dtype, filled, rounds):
    generator = torch.Generator().manual_seed(0)
    counts = torch.randn(3, 50, 400, generator=generator, dtype=dtype).mul(4).exp()
    floor = filled / 400
    w = floored_simplex(counts, floor, rounds)
    assert w.dtype == dtype
    assert (w >= torch.tensor(floor, dtype=dtype)).all()
    ones = torch.ones(3, 50, dtype=torch.float64)
    torch.testing.assert_close(
        w.double().sum(-1), ones, rtol=1e-5 if w.dtype.itemsize == 4 else 1e-13, atol=0
    )
    if rounds in (None, 16):
        again = floored_simplex(w, floor)
        torch.testing.assert_close(again, w, rtol=1e-5 if w.dtype.itemsize == 4 else 1e-12, atol=0)
    if rounds == 16:
        torch.testing.assert_close(w, floored_simplex(counts, floor))


def test_the_scale_of_the_totals_does_not_matter():
    counts = torch.tensor([0.0, 1.0, 2.0, 5.0])
    expected = floored_simplex(counts, 0.1)
    for scale in (1e-37, 1e-20, 1e20, 1e37):
        torch.testing.assert_close(floored_simplex(counts * scale, 0.1), expected)


def test_a_row_without_totals_follows_its_floors():
    nothing = torch.zeros(2, 4)
    assert torch.equal(floored_simplex(nothing, 0.1), torch.full((2, 4), 0.25))
    assert torch.equal(floored_simplex(nothing, 0.0), torch.full((2, 4), 0.25))
    floors = torch.tensor([0.1, 0.1, 0.2, 0.0])
    expected = torch.tensor([0.25, 0.25, 0.5, 0.0]).expand(2, 4)
    torch.testing.assert_close(floored_simplex(nothing, floors), expected)


def test_nan_comes_through_without_a_loop():
    w = floored_simplex(torch.tensor([[math.nan, 1.0], [1.0, 1.0]]), 0.1)
    assert w[0].isnan().all()
    assert torch.equal(w[1], torch.tensor([0.5, 0.5]))


def test_floors_broadcast():
    counts = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    per_row = floored_simplex(counts, torch.tensor([[0.1], [0.4]]))
    torch.testing.assert_close(per_row, torch.tensor([[0.1, 0.9], [0.4, 0.6]]))
    torch.testing.assert_close(floored_simplex(counts, torch.tensor(0.1))[0], per_row[0])
    assert floored_simplex(torch.zeros(0, 3), 0.1).shape == (0, 3)


@pytest.mark.parametrize("floor", [0.51, torch.tensor(0.51), torch.tensor([[0.4], [0.51]])])
def test_floors_that_leave_no_room_are_named(floor):
    with pytest.raises(ValueError, match=r"floor leaves no room.* add up to 1\.02"):
        floored_simplex(torch.ones(2, 2), floor)


@pytest.mark.parametrize("floor", [-0.1, torch.tensor([-0.1, 0.2]), math.nan])
def test_floors_that_are_no_probabilities_are_named(floor):
    with pytest.raises(ValueError, match="floor must not be negative"):
        floored_simplex(torch.ones(2, 2), floor)
