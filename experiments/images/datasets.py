"""Where the images come from, and which of them are for what."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from einet.data.images import ArrayImages, Images, array, celeba, idx, svhn
from einet.imaging.reading import in_memory
from experiments.images.settings import Settings

__all__ = ["Parts", "Sets"]

# CelebA comes here at 64×64: of the original images from a centre twice as large, of images at half
# their size as it is.
_FACE = 64


@dataclass(frozen=True)
class Parts:
    """The images of one model.

    Attributes:
        train: Those it learns from.
        valid: Those its epoch is chosen on, and settings are.
        tested: Those it is tested on; None where one only searches for settings.
    """

    train: ArrayImages
    valid: ArrayImages | None
    tested: ArrayImages | None

    @property
    def test(self) -> ArrayImages:
        """The images for tests, which have to be there."""
        if self.tested is None:
            raise RuntimeError("there are no test images in a search on validation images")
        return self.tested


class Sets:
    """The training and test images of a data set, in memory; read once for all models.

    Args:
        name: The data set.
        folder: Its folder. Instead of the files that it comes in there may be ``train.npy`` and
            ``test.npy``, as :func:`einet.data.images.array.save` writes them.
    """

    def __init__(self, name: str, folder: Path) -> None:
        if not folder.is_dir():
            raise FileNotFoundError(f"{name}: there is no folder {folder}")
        self.name, self.folder = name, folder
        self._read: dict[str, ArrayImages] = {}

    def parts(self, settings: Settings, test: bool = True) -> Parts:
        """What a model is trained, chosen and tested on; without ``test``, none of that is read."""
        train = self._get("train")
        if settings.extra:
            extra = self._get("extra").numpy()
            pixels = np.concatenate([train.numpy(), extra]).reshape(-1, *train.image_shape)
            train = ArrayImages(pixels, name=self.name, split="train+extra")
        valid_rows = settings.valid_rows
        train_rows = settings.train_rows or len(train) - valid_rows
        if train_rows < 1 or train_rows + valid_rows > len(train):
            raise ValueError(
                f"{self.name} has {len(train)} training images, but {train_rows} and {valid_rows} "
                "for validation are wanted"
            )
        valid = train.take(slice(train_rows, train_rows + valid_rows)) if valid_rows else None
        tested = self._get("test").take(slice(settings.test_rows)) if test else None
        return Parts(train.take(slice(0, train_rows)), valid, tested)

    def _get(self, split: str) -> ArrayImages:
        if split not in self._read:
            file = self.folder / f"{split}.npy"
            if file.is_file():
                self._read[split] = array.load(file, name=self.name, split=split)
            elif self.name == "celeba":
                self._read[split] = self._faces(split)
            elif self.name == "svhn":
                self._read[split] = svhn.load(self.folder, split)
            else:
                self._read[split] = idx.load(self.folder, split)
        return self._read[split]

    def _faces(self, split: str) -> ArrayImages:
        height, width, _ = celeba.load(self.folder).image_shape
        crop = _FACE if min(height, width) < 2 * _FACE else 2 * _FACE

        def faces_of(split: str) -> Images:
            return celeba.load(self.folder, split, crop=crop, size=_FACE)

        try:
            found = faces_of(split)
        except FileNotFoundError:
            # Without the list of the parts, the last tenth is for tests.
            faces = faces_of("all")
            first = len(faces) - max(1, len(faces) // 10)
            found = faces.take(slice(0, first) if split == "train" else slice(first, None))
        return in_memory(found)
