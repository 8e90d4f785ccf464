"""Models of brightness and differences of colours, from bytes to pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from einet.imaging import measure
from einet.imaging.pixels import load_with_pixels
from experiments.images import panels, train
from experiments.images.datasets import Sets
from experiments.images.settings import Settings

SMALL = Settings(
    delta=(16,),
    colour="ycocg",
    clusters=1,
    num_sums=2,
    epochs=2,
    batch_size=10,
    train_rows=20,
    valid_rows=10,
    initial="clusters",
)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"structure": "chow_liu", "sums": "linear", "epochs": 1},
        {"clusters": 2, "initial": "rows", "refine_epochs": 1, "batch_size": 5},
    ],
    ids=["grid", "tree", "clusters"],
)
def test_trained_measured_drawn_and_saved(root: Path, tmp_path: Path, changed: dict):
    settings = Settings(**{**vars(SMALL), **changed})
    parts = Sets("svhn", root / "svhn").parts(settings)
    trained = train.train(settings, parts, "cpu", None, progress=False)
    model, pixels, record = trained.model, trained.pixels, trained.record
    assert record["bits_method"] == "integrated"
    assert record["bits_per_dim"] == measure(model, parts.test, colour="ycocg").bits
    assert record["test_ll"] > measure(model, parts.test).nats  # as if it were of R, G and B
    # Curves and what comes of them are in the same units, or have another name.
    history = record["history"]
    assert list(history) == ["train_rounded", "valid"]
    assert history["valid"][record["best_epoch"]] == pytest.approx(record["valid_ll"], abs=0.05)
    panels.draw(model, pixels, parts.test, tmp_path)
    # Bytes there and back: what is real is shown as it is.
    shown = np.asarray(Image.open(tmp_path / "real.png").convert("RGB"))
    zoom, edge = 2, 64
    first = parts.test.tensor()[0].view(32, 32, 3).numpy()
    at = [shown[m : m + edge : zoom, m : m + edge : zoom] for m in range(8)]  # past a margin
    assert any(np.array_equal(part, first) for part in at)
    path = tmp_path / "model.einet"
    model.save(path, pixels.metadata())
    again, told = load_with_pixels(path)
    assert told == pixels
    assert measure(again, parts.test, colour=told.colour).bits == record["bits_per_dim"]


def test_only_with_gaussian_leaves():
    with pytest.raises(ValueError, match="colour must be rgb with family=categorical, got ycocg"):
        Settings(colour="ycocg", family="categorical")
