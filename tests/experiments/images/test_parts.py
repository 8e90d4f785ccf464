"""Settings, variants and data sets of the experiment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import einet
from einet.data.images import array
from einet.imaging import measure
from einet.imaging.pictures import MISSING
from experiments.images import panels, train
from experiments.images.datasets import Sets
from experiments.images.settings import Settings
from experiments.images.variants import DATASETS, VARIANTS
from tests.experiments.images.made import images


def test_the_recipe_of_the_paper():
    for name in ("svhn", "celeba"):
        paper = VARIANTS[name]["paper"].settings
        assert (paper.clusters, paper.num_sums, paper.epochs, paper.batch_size) == (
            100,
            40,
            25,
            500,
        )
        assert (paper.first_step, paper.last_step, paper.axes) == (0.5, 0.5, "vertical")
        assert (paper.family, paper.min_variance, paper.max_variance) == ("gaussian", 1e-6, 1e-2)
        assert paper.delta in (None, (8,))
    one = VARIANTS["svhn"]["one"].settings
    assert (one.clusters, one.train_rows, one.valid_rows, one.test_rows) == (1, 9000, 1000, 2000)


def test_variants_differ_and_can_be_made_quick():
    for name in DATASETS:
        settings = [variant.settings for variant in VARIANTS[name].values()]
        assert len(set(settings)) == len(settings)
        for each in settings:
            quick = each.quick()
            assert quick.num_sums <= 8
            assert quick.clusters <= 4
            assert (quick.structure, quick.family) == (each.structure, each.family)


def test_settings_from_text():
    changed = Settings().with_text(
        {"delta": "4,2", "clusters": "1", "patience": "none", "extra": "true", "axes": "both"}
    )
    assert changed == replace(Settings(), delta=(4.0, 2.0), clusters=1, extra=True, axes="both")
    assert changed.differing() == "extra=True delta=(4.0, 2.0) axes=both clusters=1"
    for assignment, message in (
        ({"depht": "3"}, "there is no setting 'depht'"),
        ({"epochs": "many"}, "epochs must be int, got 'many'"),
        ({"delta": "four"}, "delta must be numbers with commas, got 'four'"),
        ({"extra": "1"}, "extra must be bool, got '1'"),
        ({"axes": "none"}, "axes must be one of vertical, both, got none"),
        ({"hide": "0.1"}, "hide must not be set with clusters=100: only for single Einets"),
        ({"finish": "2", "members": "3"}, "finish, members must not be set with clusters=100"),
        ({"clusters": "1", "soften": "2"}, "soften is for Categorical leaves, .* family=gaussian"),
        (
            {"clusters": "1", "soften": "2", "family": "categorical", "finish": "3"},
            "finish would undo it: got soften=2 .* finish=3",
        ),
        ({"members": "0"}, "members must be at least 1, got 0"),
        ({"finish": "-1"}, "finish must be at least 0, got -1"),
        ({"clusters": "0"}, "clusters must be at least 1, got 0"),
        ({"clusters": "1", "refine_epochs": "2"}, "refine_epochs are for mixtures"),
        ({"momentum": "1"}, "momentum must be at least 0 and below 1, got 1"),
        ({"grow_from": "8", "grow_epochs": "2"}, "grow_from must not be set with clusters=100"),
        ({"clusters": "1", "grow_from": "40"}, "grow_from must be .* below num_sums=40, got 40"),
        ({"clusters": "1", "grow_from": "8"}, "grow_epochs must be .* below epochs=25, got 0"),
        ({"grow_epochs": "3"}, "must not be set without grow_from or prune_keep, got 3"),
        (
            {"clusters": "1", "prune_keep": "2", "grow_epochs": "2"},
            "prune_keep must be above 0 and at most 1, got 2",
        ),
        ({"prune_keep": "0.5", "grow_epochs": "2"}, "prune_keep must not be set with clusters="),
        (
            {"clusters": "1", "grow_from": "8", "grow_epochs": "2", "grow_step": "0"},
            "grow_step must be above 0 and at most 1, got 0",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            Settings().with_text(assignment)


def test_which_images_are_for_what(root: Path):
    sets = Sets("mnist", root / "mnist")
    parts = sets.parts(Settings(train_rows=30, valid_rows=20, test_rows=10))
    pixels = torch.from_numpy(images(80, (8, 8), 0)).flatten(1)
    assert torch.equal(parts.train.tensor(), pixels[:30])
    assert parts.valid is not None
    assert torch.equal(parts.valid.tensor(), pixels[30:50])
    assert len(parts.test) == 10
    rest = sets.parts(Settings(valid_rows=20))
    assert (len(rest.train), len(rest.test)) == (60, 60)
    assert sets.parts(Settings()).valid is None
    with pytest.raises(ValueError, match="mnist has 80 training images, but 70 and 20"):
        sets.parts(Settings(train_rows=70, valid_rows=20))
    with pytest.raises(FileNotFoundError, match="svhn: there is no folder"):
        Sets("svhn", root / "none")


def test_extra_images(root: Path):
    sets = Sets("svhn", root / "svhn")
    assert len(sets.parts(Settings(extra=True)).train) == 60
    assert len(sets.parts(Settings()).train) == 40


def test_faces_are_centres_of_64_pixels(root: Path):
    parts = Sets("celeba", root / "celeba").parts(Settings())
    assert (len(parts.train), len(parts.test)) == (18, 2)
    assert parts.train.image_shape == (64, 64, 3)
    face = images(20, (109, 89, 3), 3)[0]
    expected = face[22:86, 12:76]
    np.testing.assert_array_equal(parts.train[0].view(64, 64, 3).numpy(), expected)


def test_faces_with_a_list_of_parts(root: Path):
    lines = "".join(f"{number:06}.png {2 * (number % 2)}\n" for number in range(20))
    (root / "celeba" / "list_eval_partition.txt").write_text(lines)
    parts = Sets("celeba", root / "celeba").parts(Settings())
    assert (len(parts.train), len(parts.test)) == (10, 10)


def test_arrays_are_read_in_place_of_files(root: Path):
    sets = Sets("svhn", root / "svhn")
    array.save(sets.parts(Settings()).train.take(slice(0, 7)), root / "svhn" / "train.npy")
    assert len(Sets("svhn", root / "svhn").parts(Settings()).train) == 7


@pytest.mark.parametrize("clusters", [1, 2])
def test_panels_show_what_they_say(root: Path, tmp_path: Path, clusters: int):
    parts = Sets("mnist", root / "mnist").parts(Settings())
    settings = Settings(clusters=clusters, num_sums=4, epochs=5, batch_size=20, max_variance=0.1)
    trained = train.train(settings, parts, "cpu", tmp_path / "state", progress=False)
    panels.draw(trained.model, trained.pixels, parts.test, tmp_path)
    shown = {name: _tiles(tmp_path / f"{name}.png") for name in panels.PANELS}
    real = parts.test.tensor()[:48].view(-1, 8, 8).numpy()
    np.testing.assert_array_equal(shown["real"][..., 0], real)
    for which, half in (("top", np.s_[:, :4]), ("left", np.s_[:, :, :4])):
        covered, guessed = shown[f"covered-{which}"], shown[f"reconstructed-{which}"][..., 0]
        visible = np.ones_like(real, dtype=bool)
        visible[half] = False
        assert (covered[~visible] == MISSING).all()
        np.testing.assert_array_equal(covered[visible][:, 0], real[visible])
        np.testing.assert_array_equal(guessed[visible], real[visible])
        # Means of leaves have no noise, and continue what can be seen.
        error = np.abs(guessed[~visible].astype(float) - real[~visible])
        assert error.mean() < 60


def _tiles(path: Path) -> np.ndarray:
    """The images of a panel again."""
    picture, zoom = np.asarray(Image.open(path)), 64 // 8
    step = 64 + 2
    rows, columns = picture.shape[0] // step, picture.shape[1] // step
    tiles = [
        picture[2 + r * step : 2 + r * step + 64 : zoom, 2 + c * step : 2 + c * step + 64 : zoom]
        for r in range(rows)
        for c in range(columns)
    ]
    return np.stack(tiles)


@pytest.mark.parametrize(
    "changes",
    [
        {"structure": "random_trees", "depth": 2, "replicas": 2, "initial": "random"},
        {"structure": "chow_liu", "sums": "linear", "levels": 4, "initial": "clusters"},
        {"hide": 0.2, "schedule": "cosine", "last_step": 0.1, "prior_leaves": 1.0, "patience": 1},
        {"clusters": 2, "refine_epochs": 1, "refine_step": 0.1},
        {"structure": "chow_liu", "sums": "linear", "levels": 4, "members": 2, "finish": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("family", ["gaussian", "binomial", "categorical"])
def test_every_kind_of_model_is_trained(root: Path, tmp_path: Path, family, changes):
    start = Settings(clusters=1, num_sums=2, epochs=2, batch_size=20, valid_rows=20, family=family)
    settings = replace(start, **changes)
    parts = Sets("mnist", root / "mnist").parts(settings)
    record = train.train(settings, parts, "cpu", tmp_path / "state", progress=False).record
    for name in ("test_ll", "test_se", "bits_per_dim", "valid_ll", "train_seconds", "peak_mib"):
        assert np.isfinite(record[name]), name
    assert record["settings"] == settings.to_dict()
    assert record["bits_method"] == ("integrated" if family == "gaussian" else "discrete")
    assert record["test_images"] == 60


def test_settings_of_older_records_have_defaults():
    settings = Settings(delta=(8, 4), clusters=1)
    saved = settings.to_dict()
    del saved["momentum"]
    assert Settings.from_dict(saved) == settings


def test_a_small_model_that_grows(root: Path):
    settings = Settings(
        clusters=1, num_sums=5, epochs=3, batch_size=20, valid_rows=20, momentum=0.5
    )
    settings = replace(settings, grow_from=2, grow_epochs=2, grow_step=0.1, prior_sums=0.1)
    settings = replace(settings, prune_keep=0.6)
    parts = Sets("mnist", root / "mnist").parts(settings, test=False)
    trained = train.train(settings, parts, "cpu", None, progress=False)
    record = trained.record
    assert isinstance(trained.model, einet.Einet)
    assert trained.model.num_sums == 5
    assert (record["epochs"], record["changed_after"]) == (3, 2)
    assert len(record["history"]["valid"]) == 3
    assert 0.6 <= record["pruned"]["kept"] / record["pruned"]["of"] < 1
    assert any(bool((weight == 0).any()) for weight in trained.model.circuit.weights)
    assert record["best_epoch"] == 2
    assert settings.quick().num_sums == 5
    assert settings.quick().grow_from == 2


def test_numbers_are_on_one_scale(root: Path, tmp_path: Path):
    settings = Settings(clusters=1, num_sums=2, epochs=2, batch_size=20, valid_rows=20)
    parts = Sets("mnist", root / "mnist").parts(settings)
    trained = train.train(settings, parts, "cpu", tmp_path / "state", progress=False)
    record = trained.record
    assert record["history"]["valid"][record["best_epoch"]] == pytest.approx(
        record["valid_ll"], abs=0.01
    )
    with torch.no_grad():
        rows = trained.model.log_prob(parts.test.tensor()).double() + 64 * np.log(255)
    assert record["test_ll"] == pytest.approx(rows.mean().item())
    # All three parts are measured the same way.
    for name, part in (("train", parts.train), ("valid", parts.valid)):
        assert part is not None
        found = measure(trained.model, part)
        assert (record[f"{name}_ll"], record[f"{name}_bits"]) == (found.nats, found.bits)
    assert isinstance(trained.model, einet.Einet)
