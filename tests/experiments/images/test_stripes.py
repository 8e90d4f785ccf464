"""Jumps at the borders of leaves."""

from __future__ import annotations

import pytest
import torch

import einet
from einet.data.images import ArrayImages
from einet.imaging import Pixels
from experiments.images.settings import Settings
from experiments.images.stripes import borders, stripes, stripes_of
from experiments.images.structure import recipe
from tests.experiments.images.made import images


def test_where_leaves_begin() -> None:
    assert borders(Settings(), 28) == [7, 14, 21]
    assert borders(Settings(delta=(8,)), 32) == [8, 16, 24]
    assert borders(Settings(delta=(8, 4), axes="both"), 16) == [4, 8, 12]
    assert borders(Settings(delta=(5,)), 12) == [5, 10]
    assert borders(Settings(delta=(8, 1)), 32) == []
    assert borders(Settings(structure="chow_liu", clusters=1), 32) == []


def test_even_slopes_and_steps() -> None:
    slope = torch.arange(8.0).view(1, 1, 8, 1).expand(3, 2, 8, 3)
    assert stripes(slope, [4]) == pytest.approx(1.0)
    step = torch.tensor([0, 1, 2, 3, 13, 14, 15, 16.0]).view(1, 1, 8, 1)
    assert stripes(step, [4]) == pytest.approx(10.0)
    assert stripes(-step, [2, 4]) == pytest.approx(5.5)


def test_samples_of_independent_leaves() -> None:
    """Leaves next to each other that know nothing of one another."""
    settings = Settings(delta=(2,), clusters=1)
    x = torch.from_numpy(images(200, (4, 4, 1), seed=0))
    # Each image is of one grey value, so that neighbours differ in noise only.
    x = x[:, :1, :1].expand(x.shape) // 2 + x % 4
    test = ArrayImages(x.numpy())
    pixels = Pixels((4, 4, 1))
    made = recipe(settings)
    model = einet.Einet(made.graph((4, 4, 1)), made.leaves(), num_sums=8, seed=0)
    model.initialize(pixels.to_model(test.tensor()), seed=0)
    found = stripes_of(model, settings, pixels, test)
    assert found["stripes"] > 2
    assert found["stripes_of_test_images"] == pytest.approx(1.0, abs=0.2)
    assert stripes_of(model, Settings(structure="chow_liu"), pixels, test) == {}
