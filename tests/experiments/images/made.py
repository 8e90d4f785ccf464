"""Images to try the experiment on."""

import numpy as np


def images(count: int, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Two kinds of noisy images: bright at the top, or on the left."""
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 60, (count, *shape))
    pixels[::2, : shape[0] // 2] += 180
    pixels[1::2, :, : shape[1] // 2] += 180
    return pixels.astype(np.uint8)
