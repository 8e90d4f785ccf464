"""A folder of small data sets in the forms that the real ones come in."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from PIL import Image

from tests.experiments.images.made import images


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    for name in ("mnist", "svhn", "celeba"):
        (root / name).mkdir(parents=True)
    for seed, (prefix, count) in enumerate((("train", 80), ("t10k", 60))):
        pixels = images(count, (8, 8), seed)
        for kind, array in (("images-idx3", pixels), ("labels-idx1", pixels[:, 0, 0])):
            header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            (root / "mnist" / f"{prefix}-{kind}-ubyte").write_bytes(header + array.tobytes())
    for seed, (split, count) in enumerate((("train", 40), ("extra", 20), ("test", 12))):
        pixels = images(count, (32, 32, 3), seed).transpose(1, 2, 3, 0)
        content = {"X": pixels, "y": np.ones((count, 1))}
        scipy.io.savemat(root / "svhn" / f"{split}_32x32.mat", content)
    faces = root / "celeba" / "img_align_celeba"
    faces.mkdir()
    for number, face in enumerate(images(20, (109, 89, 3), 3)):
        Image.fromarray(face).save(faces / f"{number:06}.png")
    return root
