"""Levels against all ways to cut a row of values."""

from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from einet.structures import equal_frequency
from einet.structures.levels import as_levels, sensible_levels
from tests.budgets import limit


def fullest(values: list[int], mass: dict[int, float], level: dict[int, int]) -> float:
    """What the fullest level holds, of those that hold several values."""
    held = {number: [v for v in values if level[v] == number] for number in level.values()}
    return max((sum(mass[v] for v in held[n]) for n in held if len(held[n]) > 1), default=0.0)


def least(values: list[int], mass: dict[int, float], levels: int) -> float:
    """The least that the fullest can hold, over all ways to cut."""
    best = np.inf
    for cuts in range(levels):
        for places in combinations(range(1, len(values)), min(cuts, len(values) - 1)):
            bounds = pairwise([0, *places, len(values)])
            level = {v: n for n, (a, b) in enumerate(bounds) for v in values[a:b]}
            best = min(best, fullest(values, mass, level))
    return best


@given(
    st.integers(1, 30), st.integers(1, 7), st.integers(2, 5), st.integers(0, 2**31),
    st.booleans(), st.booleans(), st.sampled_from([torch.uint8, torch.int64, torch.float64]),
)  # fmt: skip
def test_the_fullest_level_holds_as_few_as_can_be(
    rows: int, states: int, levels: int, seed: int, holes: bool, weigh: bool, dtype: torch.dtype
):
    generator = np.random.default_rng(seed)
    # Beyond the levels, so that nothing stays as it is; some values are much commoner.
    values = np.sort(generator.choice(np.arange(10, 200), states, replace=False))
    x = values[generator.integers(0, states, (rows, 2)) * generator.integers(0, 2, (rows, 2))]
    known = generator.random(x.shape) < (0.6 if holes else 1.1)
    weights = generator.integers(0, 4, rows).astype(float) if weigh else np.ones(rows)
    weights[0] = max(weights[0], 1.0)
    tensor = torch.as_tensor(x).to(dtype)
    found = equal_frequency(
        tensor, torch.as_tensor(known), levels=levels, weights=weights if weigh else None
    )
    for column in range(2):
        counts = known[:, column] & (weights > 0)
        mass, level = {}, {}
        for row in np.flatnonzero(counts):
            value = int(x[row, column])
            mass[value] = mass.get(value, 0.0) + weights[row]
            assert level.setdefault(value, int(found.x[row, column])) == found.x[row, column]
        if not mass:
            continue
        present = sorted(mass)
        in_order = [level[value] for value in present]
        assert in_order == sorted(in_order)
        assert set(in_order) == set(range(max(in_order) + 1))  # none is empty
        assert len(set(in_order)) <= levels
        assert fullest(present, mass, level) == pytest.approx(least(present, mass, levels))
    assert not bool(found.x[~torch.as_tensor(known)].any())


def test_bytes_and_numbers_have_the_same_levels():
    x = torch.randint(256, (500, 6), generator=torch.manual_seed(0)).square() // 256
    x[:, :2] = 255 - x[:, :2]
    expected = equal_frequency(x.to(torch.uint8), levels=9).x
    assert torch.equal(equal_frequency(x, levels=9).x, expected)
    assert torch.equal(equal_frequency(x.double() - 1e9, levels=9).x, expected)


def test_many_values_are_parted_evenly():
    x = torch.randn(1000, 3, generator=torch.manual_seed(0))
    found = equal_frequency(x, levels=7).x
    for column in found.T:
        counts = column.long().bincount()
        assert len(counts) == 7
        assert int(counts.max()) == 143


def test_a_common_value_has_a_level_of_its_own():
    x = torch.zeros(1000, 1)
    x[:300, 0] = torch.arange(300) + 20
    counts = equal_frequency(x, levels=16).x.long().flatten().bincount()
    assert counts.tolist() == [700, *[20] * 15]
    assert equal_frequency(-x, levels=16).x.long().flatten().bincount()[-1] == 700


def test_few_states_stay_as_they_are():
    for dtype in (torch.uint8, torch.int32, torch.float32):
        x = torch.tensor([[0, 3, 5], [2, 3, 0], [2, 1, 9]]).to(dtype)
        found = equal_frequency(x, levels=4).x
        assert found.tolist() == [[0, 3, 1], [2, 3, 0], [2, 1, 2]]


def test_columns_in_parts(monkeypatch: pytest.MonkeyPatch):
    x = torch.randn(50, 9, generator=torch.manual_seed(0)).exp()
    whole = [equal_frequency(each, levels=5).x for each in (x, x.to(torch.uint8))]
    limit(monkeypatch, "levels", 64 * 50 * 2)
    for each, expected in zip((x, x.to(torch.uint8)), whole, strict=True):
        assert torch.equal(equal_frequency(each, levels=5).x, expected)


def test_numbers_of_levels():
    assert [sensible_levels(rows) for rows in (1, 16_384, 65_536, 10**9)] == [16, 16, 32, 256]
    assert (as_levels(None), as_levels("auto"), as_levels(np.int64(9))) == (None, "auto", 9)
    for bad in (1, 300):
        with pytest.raises(ValueError, match="levels must be an integer from 2 to 256, got"):
            equal_frequency([[1.0]], levels=bad)
    for bad in (2.0, True, "many"):
        with pytest.raises(TypeError, match=r'levels must be an integer .*"auto" or None, got'):
            as_levels(bad)
