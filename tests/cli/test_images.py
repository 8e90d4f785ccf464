"""``einet images``: from a folder of images to samples, inpaintings and bits."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import einet
from einet.cli import image_commands
from einet.cli.commands import app
from einet.imaging import hold_out, measure, reading
from einet.imaging.pictures import MISSING

TRAIN = [
    "--size",
    "8x6",
    "--num-sums",
    "2",
    "--epochs",
    "2",
    "--batch-size",
    "20",
    "--device",
    "cpu",
]


def run(*arguments: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["images", *map(str, arguments)])
    assert result.exit_code == code, result.output
    # Errors are wrapped nowhere, and nothing else is in the way.
    return result.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty images of two kinds: bright on the left, or red at the top."""
    root = tmp_path_factory.mktemp("photos")
    generator = np.random.default_rng(0)
    for number in range(60):
        pixels = generator.integers(0, 60, (16, 12, 3))
        if number % 2:
            pixels[:, :6] += 180
        else:
            pixels[:8, :, 0] += 180
        Image.fromarray(pixels.astype(np.uint8)).save(root / f"{number:02}.png")
    return root


@pytest.fixture(scope="module")
def model(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.einet"
    output = run("train", folder, "--output", path, "--clusters", "2", *TRAIN)
    assert "60 images of 8×6×3" in output
    assert "10 of them are held out" in output
    assert re.search(
        r"trained in \S+ s: 2 epochs of each of 2 clusters of 2\d to 2\d images, after", output
    )
    assert "Δ 1.5 (vertical cuts), K 2" in output
    return path


@pytest.fixture
def photo(folder: Path, tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    Image.open(folder / "00.png").resize((6, 8), Image.Resampling.BOX).save(path)
    return path


def pixels(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path)).astype(int)


# -- train ---------------------------------------------------------------------------------------


def test_a_model_remembers_its_images(model: Path):
    metadata = einet.load_metadata(model)
    assert metadata["pixels"] == {"shape": [8, 6, 3], "scale": 1.0, "colour": "rgb"}
    training = metadata["training"]
    assert (training["images"], training["held_out"]) == (50, 10)
    assert (training["recipe"]["num_sums"], training["recipe"]["prior"]) == (2, 1.0)
    loaded = einet.load(model)
    assert isinstance(loaded, einet.ClusteredEinet)
    assert loaded.num_clusters == 2
    # Nothing else is left there.
    assert [path.name for path in model.parent.iterdir()] == ["model.einet"]


def test_few_images_have_few_clusters(folder: Path, tmp_path: Path):
    output = run("train", folder, "--output", tmp_path / "m.einet", "--grey", *TRAIN)
    assert "1 cluster: one for each 500 images" in output
    assert re.search(r"trained in \S+ s: 2 epochs of 50 images\n", output)
    assert "k-means" not in output
    assert einet.load_metadata(tmp_path / "m.einet")["pixels"]["shape"] == [8, 6, 1]


def test_colours_of_brightness_and_differences(folder: Path, photo: Path, tmp_path: Path):
    path = tmp_path / "m.einet"
    more = ["--clusters", "2", "--refine", "1", "--colour", "ycocg"]
    run("train", folder, "--output", path, *TRAIN, *more)
    assert einet.load_metadata(path)["pixels"]["colour"] == "ycocg"
    assert "(integrated)" in run("evaluate", path, folder, "--size", "8x6")
    run("sample", path, "--number", "40", "--leaves", "mean", "--output", tmp_path / "s.png")
    # Red or grey, as the images are: negative differences are not cut off at 0.
    drawn = pixels(tmp_path / "s.png")
    assert drawn[..., 0].max() > 150
    assert abs(drawn[..., 1] - drawn[..., 2]).mean() < 30
    out = tmp_path / "filled"
    run("inpaint", path, photo, "--box", "0,0,8,3", "--output", out)
    assert pixels(out / "mean.png").shape == (8, 6, 3)
    visible = pixels(out / "sample-1.png")[:, 3:] - pixels(photo)[:, 3:]
    assert abs(visible).max() <= 1  # rounded twice
    with_tables = [*TRAIN, "--colour", "ycocg", "--family", "binomial", "--force"]
    output = run("train", folder, "--output", path, *with_tables, code=2)
    assert "colour must be rgb for binomial leaves, got 'ycocg'" in output


def test_other_leaves_and_a_refinement(folder: Path, tmp_path: Path):
    more = ["--clusters", "2", "--refine", "1", "--family", "binomial", "--last-step-size", "0.1"]
    more += ["--axes", "both", "--delta", "4,2"]
    output = run("train", folder, "--output", tmp_path / "m.einet", *TRAIN, *more)
    assert "binomial leaves" in output
    assert re.search(r"refined as a whole: 1 epoch, (the best was|none of them better)", output)
    assert "(discrete)" in run("evaluate", tmp_path / "m.einet", folder, "--size", "8x6")


def test_a_structure_learnt_from_the_images(folder: Path, photo: Path, tmp_path: Path):
    arguments = ["train", folder, "--output", tmp_path / "m.einet", *TRAIN, "--prior", "0.1"]
    output = run(*arguments, "--structure", "chow-liu", "--refine", "1")
    assert "gaussian leaves, Chow–Liu tree, K 2" in output
    assert re.search(r"trained in \S+ s: 2 epochs of 50 images\n", output)
    assert "cluster" not in output
    recipe = einet.load_metadata(tmp_path / "m.einet")["training"]["recipe"]
    assert (recipe["structure"], recipe["max_variance"]) == ("chow_liu", 1.0)
    assert recipe["prior"] == 0.1
    loaded = einet.load(tmp_path / "m.einet")
    assert isinstance(loaded, einet.ClusteredEinet)
    assert loaded.num_clusters == 1
    assert len(loaded.einets[0].graph.leaves) == 8 * 6 * 3
    run("inpaint", tmp_path / "m.einet", photo, "--box", "0,0,4,6", "--output", tmp_path / "filled")
    assert (tmp_path / "filled" / "mean.png").exists()


class Pulled:
    """Ctrl-C in the course of some cluster."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
        from einet.clusters import training as clusters

        real = clusters.ClusterTraining._teach

        def teach(training, lesson, start, watch):
            if training.done == at:
                watch._interrupt.requested = True
            return real(training, lesson, start, watch)

        monkeypatch.setattr(clusters.ClusterTraining, "_teach", teach)


def test_an_interrupted_training_goes_on_to_the_same_model(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    arguments = ["train", folder, "--clusters", "3", *TRAIN]
    run(*arguments, "--output", tmp_path / "whole.einet")
    with monkeypatch.context() as patch:
        Pulled(patch, at=1)
        output = run(*arguments, "--output", tmp_path / "parts.einet", code=130)
    assert "--resume goes on from" in output
    assert not (tmp_path / "parts.einet").exists()
    assert (tmp_path / "parts.einet.checkpoint").exists()
    run(*arguments, "--output", tmp_path / "parts.einet", "--resume")
    whole, parts = (einet.load(tmp_path / f"{name}.einet") for name in ("whole", "parts"))
    for one, other in zip(whole.parameters(), parts.parameters(), strict=True):
        assert one.equal(other)
    assert not (tmp_path / "parts.einet.checkpoint").exists()


def test_a_checkpoint_that_is_not_resumed_is_replaced(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    arguments = ["train", folder, "--clusters", "2", "--output", tmp_path / "m.einet", *TRAIN]
    with monkeypatch.context() as patch:
        Pulled(patch, at=1)
        run(*arguments, "--checkpoint", tmp_path / "state", code=130)
    output = run(*arguments, "--checkpoint", tmp_path / "state")
    assert "--resume would go on" in output
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--kind", "video"], "kind must be one of auto, folder"),
        (["--size", "big"], "size must be HEIGHTxWIDTH"),
        (["--size", "99x99"], "smaller than size=(99, 99)"),
        (["--clusters", "51"], "clusters must be at most 50, the images, got 51"),
        (["--valid-share", "1"], "share must be a number of at least 0 and below 1, got 1.0"),
        (["--recipe", "cake"], "recipe must be default or paper, got 'cake'"),
        (["--recipe", "paper", "--structure", "chow-liu"], "recipe paper is of poon-domingos"),
        (["--axes", "none"], "axes must be one of vertical, both"),
        (["--structure", "tree"], "structure must be poon-domingos or chow-liu, got 'tree'"),
        (["--structure", "chow-liu", "--delta", "4"], "delta and axes are of Poon–Domingos"),
        (["--family", "beta"], "family must be one of gaussian"),
        (["--delta", "-1"], "delta must be positive"),
        (["--delta", "small"], "delta must be numbers, separated by commas, got 'small'"),
        (["--output", "nowhere/m.einet"], "output: there is no folder nowhere"),
        (["--device", "abacus"], "device must be cpu or cuda, got 'abacus'"),
    ],
    ids=str,
)
def test_wrong_arguments_of_train(folder: Path, more: list[str], message: str):
    # The last of two options of one name counts.
    assert message in run("train", folder, *TRAIN, *more, code=2)


def test_the_papers_recipe_is_what_it_was(folder: Path, tmp_path: Path):
    more = ["--recipe", "paper", "--clusters", "3", "--seed", "4"]
    output = run("train", folder, "--output", tmp_path / "m.einet", *TRAIN, *more)
    assert "held" not in output
    images = image_commands.open_set(folder, "auto", "train", "8x6", None, None, None)
    # Settings of the paper, one by one.
    graph = einet.poon_domingos((8, 6), 1.5, [1], 3)
    leaves = einet.Gaussian(1e-6 * 255**2, 1e-2 * 255**2)
    expected = einet.ClusteredEinet(graph, leaves, 2, 3, seed=4)
    learner = einet.StochasticEM(0.5)
    expected.fit(images, epochs=2, batch_size=20, optimizer=learner, seed=4, progress=False)
    trained = einet.load(tmp_path / "m.einet")
    for one, other in zip(trained.parameters(), expected.parameters(), strict=True):
        assert one.equal(other)


def test_training_and_held_out_images_are_measured(folder: Path, tmp_path: Path):
    path = tmp_path / "m.einet"
    output = run("train", folder, "--output", path, *TRAIN, "--clusters", "1")
    opened = image_commands.open_model(path, "cpu")
    images = reading.in_memory(image_commands.open_set(folder, "auto", "", "8x6", None, None, None))
    for name, part in zip(("training", "held-out"), hold_out(images), strict=True):
        assert part is not None
        likelihood = measure(opened.model, part)
        expected = f"{name} images: {likelihood.nats:.2f} ± {likelihood.nats_error:.2f} nats"
        assert expected in output
        assert f"{likelihood.bits:.4f} ± {likelihood.bits_error:.4f} bits per" in output


def test_nothing_is_held_out_where_nothing_shall_be(folder: Path, tmp_path: Path):
    output = run("train", folder, "--output", tmp_path / "m.einet", *TRAIN, "--valid-share", "0")
    assert "2 epochs of 60 images" in output
    assert "training images: " in output
    assert "held-out images" not in output


def test_a_model_that_memorised_its_images_is_warned_of(folder: Path, tmp_path: Path):
    more = ["--recipe", "paper", "--clusters", "60", "--delta", "3"]
    output = run("train", folder, "--output", tmp_path / "m.einet", *TRAIN, *more)
    assert (
        "einet: warning: the model has memorised some of its images: 100% of the strips" in output
    )
    assert "fewer clusters (--clusters) or a larger prior (--prior) help" in output
    more = ["--clusters", "1", "--delta", "3"]
    output = run("train", folder, "--output", tmp_path / "m.einet", *TRAIN, *more, "--force")
    assert "warning" not in output


def test_a_model_is_not_overwritten_unless_that_is_wanted(folder: Path, tmp_path: Path):
    path = tmp_path / "m.einet"
    path.write_text("precious")
    output = run("train", folder, "--output", path, *TRAIN, code=2)
    # Before any image is looked at.
    assert output == f"einet: output: {path} is there already; --force replaces it\n"
    assert path.read_text() == "precious"
    run("train", folder, "--output", path, *TRAIN, "--force")
    assert einet.load(path).num_variables == 8 * 6 * 3
    assert "is a folder; give the name of a file" in run(
        "train", folder, "--output", tmp_path, code=2
    )


def test_digits_without_labels(tmp_path: Path):
    digits = tmp_path / "digits"
    digits.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (40, 6, 5), dtype=np.uint8)
    header = struct.pack(">BBBB3I", 0, 0, 8, 3, *pixels.shape)
    (digits / "train-images-idx3-ubyte").write_bytes(header + pixels.tobytes())
    output = run("train", digits, "--output", tmp_path / "m.einet", *TRAIN[2:])
    assert "40 images of 6×5×1" in output
    assert einet.load(tmp_path / "m.einet").num_variables == 30


@pytest.fixture
def grey_folder(folder: Path, tmp_path: Path) -> Path:
    """The images in grey, but with three channels."""
    root = tmp_path / "grey"
    root.mkdir()
    for path in folder.iterdir():
        Image.open(path).convert("L").convert("RGB").save(root / path.name)
    return root


def test_grey_images_have_one_channel(grey_folder: Path, photo: Path, tmp_path: Path):
    path = tmp_path / "m.einet"
    output = run("train", grey_folder, "--output", path, *TRAIN)
    assert "60 images of 8×6×1" in output
    assert "all of them are grey, and read as one channel; --no-grey reads three" in output
    run("evaluate", path, grey_folder, "--size", "8x6")
    output = run("train", grey_folder, "--output", path, *TRAIN, "--force", "--no-grey")
    assert "60 images of 8×6×3" in output
    assert "all of them are grey" not in output


def test_a_model_of_grey_images_knows_no_colours(
    grey_folder: Path, folder: Path, photo: Path, tmp_path: Path
):
    path, filled = tmp_path / "m.einet", tmp_path / "filled"
    run("train", grey_folder, "--output", path, *TRAIN)
    covered = ["--box", "0,0,4,6", "--samples", "1", "--output", filled]
    output = run("inpaint", path, photo, *covered, code=2)
    assert "photo.png has colours, but the model is of grey images" in output
    assert "(--grey)" in output
    assert not filled.exists()
    run("inpaint", path, photo, *covered, "--grey")
    drawn = pixels(filled / "mean.png")
    assert (drawn[..., 0] == drawn[..., 2]).all()
    output = run("evaluate", path, folder, "--size", "8x6", code=2)
    assert "have colours, but the model is of grey images; --grey reads them as grey" in output
    assert "bits" in run("evaluate", path, folder, "--size", "8x6", "--grey")


def test_folders_that_are_none(tmp_path: Path):
    assert "there is no" in run("train", tmp_path / "nowhere", code=2)
    assert "there are no images" in run("train", tmp_path, code=2)


# -- sample --------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaves", ["mean", "sample"])
def test_samples(model: Path, tmp_path: Path, leaves: str):
    more = ["--number", "6", "--columns", "3", "--zoom", "2", "--leaves", leaves]
    run("sample", model, "--output", tmp_path / "grid.png", *more)
    picture = pixels(tmp_path / "grid.png")
    assert picture.shape == (2 * 18 + 2, 3 * 14 + 2, 3)
    assert picture.std() > 10


def test_samples_without_a_model(model: Path, tmp_path: Path):
    assert "there is no model" in run("sample", tmp_path / "none.einet", code=2)
    other = einet.Einet(einet.random_trees(4, 1, 1), einet.Gaussian(), num_sums=2)
    other.save(tmp_path / "other.einet")
    assert "does not say what images" in run("sample", tmp_path / "other.einet", code=2)
    (tmp_path / "text.einet").write_text("no model")
    assert "text.einet is no model" in run("sample", tmp_path / "text.einet", code=2)
    assert "leaves must be one of" in run("sample", model, "--leaves", "top", code=2)


# -- inpaint -------------------------------------------------------------------------------------


def test_inpainting_under_a_box(model: Path, photo: Path, tmp_path: Path):
    out = tmp_path / "out"
    output = run("inpaint", model, photo, "--box", "0,0,4,6", "--samples", "3", "--output", out)
    assert "covered: 24 of 48 pixels" in output
    names = {"covered", "mean", "deviation", "overview", "sample-1", "sample-2", "sample-3"}
    assert {path.stem for path in out.iterdir()} == names
    original = pixels(photo)
    for name in ("sample-1", "sample-3", "mean"):
        np.testing.assert_array_equal(pixels(out / f"{name}.png")[4:], original[4:])
    covered = pixels(out / "covered.png")
    assert (covered[:4] == MISSING).all()
    np.testing.assert_array_equal(covered[4:], original[4:])
    deviation = pixels(out / "deviation.png")
    assert (deviation[4:] == 0).all()
    assert (deviation[:4] > 0).all()
    # Images that are dark on the left below are red at the top.
    mean = pixels(out / "mean.png")
    assert mean[:4, :, 0].mean() > mean[:4, :, 1].mean() + 100


def test_inpainting_under_a_mask(model: Path, photo: Path, tmp_path: Path):
    mask = np.zeros((8, 6), dtype=np.uint8)
    mask[2:4, 1] = 255
    Image.fromarray(mask).save(tmp_path / "mask.png")
    more = ["--mask", tmp_path / "mask.png", "--output", tmp_path / "out", "--leaves", "mean"]
    assert "covered: 2 of 48 pixels" in run("inpaint", model, photo, "--samples", "1", *more)
    changed = (pixels(tmp_path / "out" / "covered.png") != pixels(photo)).any(-1)
    np.testing.assert_array_equal(changed, mask > 0)


def test_everything_may_be_covered(model: Path, photo: Path, tmp_path: Path):
    more = ["--box", "0,0,8,6", "--samples", "1", "--output", tmp_path / "out"]
    assert "covered: 48 of 48 pixels" in run("inpaint", model, photo, *more)


def test_an_image_of_another_size(model: Path, folder: Path, tmp_path: Path):
    photo, box = folder / "00.png", ["--box", "0,0,4,6", "--samples", "1"]
    assert "is 16×12 pixels (height×width)" in run("inpaint", model, photo, *box, code=2)
    run("inpaint", model, photo, *box, "--resize", "--output", tmp_path / "out")
    Image.new("L", (12, 16), "white").save(tmp_path / "mask.png")
    mask = ["--mask", tmp_path / "mask.png", "--samples", "1"]
    run("inpaint", model, photo, *mask, "--resize", "--output", tmp_path / "out")


def test_wrong_arguments_of_inpaint(model: Path, photo: Path, tmp_path: Path):
    both = ["--box", "0,0,1,1", "--mask", photo]
    assert "--mask or as --box, and not both" in run("inpaint", model, photo, code=2)
    assert "--mask or as --box, and not both" in run("inpaint", model, photo, *both, code=2)
    assert "four whole numbers" in run("inpaint", model, photo, "--box", "top", code=2)
    assert "lie within" in run("inpaint", model, photo, "--box", "0,0,9,6", code=2)
    assert "at least one pixel" in run("inpaint", model, photo, "--box", "0,0,0,6", code=2)
    none = tmp_path / "none.png"
    assert "there is no image" in run("inpaint", model, none, "--box", "0,0,1,1", code=2)
    assert "there is no mask" in run("inpaint", model, photo, "--mask", none, code=2)
    Image.new("L", (6, 6), "white").save(tmp_path / "small.png")
    small = run("inpaint", model, photo, "--mask", tmp_path / "small.png", code=2)
    assert "is 6×6 pixels (height×width), but must be 8×6" in small
    Image.new("L", (6, 8), "black").save(tmp_path / "dark.png")
    dark = run("inpaint", model, photo, "--mask", tmp_path / "dark.png", code=2)
    assert "covers nothing" in dark


# -- evaluate ------------------------------------------------------------------------------------


def test_evaluate_prints_nats_and_bits(model: Path, folder: Path):
    output = run("evaluate", model, folder, "--size", "8x6", "--limit", "20")
    nats = re.search(r"nats: +(\S+) ± (\S+) \(log-density of pixels/255\)", output)
    bits = re.search(r"bits per dimension: (\S+) ± (\S+) \(integrated\)", output)
    assert nats is not None
    assert bits is not None
    opened = image_commands.open_model(model, "cpu")
    images = image_commands.open_set_for(opened, folder, "auto", "test", "8x6", None, False, 20)
    rows = opened.model.log_prob(images.tensor()).double() + 144 * np.log(255)
    assert float(nats[1]) == pytest.approx(rows.mean().item(), abs=0.01)
    assert 0 < float(bits[1]) < 8


def test_images_of_another_size_are_not_evaluated(model: Path, folder: Path, tmp_path: Path):
    output = run("evaluate", model, folder, code=2)
    assert "are 16×12×3, but the model is of images of 8×6×3; --size resizes" in output
    assert "there is no" in run("evaluate", model, tmp_path / "nowhere", code=2)
