"""CelebA, the aligned and cropped faces (Liu et al., 2015).

Example:
    The paper's images are the centres of 128×128 pixels; of the same at half the resolution,

    >>> from einet.data.images import celeba
    >>> train = celeba.load("celeba", "train", crop=128, size=64)  # doctest: +SKIP
    >>> train  # doctest: +SKIP
    ImageFiles('celeba', split='train', 162770 images of 64×64×3)
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Literal, get_args

from einet.data.images.files import ImageFiles
from einet.data.images.framing import Framing
from einet.data.images.limits import MAX_PIXELS, read_file
from einet.data.images.sources import open_source

__all__ = ["Split", "find", "load", "read_partition"]

Split = Literal["train", "valid", "test", "all"]

_IMAGES = "img_align_celeba"
_PARTITION = "list_eval_partition.txt"
# That of all 202,599 images has 2.6 MB.
_PARTITION_BYTES = 1 << 26


def load(
    root: str | PathLike[str],
    split: str = "all",
    *,
    size: int | Sequence[int] | None = None,
    crop: int | Sequence[int] | None = None,
    channels: int = 3,
    enlarge: bool = False,
    workers: int | None = None,
    keep: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> ImageFiles:
    """The faces, sorted by their numbers, decoded when they are asked for.

    Args:
        root: ``img_align_celeba.zip``, the folder that it unpacks to, or the folder that holds
            either of them.
        split: ``"train"``, ``"valid"`` or ``"test"`` by ``list_eval_partition.txt``, which lies
            beside the images or in a folder ``Eval``; or ``"all"``, which needs no such file.
            Images that are listed there but absent are left out.
        size, crop, channels, enlarge, max_pixels: What is made of each image of 218×178 pixels; see
            :class:`~einet.data.images.Framing`. By default nothing.
        workers, keep: See :class:`~einet.data.images.ImageFiles`.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as root:
        ...     faces = Path(root, "img_align_celeba")
        ...     faces.mkdir()
        ...     for number in (1, 2):
        ...         Image.new("RGB", (178, 218), "brown").save(faces / f"00000{number}.jpg")
        ...     load(root, crop=128, size=64)
        ImageFiles('celeba', split='all', 2 images of 64×64×3)
    """
    if split not in get_args(Split):
        raise ValueError(f"split must be one of {', '.join(get_args(Split))}, got {split!r}")
    framing = Framing(size, crop, channels, enlarge, max_pixels)
    images = find(root)
    source = open_source(images)
    if split != "all":
        partition_file = _find_partition(Path(root), images)
        partition = read_partition(partition_file)
        wanted = []
        for number, name in enumerate(source.names):
            part = partition.get(PurePosixPath(name).name)
            if part is None:
                raise ValueError(f"{partition_file} does not list {source.describe(number)}")
            if part == split:
                wanted.append(number)
        if not wanted:
            raise ValueError(f"none of the images in {images} is in the {split} split")
        source = source.take(wanted)
    return ImageFiles(source, framing, workers=workers, keep=keep, name="celeba", split=split)


def find(root: str | PathLike[str]) -> Path:
    """The archive or the folder of the images; raises where there is none.

    Args:
        root: Where to look; see :func:`load`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     Path(root, "img_align_celeba").mkdir()
        ...     find(root).name
        'img_align_celeba'
    """
    root = Path(root)
    if root.is_file() or (root.is_dir() and root.name == _IMAGES):
        return root
    tried = [root / inside / name for inside in ("", "Img") for name in (_IMAGES, f"{_IMAGES}.zip")]
    for path in tried:
        if path.exists():
            return path
    raise FileNotFoundError(
        f"CelebA is not in root={root}; looked for "
        + ", ".join(str(path.relative_to(root)) for path in tried)
    )


def _find_partition(root: Path, images: Path) -> Path:
    bases = dict.fromkeys((root, images.parent, images.parent.parent))
    tried = [base / inside / _PARTITION for base in bases for inside in ("", "Eval")]
    for path in tried:
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"which images are for training and which for tests says {_PARTITION}, which is not there; "
        f"looked for {', '.join(map(str, tried))}. Without it, load split='all' and cut it with "
        "images.take(slice(first, last))"
    )


def read_partition(path: str | PathLike[str]) -> dict[str, str]:
    r"""The split of each image, by the image's name.

    Args:
        path: The list of all images, ``list_eval_partition.txt``.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     path = Path(root, "list_eval_partition.txt")
        ...     written = path.write_text("000001.jpg 0\n000002.jpg 2\n")
        ...     read_partition(path)
        {'000001.jpg': 'train', '000002.jpg': 'test'}
    """
    splits = dict(zip("012", get_args(Split), strict=False))
    partition: dict[str, str] = {}
    try:
        lines = read_file(path, _PARTITION_BYTES).decode().splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text: {error}") from error
    for number, line in enumerate(lines, start=1):
        cells = line.split()
        if not cells:
            continue
        if len(cells) != 2 or cells[1] not in splits:
            raise ValueError(
                f"{path}, line {number} is {line[:80]!r}; every line must hold the name of an "
                "image and 0 (train), 1 (valid) or 2 (test)"
            )
        partition[cells[0]] = splits[cells[1]]
    return partition
