"""Copies of training images are noticed, and only those."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from einet.imaging import Pixels, Recipe, memorised
from einet.imaging.memorised import Memorised, count_copies, find_memorised

SHAPE = (16, 8, 1)


def squares(count: int, seed: int) -> Tensor:
    """A bright square somewhere, in noise."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 60, (count, 16, 8), generator=generator)
    places = torch.randint(0, 5, (count, 2), generator=generator).tolist()
    for image, (top, left) in zip(images, places, strict=True):
        image[top : top + 4, left : left + 4] += 150
    return images.byte().flatten(1)


def found_in(recipe: Recipe, images: Tensor, clusters: int, epochs: int = 8) -> Memorised:
    model = recipe.model(SHAPE, clusters)
    model.fit(images, optimizer=recipe.learner(), epochs=epochs, progress=False)
    result = find_memorised(model, images)
    assert result is not None
    return result


def test_a_model_that_memorises_is_noticed():
    result = found_in(Recipe.paper(num_sums=8, delta=4), squares(12, 0), clusters=12)
    assert result.samples > 0.9
    assert result.images == 0
    assert result.is_worth_a_warning
    assert "strips in samples are strips of a training image" in str(result)


def test_a_model_that_does_not_is_not():
    result = found_in(Recipe(num_sums=4, delta=4), squares(600, 0), clusters=1)
    assert result.samples < 0.01
    assert not result.is_worth_a_warning


def test_what_images_have_in_common_is_not_memorised():
    # The left half of all images is the same, as the black border of digits is.
    images = squares(300, 0).view(-1, 16, 8)
    images[:, :, :4] = 7
    result = found_in(Recipe(num_sums=4, delta=4), images.flatten(1), clusters=1)
    assert result.samples == pytest.approx(0.5)
    assert result.images == pytest.approx(0.5)
    assert not result.is_worth_a_warning


def test_other_colours_are_compared_as_bytes():
    images = torch.randint(0, 256, (6, 8 * 8 * 3), generator=torch.manual_seed(0)).byte()
    pixels = Pixels((8, 8, 3), colour="ycocg")
    recipe = Recipe.paper(num_sums=8, delta=4)
    model = recipe.model(pixels.shape, 6)
    rows = pixels.to_model(images)
    model.fit(rows, optimizer=recipe.learner(), epochs=8, progress=False)
    result = find_memorised(model, images, pixels)
    assert result is not None
    assert result.samples > 0.9


def test_single_pixels_are_no_strips():
    images = squares(50, 0)
    model = Recipe.tree(num_sums=2).model(SHAPE, 1, rows=images)
    assert find_memorised(model, images) is None
    assert find_memorised(Recipe(num_sums=2).model(SHAPE, 1), images[:1]) is None


def brute_force(pictures: Tensor, images: Tensor, strips: list[Tensor], own: Tensor | None) -> int:
    count = 0
    for number, strip in itertools.product(range(len(pictures)), strips):
        for row, image in enumerate(images):
            apart = (pictures[number, strip].int() - image[strip].int()).abs().max()
            if apart <= 2 and (own is None or int(own[number]) != row):
                count += 1
                break
    return count


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), cells=st.sampled_from([1, 40, 1 << 24]), themselves=st.booleans())
def test_copies_are_those_of_brute_force(seed: int, cells: int, themselves: bool):
    generator = torch.Generator().manual_seed(seed)
    # Few grey values, so that some strips agree and some almost do.
    images = torch.randint(0, 5, (30, 20), generator=generator).byte() + 250
    own = torch.randperm(30, generator=generator)[:10] if themselves else None
    pictures = torch.randint(0, 5, (10, 20), generator=generator).byte() + 250
    if own is not None:
        pictures = images[own]
    strips = [torch.arange(3), torch.tensor([19, 4, 7, 11]), torch.arange(8, 19)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memorised, "_CELLS_AT_ONCE", cells)
        found = count_copies(pictures, images, strips, own)
    assert found == brute_force(pictures, images, strips, own)
