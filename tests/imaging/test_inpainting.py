"""Inpainting: draws are from the posterior, whatever the mixture."""

import pytest
import torch
from torch import Tensor

import einet
from einet.imaging import Pixels, inpaint, masks

LEVELS = 3


@pytest.fixture
def model() -> einet.ClusteredEinet:
    """Two components over images of 2×2 pixels with three grey values."""
    graph = einet.poon_domingos((2, 2), delta=1)
    leaves = einet.Categorical(LEVELS, numeric=True)
    parts = [einet.Einet(graph, leaves, 2, dtype=torch.float64, seed=seed) for seed in (0, 1)]
    for part in parts:
        for block in part.leaf.leaf_blocks:
            # Far from uniform, so that components are told apart by what is visible.
            block.stored.data.pow_(4)
            block.stored.data /= block.stored.data.sum(-1, keepdim=True)
    return einet.ClusteredEinet.of(parts, [0.3, 0.7])


def every_image() -> Tensor:
    return torch.cartesian_prod(*[torch.arange(LEVELS)] * 4)


@pytest.mark.parametrize("which", ["top", "left"])
def test_inpaintings_are_distributed_as_enumeration_says(
    model: einet.ClusteredEinet, which: masks.Half
):
    image = torch.tensor([[2, 0, 1, 2]], dtype=torch.uint8)
    covered = masks.half((2, 2), which)
    hidden = masks.over_channels(covered, 1)
    found = inpaint(model, image, covered, samples=20_000, seed=0)
    assert (found.samples[..., ~hidden] == image[:, ~hidden]).all()

    states = every_image()
    agree = (states[:, ~hidden] == image[:, ~hidden]).all(1)
    with torch.no_grad():
        joint = torch.where(agree, model.log_prob(states).exp(), 0.0)
    posterior = joint / joint.sum()
    index = (found.samples[:, 0].long() * LEVELS ** torch.arange(3, -1, -1)).sum(1)
    share = torch.bincount(index, minlength=len(states)) / len(index)
    # Four standard errors of a share.
    error = 4 * (posterior * (1 - posterior) / len(index)).sqrt() + 1e-9
    assert ((share - posterior).abs() <= error).all()

    mean = posterior @ states.double()
    torch.testing.assert_close(found.mean[0], mean)
    deviation = (posterior @ (states - mean).square()).sqrt()
    torch.testing.assert_close(found.deviation[0], deviation)
    assert (found.deviation[0, ~hidden] == 0).all()


def test_everything_may_be_covered(model: einet.ClusteredEinet):
    image = torch.zeros(2, 4, dtype=torch.uint8)
    found = inpaint(model, image, torch.ones(2, 2, dtype=torch.bool), samples=3)
    assert found.samples.shape == (3, 2, 4)
    torch.testing.assert_close(found.mean[0], model.mean())


def test_leaf_means_without_noise():
    recipe_images = torch.randint(0, 256, (50, 4 * 4 * 3), generator=torch.manual_seed(0)).byte()
    graph = einet.poon_domingos((4, 4), delta=2, channels=3)
    model = einet.Einet(graph, einet.Gaussian(max_variance=100.0), 2)
    model.initialize(recipe_images)
    found = inpaint(model, recipe_images[:2], masks.half((4, 4), "top"), samples=5, leaves="mean")
    means = {
        round(value, 2)
        for block in model.leaf.leaf_blocks
        for value in block.family.mean(block.stored.detach().double()).flatten().tolist()
    }
    drawn = found.samples[:, :, : 2 * 4 * 3].flatten().tolist()
    assert all(any(abs(value - mean) < 0.02 for mean in means) for value in drawn)
    assert Pixels((4, 4, 3)).to_pictures(found.samples).shape == (5, 2, 4, 4, 3)


def test_wrong_sizes(model: einet.ClusteredEinet):
    covered = masks.half((2, 2), "top")
    with pytest.raises(ValueError, match="images with 4 variables, .* got 5 variables"):
        inpaint(model, torch.zeros(1, 5), covered)
    with pytest.raises(ValueError, match="got 4 variables and a mask of 9 pixels"):
        inpaint(model, torch.zeros(1, 4), torch.ones(3, 3, dtype=torch.bool))
