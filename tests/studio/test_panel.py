"""Bins of one column: few, readable, and between the points of a grid."""

from __future__ import annotations

import numpy as np

from einet.studio.panel import NUM_BINS, edges_of
from einet.tables.columns import Number
from einet.tables.monotone import MonotoneMap


def test_edges_are_few_and_hold_what_they_should():
    rng = np.random.default_rng(0)
    for cells, decimals in (
        (rng.normal(1e6, 1e5, 400), None),
        (rng.integers(0, 7, 400) * 1.0, 0),
        (rng.integers(-999, 99_999, 400) * 1.0, 0),
        ((rng.gamma(2, 3, 400)).round(2), 2),
        (rng.integers(0, 50, 400) * 100.0, -2),
    ):
        number = Number.fit(cells, decimals=decimals)
        edges = edges_of(number, float(cells.min()), float(cells.max()))
        assert 2 <= len(edges) <= NUM_BINS + 2
        assert edges[0] <= cells.min()
        assert edges[-1] >= cells.max()
        if decimals is not None:
            halves = np.array(edges) / number.step - 0.5
            assert np.allclose(halves, halves.round(), atol=1e-6)
    same = Number(MonotoneMap.fit(np.array([1.0, 1.0, 2.0])), None, (1.0, 1.0))
    assert len(edges_of(same, 1.0, 1.0)) == NUM_BINS + 1
