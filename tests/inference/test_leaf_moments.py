"""Moments of leaf densities are made once, for as long as nothing about them changes."""

from __future__ import annotations

import pytest
import torch

import einet
from einet.inference import leaf_moments
from tests.layers.test_tree import hidden_tree

SMALL = hidden_tree([0, 1, 1])


def test_moments_of_leaves_are_kept_until_they_change(monkeypatch: pytest.MonkeyPatch):
    model = einet.Einet(SMALL, einet.Gaussian(), 2, sums="linear")
    assert leaf_moments._state_of(model.leaf) is None
    monkeypatch.setattr(leaf_moments, "_is_kept", lambda leaf: True)
    first = leaf_moments.moments_of(model.leaf)
    assert leaf_moments.moments_of(model.leaf) is first
    with torch.no_grad():
        model.leaf.leaf_blocks[0].stored.add_(1.0)
    second = leaf_moments.moments_of(model.leaf)
    assert second is not first
    torch.testing.assert_close(second.about, first.about + 1.0)
    model.initialize(torch.randn(20, model.num_variables) * 3)
    assert leaf_moments.moments_of(model.leaf) is not second
    with einet.unconstrained(model):
        assert leaf_moments._state_of(model.leaf) is None
