"""Images that are held out."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from einet.data.images import ArrayImages, Images
from einet.imaging.held_out import count_held_out, hold_out


def numbered(count: int) -> ArrayImages:
    """Images that hold their own number."""
    pixels = np.arange(count, dtype=np.uint32).view(np.uint8).reshape(count, 2, 2)
    return ArrayImages(pixels, labels=np.arange(count), name="numbers")


def numbers(images: Images) -> list[int]:
    return images.numpy().copy().view(np.uint32)[:, 0].tolist()


@given(count=st.integers(1, 300), seed=st.integers(0, 5))
def test_every_image_is_in_one_part(count: int, seed: int):
    train, valid = hold_out(numbered(count), seed=seed)
    held = [] if valid is None else numbers(valid)
    assert len(held) == count_held_out(count)
    assert sorted(numbers(train) + held) == list(range(count))
    assert numbers(train) == sorted(numbers(train))
    assert train.labels is not None
    assert train.labels.tolist() == numbers(train)


def test_some_and_not_too_many():
    counts = [count_held_out(images) for images in (1, 19, 20, 60, 1000, 50_000, 10**6)]
    assert counts == [0, 0, 10, 10, 100, 5000, 5000]
    assert count_held_out(10**6, share=0.25) == 250_000
    assert count_held_out(10**6, share=0) == 0
    assert count_held_out(10, share=0.3) == 3


def test_the_seed_decides():
    parts = [hold_out(numbered(100), 0.2, seed)[1] for seed in (0, 0, 1)]
    tensors = [part.tensor() for part in parts if part is not None]
    assert torch.equal(tensors[0], tensors[1])
    assert not torch.equal(tensors[0], tensors[2])


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan"), True])
def test_shares_that_are_none(share):
    with pytest.raises(ValueError, match="share must be a number of at least 0 and below 1, got"):
        count_held_out(100, share)


@pytest.mark.parametrize("share", [0.01, 0.99])
def test_shares_that_leave_nothing(share: float):
    with pytest.raises(ValueError, match="share must hold out some of the 10 images and leave"):
        count_held_out(10, share)
