"""Pairwise mutual information against sums over the states of one pair at a time."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from einet.data.batch import as_batch
from einet.structures import equal_frequency, mutual_information
from tests.budgets import limit


def by_definition(
    x: np.ndarray, known: np.ndarray, weights: np.ndarray, smoothing: float
) -> np.ndarray:
    """Σ p log(p / (p p')), pair by pair and state by state."""
    variables = x.shape[1]
    states = [int(x[known[:, v], v].max(initial=0)) + 1 for v in range(variables)]
    result = np.zeros((variables, variables))
    for u in range(variables):
        for v in set(range(variables)) - {u}:
            p = np.full((states[u], states[v]), smoothing / (states[u] * states[v]))
            for row in np.flatnonzero(known[:, u] & known[:, v]):
                p[int(x[row, u]), int(x[row, v])] += weights[row]
            if p.sum() == 0:
                continue
            p /= p.sum()
            for (a, b), value in np.ndenumerate(p):
                if value > 0:
                    result[u, v] += value * math.log(value / (p[a].sum() * p[:, b].sum()))
    return result


@given(
    st.integers(1, 12), st.integers(1, 6), st.integers(1, 4), st.integers(0, 2**31),
    st.sampled_from([0.0, 0.3, 1.0, 5.0]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_agrees_with_the_definition(
    rows: int, variables: int, states: int, seed: int, smoothing: float, holes: bool, weigh: bool
):
    generator = np.random.default_rng(seed)
    # Columns differ in their number of states; some are constant.
    x = generator.integers(0, generator.integers(1, states + 1, variables), (rows, variables))
    known = generator.random(x.shape) < (0.6 if holes else 1.1)
    weights = generator.random(rows) * 3 if weigh else np.ones(rows)
    expected = by_definition(x, known, weights, smoothing)
    options = {"weights": weights if weigh else None, "smoothing": smoothing}
    found = mutual_information(x, known, **options)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)
    assert torch.equal(found, found.T)
    assert bool((found >= 0).all())
    gaps = np.where(known, x, np.nan)
    assert torch.equal(mutual_information(gaps, **options), found)
    batch = as_batch(x, variables, known, weights=options["weights"])
    assert torch.equal(mutual_information(batch, smoothing=smoothing), found)


@pytest.mark.parametrize("states", [3, 30])
def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch, states: int):
    x = torch.randint(states, (200, 11), generator=torch.manual_seed(0), dtype=torch.uint8)
    whole = mutual_information(x)
    for name in ("one-hot rows", "pair counts", "pair tables", "pair codes"):
        limit(monkeypatch, name, 2048)
    torch.testing.assert_close(mutual_information(x), whole, rtol=0, atol=1e-12)


def test_whole_weights_count_rows():
    x = torch.randint(2, (50, 5), generator=torch.manual_seed(1))
    times = torch.randint(4, (50,), generator=torch.manual_seed(2))
    repeated = mutual_information(x.repeat_interleave(times, 0))
    torch.testing.assert_close(mutual_information(x, weights=times), repeated, rtol=0, atol=1e-12)


@pytest.mark.parametrize("states", [2, 20])
def test_large_and_broken_weights_are_added_up(states: int):
    x = torch.randint(states, (50, 4), generator=torch.manual_seed(1))
    times = torch.randint(4, (50,), generator=torch.manual_seed(2))
    expected = mutual_information(x, weights=times)
    # So many that rows are not repeated for them.
    hundred = mutual_information(x, weights=100 * times, smoothing=100.0)
    torch.testing.assert_close(hundred, expected, rtol=0, atol=1e-12)
    third = mutual_information(x, weights=times.double() / 3, smoothing=1 / 3)
    torch.testing.assert_close(third, expected, rtol=0, atol=1e-12)


@given(
    st.integers(1, 40), st.integers(1, 5), st.sampled_from([3, 30, 256]), st.integers(2, 40),
    st.integers(0, 2**31), st.booleans(), st.booleans(),
)  # fmt: skip
def test_levels_are_states(
    rows: int, variables: int, states: int, levels: int, seed: int, holes: bool, weigh: bool
):
    generator = np.random.default_rng(seed)
    x = generator.integers(0, states, (rows, variables))
    x[:, 1:] = np.where(generator.random((rows, variables - 1)) < 0.5, x[:, :1], x[:, 1:])
    known = generator.random(x.shape) < (0.6 if holes else 1.1)
    weights = generator.integers(0, 3, rows) + 0.5 if weigh else np.ones(rows)
    coded = equal_frequency(x, known, levels=levels, weights=weights)
    expected = by_definition(coded.x.numpy(), known, weights, 0.3)
    options = {"weights": weights if weigh else None}
    found = mutual_information(x, known, levels=levels, smoothing=0.3, **options)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)
    # Whoever tells fewer states apart never learns more.
    few, all_states = (
        mutual_information(x, known, levels=number, smoothing=0.0, **options)
        for number in (levels, None)
    )
    assert bool((few <= all_states + 1e-12).all())


def test_levels_go_by_the_number_of_rows():
    x = torch.randint(256, (3000, 3), generator=torch.manual_seed(0))
    assert torch.equal(mutual_information(x, levels="auto"), mutual_information(x, levels=16))
    # Whatever has no more states stays as it is.
    few = x // 16
    assert torch.equal(mutual_information(few, levels="auto"), mutual_information(few))


def test_numbers_of_any_kind_in_levels():
    x = torch.randn(400, 3, generator=torch.manual_seed(0), dtype=torch.float64)
    x[:, 1] = x[:, 0] ** 3
    found = mutual_information(1e6 * x - 5, levels=8, smoothing=0.0)
    assert float(found[0, 1]) == pytest.approx(math.log(8))
    assert float(found[0, 2]) < 0.2


def test_constant_variables_tell_nothing():
    x = torch.randint(2, (30, 4), generator=torch.manual_seed(3))
    x[:, 1], x[:, 2] = 0, 1
    found = mutual_information(x, smoothing=0.0)
    assert bool((found[1:3].abs() < 1e-12).all())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32, torch.bool])
def test_takes_all_types(dtype: torch.dtype):
    x = torch.randint(2, (40, 3), generator=torch.manual_seed(4))
    assert torch.equal(mutual_information(x.to(dtype)), mutual_information(x))


def test_256_states():
    x = torch.arange(256).repeat(2).unsqueeze(-1).repeat(1, 2)
    assert float(mutual_information(x, smoothing=0.0)[0, 1]) == pytest.approx(math.log(256))


@pytest.mark.parametrize("bad", [0.5, -1.0, 256.0, math.inf])
def test_values_that_are_no_states(bad: float):
    x = torch.zeros(3, 2)
    x[1, 1] = bad
    with pytest.raises(ValueError, match=r"whole numbers from 0 to 255, but data\[1, 1\] is .*bin"):
        mutual_information(x)
    x[1, 1] = math.nan
    mutual_information(x)


def test_arguments():
    x = torch.zeros(3, 2)
    with pytest.raises(ValueError, match=r"shape \[rows, variables\], got \[3\]"):
        mutual_information(x[:, 0])
    with pytest.raises(ValueError, match=r"shape \[rows, variables\], got \[3, 0\]"):
        mutual_information(x[:, :0])
    with pytest.raises(ValueError, match="at least one row"):
        mutual_information(x[:0])
    for bad in (1, 257, -3):
        with pytest.raises(ValueError, match='levels must be an integer from 2 to 256, "auto" or'):
            mutual_information(x, levels=bad)
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="smoothing must be a number >= 0"):
            mutual_information(x, smoothing=bad)
