"""Which numbers of a column are spikes, and which are categories."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einet import Table, TableModel
from einet.tables.columns import Number, Spiked


def coding_of(values: np.ndarray) -> Number | Spiked:
    coding = Table.of(pd.DataFrame({"a": values})).coding("a")
    assert isinstance(coding, Number | Spiked)
    return coding


def spikes_of(values: np.ndarray) -> list[float]:
    coding = coding_of(values)
    return coding.spikes.tolist() if isinstance(coding, Spiked) else []


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), decimals=st.sampled_from([0, 1, 3]))
def test_a_smooth_column_has_none(seed: int, decimals: int):
    generator = np.random.default_rng(seed)
    # Of a thousand numbers with some three rows each, one may have a dozen by chance.
    assert len(spikes_of(generator.normal(0, 300, 5000).round(decimals))) <= 1
    assert spikes_of(generator.normal(0, 300, 5000)) == []


def test_heaps_on_a_grid_are_spikes_however_small_they_are():
    generator = np.random.default_rng(0)
    payments = generator.gamma(2.0, 4000.0, 20_000).round()
    heaps = {1000.0: 600, 5000.0: 100, 12_345.0: 25}
    at = 0
    for value, count in heaps.items():
        payments[at : at + count] = value
        at += count
    assert spikes_of(payments) == list(heaps)


def test_numbers_that_lie_on_few_points_of_their_grid_are_spikes():
    # Wind is measured in multiples of 0.447: neighbours among its values are far from one another.
    generator = np.random.default_rng(0)
    speeds = np.round(0.447 * generator.integers(1, 40, 20_000), 2)
    speeds[:2000] = np.round(generator.gamma(3.0, 30.0, 2000), 2)
    found = spikes_of(speeds)
    assert set(np.round(0.447 * np.arange(1, 40), 2)) <= set(found)
    assert len(found) < 60


def test_without_a_grid_every_number_that_repeats_is_a_spike():
    generator = np.random.default_rng(0)
    rates = generator.random(3000)
    rates[:60] = 1 / 3
    rates[60:80] = 1 / 7
    rates[80:85] = 1 / 11  # too few to tell
    assert spikes_of(rates) == [1 / 7, 1 / 3]


def test_small_counts_are_spikes_of_a_column_of_many():
    counts = np.random.default_rng(0).geometric(0.02, 12_000).astype(np.float64)
    found = spikes_of(counts)
    shares = {value: (counts == value).mean() for value in found}
    assert 1.0 in found
    assert min(shares.values()) >= 0.01


def test_draws_stay_within_what_was_seen_and_densities_go_beyond():
    values = np.random.default_rng(0).lognormal(0, 2, 2000)
    number = coding_of(values)
    assert isinstance(number, Number)
    far = number.within_seen(np.array([[-30.0], [0.0], [30.0], [np.nan]]))
    drawn = number.decode(far)
    assert drawn[:3] == pytest.approx([values.min(), drawn[1], values.max()])
    assert values.min() < drawn[1] < values.max()
    assert np.isnan(drawn[3])
    assert np.isfinite(number.log_slope(np.array([100 * values.max()]))).all()
    again = Number.from_dict(number.to_dict())
    assert again.seen == number.seen
    assert Number(number.scale).within_seen(np.array([[30.0]])) == 30.0


@pytest.mark.parametrize("seen", [[1.0], [2.0, 1.0], [0.0, float("inf")], ["a", "b"]])
def test_what_a_file_says_was_seen_is_checked(seen: list):
    number = coding_of(np.random.default_rng(0).random(200))
    with pytest.raises((ValueError, TypeError)):
        Number.from_dict({**number.to_dict(), "seen": seen})


@pytest.mark.parametrize("kind", ["categories", "ordered"])
def test_numbers_that_a_user_calls_categories_have_no_mean(kind: str):
    frame = pd.DataFrame({"code": [0.0, 1.0, 2.0, None] * 20})
    table = Table.of(frame, columns={"code": kind})
    assert "categories: 0.0, 1.0, 2.0" in repr(table)
    assert Table.from_dict(table.to_dict()).to_dict() == table.to_dict()
    assert table.decode(table.encode(frame)).equals(frame)
    filled = TableModel.fit(frame, {"code": kind}, epochs=2).impute(frame)
    assert set(filled["code"]) == {0.0, 1.0, 2.0}
    assert filled["code"].dtype == np.float64
