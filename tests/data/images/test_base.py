"""What holds for every set of images, whatever its files."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import einet
from einet.data import images
from einet.data.images import ArrayImages, ImageFiles, Images, folder
from einet.data.images.base import as_rows

HEIGHT, WIDTH = 4, 6


def pixels(count: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)


@pytest.fixture(params=["array", "files", "kept files"])
def coloured(request: pytest.FixtureRequest, tmp_path: Path) -> Images:
    """The same 20 images, kept in different ways."""
    given = pixels(20, HEIGHT, WIDTH, 3)
    labels = np.arange(20) % 7
    if request.param == "array":
        return ArrayImages(given, labels=labels, name="some", split="train")
    for number, image in enumerate(given):
        Image.fromarray(image).save(tmp_path / f"{number:02}.png")
    read = folder.load(tmp_path, keep=request.param == "kept files", workers=2)
    read.labels = torch.from_numpy(labels)
    return read


def test_rows_are_flattened_with_channels_last(coloured: Images):
    given = pixels(20, HEIGHT, WIDTH, 3)
    assert len(coloured) == 20
    assert coloured.image_shape == (HEIGHT, WIDTH, 3)
    assert (coloured.grid, coloured.channels) == ((HEIGHT, WIDTH), 3)
    assert coloured.num_variables == HEIGHT * WIDTH * 3
    assert coloured.tensor().dtype == torch.uint8
    assert np.array_equal(coloured.tensor(), given.reshape(20, -1))
    assert np.array_equal(coloured[:].view(-1, *coloured.image_shape), given)


def test_variables_are_those_of_the_structure(coloured: Images):
    graph = einet.poon_domingos(coloured.grid, delta=3, axes=[1], channels=coloured.channels)
    assert graph.num_variables == coloured.num_variables
    left = next(leaf for leaf in graph.leaves if 0 in graph.variables(leaf))
    picture = pixels(20, HEIGHT, WIDTH, 3)[5]
    assert np.array_equal(coloured[5][list(graph.variables(left))], picture[:, :3].reshape(-1))


def test_rows_by_slice_number_list_and_mask(coloured: Images):
    rows = pixels(20, HEIGHT, WIDTH, 3).reshape(20, -1)
    mask = np.arange(20) % 3 == 0
    for index in (slice(3, 9), slice(None, None, 4), slice(5, None, -2), slice(7, 7), [4, -1, 4]):
        assert np.array_equal(coloured[index], rows[index])
        assert np.array_equal(coloured.take(index).tensor(), rows[index])
    for index in (mask, np.flatnonzero(mask), torch.from_numpy(mask), np.arange(20)[mask].tolist()):
        assert np.array_equal(coloured[index], rows[mask])
        assert np.array_equal(coloured.take(index).tensor(), rows[mask])
    assert coloured[[]].shape == (0, rows.shape[1])
    assert np.array_equal(coloured[-2], rows[-2])
    assert np.array_equal(torch.stack(list(coloured)), rows)


def test_a_part_has_its_labels_and_can_be_cut_again(coloured: Images):
    part = coloured.take([9, 3, 1]).take(slice(1, None))
    assert part.labels is not None
    assert part.labels.tolist() == [3, 1]
    assert (len(part), part.split, part.name) == (2, coloured.split, coloured.name)
    assert np.array_equal(part.tensor(), coloured[[3, 1]])


def test_batches_cover_all_rows_in_order(coloured: Images):
    parts = list(coloured.batches(8))
    assert [len(part) for part in parts] == [8, 8, 4]
    assert torch.equal(torch.cat(parts), coloured.tensor())
    order = torch.randperm(20, generator=torch.manual_seed(0))
    assert torch.equal(torch.cat(list(coloured.batches(7, order))), coloured.tensor()[order])
    for size in (0, -1, True):
        with pytest.raises(ValueError, match="size must be a whole number of at least 1"):
            coloured.batches(size)


def test_wrong_rows_are_named(coloured: Images):
    for index in (20, -21, [0, 20]):
        with pytest.raises(IndexError, match="below 20, the number of images, got -?2"):
            coloured[index]
    for index in (np.zeros((2, 2), dtype=int), np.ones(2), np.zeros(3, dtype=bool)):
        with pytest.raises(TypeError, match="rows must be a slice, .* or a mask of 20 rows"):
            as_rows(index, 20)


def test_numpy_takes_a_set_as_its_rows(coloured: Images):
    rows = pixels(20, HEIGHT, WIDTH, 3).reshape(20, -1)
    array = np.asarray(coloured)
    assert array.dtype == np.uint8
    assert np.array_equal(array, rows)
    assert np.shape(coloured) == rows.shape
    assert np.asarray(coloured, dtype=np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="kept as uint8; float32 would be a copy"):
        coloured.__array__(np.float32, copy=False)


def test_fit_takes_a_set_as_it_takes_its_rows(coloured: Images):
    graph = einet.poon_domingos(coloured.grid, delta=3, channels=3)
    models = [einet.Einet(graph, einet.Binomial(255), num_sums=2, seed=0) for _ in range(2)]
    for model, train in zip(models, (coloured, coloured.tensor()), strict=True):
        einet.fit(model, train, valid=coloured.take([0, 1]), epochs=2, batch_size=10)
    given, same = (model.log_prob(coloured) for model in models)
    assert torch.equal(given, same)
    parts = torch.cat([models[0].log_prob(x) for x in coloured.batches(9)])
    torch.testing.assert_close(parts, given)


def test_chow_liu_takes_a_set():
    grey = ArrayImages(pixels(50, 2, 2) // 64)
    assert einet.chow_liu(grey).num_variables == 4


def test_repr_says_what_is_there(coloured: Images, tmp_path: Path):
    if isinstance(coloured, ImageFiles):
        expected = f"ImageFiles('{tmp_path.name}', 20 images of 4×6×3)"
    else:
        expected = "ArrayImages('some', split='train', 20 images of 4×6×3)"
    assert repr(coloured) == expected


def test_labels_must_fit():
    with pytest.raises(ValueError, match=r"labels must have shape \[5\].*got \[4\]"):
        ArrayImages(pixels(5, 3, 3), labels=np.zeros(4))


def test_is_part_of_the_package():
    assert einet.data.images is images
