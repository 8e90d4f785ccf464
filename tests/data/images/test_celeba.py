"""CelebA's files, written small."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from einet.data.images import ImageError, ImageFiles, celeba

SPLITS = {"train": 5, "valid": 2, "test": 3}
TOTAL = sum(SPLITS.values())


def jpeg(number: int) -> bytes:
    """A face, 1 above the last in every pixel; flat ones survive JPEG."""
    out = io.BytesIO()
    Image.new("RGB", (178, 218), (number,) * 3).save(out, "jpeg", quality=100)
    return out.getvalue()


def write_zip(path: Path, numbers: range = range(1, TOTAL + 1)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("img_align_celeba/", "")
        for number in reversed(numbers):
            archive.writestr(f"img_align_celeba/{number:06}.jpg", jpeg(number))


def write_folder(path: Path) -> None:
    path.mkdir(parents=True)
    for number in range(1, TOTAL + 1):
        (path / f"{number:06}.jpg").write_bytes(jpeg(number))


def write_partition(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = "".join(str(part) * count for part, count in enumerate(SPLITS.values()))
    lines = [f"{number:06}.jpg {part}" for number, part in enumerate(parts, start=1)]
    path.write_text("\n".join(lines) + "\n")


def numbers(images: ImageFiles) -> list[int]:
    return images.numpy()[:, 0].tolist()


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("inside", ["", "Img"])
@pytest.mark.parametrize("direct", [True, False])
def test_reads_every_layout(tmp_path: Path, packed: bool, inside: str, direct: bool):
    path = tmp_path / inside / ("img_align_celeba" + ".zip" * packed)
    (write_zip if packed else write_folder)(path)
    write_partition(tmp_path / ("Eval" if inside else "") / "list_eval_partition.txt")
    root = path if direct else tmp_path
    images = celeba.load(str(root), crop=16)
    assert repr(images) == f"ImageFiles('celeba', split='all', {TOTAL} images of 16×16×3)"
    assert numbers(images) == list(range(1, TOTAL + 1))
    assert numbers(celeba.load(root, "train", crop=16)) == [1, 2, 3, 4, 5]
    assert numbers(celeba.load(root, "valid", crop=16)) == [6, 7]
    assert numbers(celeba.load(root, "test", crop=16)) == [8, 9, 10]


def test_sizes(tmp_path: Path):
    write_zip(tmp_path / "img_align_celeba.zip")
    assert celeba.load(tmp_path).image_shape == (218, 178, 3)
    assert celeba.load(tmp_path, crop=128).image_shape == (128, 128, 3)
    assert celeba.load(tmp_path, crop=128, size=64).image_shape == (64, 64, 3)
    assert celeba.load(tmp_path, size=(40, 32), channels=1).image_shape == (40, 32, 1)
    with pytest.raises(
        ImageError, match=r"000001.jpg is 218×178 .* smaller than crop=\(200, 200\)"
    ):
        celeba.load(tmp_path, crop=200)


def test_without_a_partition_there_is_only_the_whole(tmp_path: Path):
    write_zip(tmp_path / "img_align_celeba.zip")
    assert len(celeba.load(tmp_path, "all", size=8)) == TOTAL
    with pytest.raises(FileNotFoundError, match=r"list_eval_partition.txt.*load split='all'"):
        celeba.load(tmp_path, "train", size=8)
    with pytest.raises(ValueError, match="split must be one of train, valid, test, all, got 'dev'"):
        celeba.load(tmp_path, "dev")


def test_the_first_faces_alone_will_do(tmp_path: Path):
    write_zip(tmp_path / "img_align_celeba.zip", range(1, 7))
    write_partition(tmp_path / "list_eval_partition.txt")
    assert numbers(celeba.load(tmp_path, "valid", size=8)) == [6]
    with pytest.raises(ValueError, match="none of the images in .* is in the test split"):
        celeba.load(tmp_path, "test", size=8)


def test_a_partition_must_list_every_image(tmp_path: Path):
    write_zip(tmp_path / "img_align_celeba.zip", range(1, TOTAL + 2))
    partition = tmp_path / "list_eval_partition.txt"
    write_partition(partition)
    with pytest.raises(ValueError, match="list_eval_partition.txt does not list .*000011.jpg"):
        celeba.load(tmp_path, "train", size=8)
    for line in ("000002.jpg 3", "000002.jpg", "000002.jpg,1"):
        partition.write_text(f"000001.jpg 0\n\n{line}\n")
        with pytest.raises(
            ValueError, match=f"line 3 is '{line}'; .* 0 \\(train\\), 1 \\(valid\\)"
        ):
            celeba.load(tmp_path, "train", size=8)


def test_missing_files_are_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError) as caught:
        celeba.load(tmp_path)
    for part in (str(tmp_path), "img_align_celeba.zip", "Img/img_align_celeba"):
        assert part in str(caught.value)


def test_the_public_archive(data_dir: Path):
    if not (data_dir / "celeba" / "img_align_celeba.zip").is_file():
        pytest.skip("no celeba/img_align_celeba.zip among the real data")
    images = celeba.load(data_dir / "celeba", size=64)
    assert images.image_shape == (64, 64, 3)
    part = images.take(slice(0, 50)).numpy()
    assert part.shape == (50, 64 * 64 * 3)
    assert 50 < part.mean() < 200
    assert np.all(part.std(axis=1) > 10)
