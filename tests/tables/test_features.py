"""Rows as points: what has an order keeps it, spikes and states among numbers too."""

import numpy as np
import pandas as pd

from einet import Table
from einet.tables.features import features_of


def test_order_is_kept_and_variance_is_one():
    generator = np.random.default_rng(0)
    gains = np.where(generator.random(500) < 0.6, 0.0, generator.gamma(2.0, 500.0, 500))
    frame = pd.DataFrame(
        {
            "gain": gains,
            "age": generator.integers(20, 24, 500),
            "job": generator.choice(["a", "b", "c"], 500),
        }
    )
    frame.loc[:9, "gain"] = np.nan
    table = Table.of(frame)
    assert table.num_variables == 4
    features = features_of(table, table.encode(frame))
    assert features.shape == (500, 1 + 1 + 3)
    known = ~frame["gain"].isna().to_numpy()
    order = np.argsort(gains[known], kind="stable")
    assert (np.diff(features[known, 0][order]) >= -1e-12).all()
    assert len(np.unique(features[known & (gains == 0), 0])) == 1
    assert (features[~known][:, 0] == 0).all()
    assert len(np.unique(features[:, 1])) == 4
    np.testing.assert_allclose(features[:, 2:].var(0).sum(), 1)
    np.testing.assert_allclose(features[:, :2].var(0), 1)


def test_a_column_that_is_missing_throughout_is_at_the_mean():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0] * 10, "b": ["x", "y", "x"] * 10})
    table = Table.of(frame)
    absent = table.encode(frame[["a"]])
    assert (features_of(table, absent)[:, 1:] == 0).all()
