"""What is said of a model after its training."""

import re

import numpy as np
import pytest

import einet
from einet.cli.image_report import report
from einet.data.images import ArrayImages
from einet.imaging import Pixels, Recipe

SHAPE = (16, 8, 1)


def noise(count: int) -> ArrayImages:
    pixels = np.random.default_rng(count).integers(0, 256, (count, *SHAPE), dtype=np.uint8)
    return ArrayImages(pixels)


def trained(recipe: Recipe, images: ArrayImages, clusters: int) -> einet.ClusteredEinet:
    model = recipe.model(SHAPE, clusters)
    model.fit(images, epochs=4, optimizer=recipe.learner(), progress=False)
    return model


def test_some_of_many_images_are_measured(capsys: pytest.CaptureFixture):
    images = noise(300)
    model = trained(Recipe(num_sums=2, family="binomial"), images, 1)
    report(model, Pixels(SHAPE), images, noise(30), seed=0)
    printed = capsys.readouterr()
    number = r"-?[\d.]+ ± [\d.]+"
    line = rf"{number} nats \(log-probability\), {number} bits per dimension"
    assert re.search(rf"^training images \(250 of them\): {line}$", printed.out, re.MULTILINE)
    assert re.search(rf"^held-out images: {line}$", printed.out, re.MULTILINE)
    assert printed.err == ""


def test_copies_are_warned_of(capsys: pytest.CaptureFixture):
    images = noise(10)
    model = trained(Recipe.paper(num_sums=4, delta=4), images, 10)
    report(model, Pixels(SHAPE), images, None, seed=0)
    printed = capsys.readouterr()
    assert "held-out" not in printed.out
    assert printed.err.startswith("einet: warning: the model has memorised some of its images: ")
    assert "0% are those of another" in printed.err
