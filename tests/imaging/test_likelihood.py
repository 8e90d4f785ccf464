"""Nats and bits: probabilities of images add up to 1, and units are what they are said to be."""

import math

import pytest
import torch
from torch import Tensor

import einet
from einet.data.images import ArrayImages
from einet.imaging import likelihood
from einet.imaging.likelihood import (
    dequantised_log_prob,
    grey_log_prob,
    log_density,
    measure,
    method_for,
)
from tests.budgets import limit


def trained(variables: int, scale: float = 1.0, levels: int = 256, **options) -> einet.Einet:
    """A small Gaussian model of ``byte / scale``, in float64."""
    graph = einet.random_trees(variables, depth=1, replicas=2)
    bounds = {"min_variance": 1e-6 * (255 / scale) ** 2, "max_variance": (255 / scale) ** 2}
    model = einet.Einet(graph, einet.Gaussian(**bounds), 3, dtype=torch.float64, **options)
    x = torch.randint(0, levels, (100, variables), generator=torch.manual_seed(0)) / scale
    model.initialize(x)
    return model


def every_image(variables: int, levels: int) -> Tensor:
    states = torch.arange(levels, dtype=torch.uint8)
    return torch.cartesian_prod(*[states] * variables).view(-1, variables)


def test_all_pairs_of_grey_values_add_up_to_one():
    found = grey_log_prob(trained(2), every_image(2, 256))
    assert found.exp().sum().item() == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize("scale", [1.0, 255.0])
def test_all_images_of_few_grey_values_add_up_to_one(scale: float):
    model = einet.ClusteredEinet.of([trained(3, scale, 8, seed=s) for s in (0, 1)], [0.2, 0.8])
    found = grey_log_prob(model, every_image(3, 8), scale, levels=8)
    assert found.exp().sum().item() == pytest.approx(1, abs=1e-10)


def test_bits_do_not_depend_on_the_scale():
    x = every_image(2, 256)[::777]
    # The same initial rows, hence the same model up to units.
    one, other = measure(trained(2), x), measure(trained(2, 255.0), x, scale=255.0)
    assert one.method == other.method == "integrated"
    assert one.bits == pytest.approx(other.bits, rel=1e-6)
    assert one.nats == pytest.approx(other.nats, rel=1e-6)
    assert one.rows == len(x)


def test_nats_are_of_the_density_on_pixels_over_255():
    model = einet.Einet(einet.random_trees(1, 0, 1), einet.Gaussian(), 1, dtype=torch.float64)
    block = model.leaf.leaf_blocks[0]
    # N(100, 20²) of bytes is N(100/255, (20/255)²) of pixels/255.
    block.stored.data.copy_(torch.tensor([[[100.0, 400.0]]]))
    x = torch.tensor([[130]], dtype=torch.uint8)
    expected = torch.distributions.Normal(100 / 255, 20 / 255).log_prob(torch.tensor(130 / 255))
    assert log_density(model, x).item() == pytest.approx(expected.item(), rel=1e-6)
    bits = torch.distributions.Normal(100.0, 20.0).cdf(torch.tensor([130.5, 129.5]).double())
    expected = -math.log2((bits[0] - bits[1]).item())
    assert measure(model, x.expand(3, 1)).bits == pytest.approx(expected, rel=1e-6)


def test_noise_bounds_the_integral_from_below():
    model = trained(4)
    x = every_image(4, 3)
    generator = torch.Generator().manual_seed(0)
    bound = dequantised_log_prob(model, x, draws=64, generator=generator)
    exact = grey_log_prob(model, x)
    # Outer bins are infinite for the integral and not for the noise, which lies below all the more.
    assert (bound < exact + 0.1).all()
    inner = (x > 0).all(1)
    assert (exact - bound)[inner].abs().max() < 0.1


def test_noise_knows_its_units():
    x = every_image(2, 256)[::777]
    pairs = [(trained(2), 1.0), (trained(2, 255.0), 255.0)]
    found = [measure(m, x, scale=s, method="dequantised", draws=8) for m, s in pairs]
    assert found[0].method == "dequantised"
    assert found[0].bits == pytest.approx(found[1].bits, rel=1e-5)
    again = measure(pairs[0][0], x, method="dequantised", draws=8)
    assert again == found[0]
    other = measure(pairs[0][0], x, method="dequantised", draws=8, seed=1)
    assert other.bits != again.bits


@pytest.mark.parametrize("family", [einet.Binomial(255), einet.Categorical(256)], ids=repr)
def test_leaves_that_count_need_no_integral(family: einet.ExponentialFamily):
    model = einet.Einet(einet.random_trees(2, 1, 1), family, 2, dtype=torch.float64)
    x = every_image(2, 256)
    with torch.no_grad():
        logs = model.log_prob(x)
    assert logs.exp().sum().item() == pytest.approx(1, abs=1e-8)
    found = measure(model, x)
    assert found.method == "discrete"
    assert found.nats == pytest.approx(logs.mean().item())
    assert found.bits == pytest.approx(-logs.mean().item() / (2 * math.log(2)))
    assert found.bits_error == pytest.approx(found.nats_error / (2 * math.log(2)))
    assert found.nats_error == pytest.approx(logs.std().item() / 256)


def test_methods(monkeypatch: pytest.MonkeyPatch):
    def of(*families: einet.ExponentialFamily) -> einet.Model:
        graph = einet.random_trees(len(families), 0, 1)
        return einet.Einet(graph, list(families), num_sums=1)

    assert method_for(of(einet.Gaussian())) == "integrated"
    assert method_for(of(einet.Gaussian(), einet.Gamma())) == "integrated"
    unknown = einet.ExponentialFamily.log_prob_between
    monkeypatch.setattr(einet.Gamma, "log_prob_between", unknown)
    assert method_for(of(einet.Gaussian(), einet.Gamma())) == "dequantised"
    assert method_for(einet.Mixture([of(einet.Binomial(3)), of(einet.Poisson())])) == "discrete"
    with pytest.raises(ValueError, match="all leaves must be densities or all count"):
        method_for(of(einet.Gaussian(), einet.Binomial(255)))


def test_images_in_parts(monkeypatch: pytest.MonkeyPatch):
    model = trained(3 * 4)
    pixels = torch.randint(0, 256, (600, 3, 4, 1), generator=torch.manual_seed(1)).byte()
    images = ArrayImages(pixels.numpy())
    whole = measure(model, images)
    monkeypatch.setattr(likelihood, "_ROWS", 256)
    limit(monkeypatch, "image densities", 800)
    done = []
    parts = measure(model, images, progress=done.append)
    assert done == [256, 512, 600]
    assert parts.nats == pytest.approx(whole.nats)
    assert parts.bits == pytest.approx(whole.bits)


def test_wrong_arguments():
    model, x = trained(2), every_image(2, 3)
    discrete = einet.Einet(einet.random_trees(2, 1, 1), einet.Binomial(255), 2)
    with pytest.raises(ValueError, match="scale must be 1 .* got 255"):
        measure(discrete, x, scale=255.0)
    with pytest.raises(ValueError, match="method must fit the model's leaves, as 'discrete'"):
        measure(discrete, x, method="integrated")
    with pytest.raises(ValueError, match="method must fit the model's leaves, as 'integrated'"):
        measure(model, x, method="discrete")
    with pytest.raises(ValueError, match="method must be one of discrete, integrated, deq"):
        measure(model, x, method="guess")
    with pytest.raises(ValueError, match="draws must be at least 1, got 0"):
        dequantised_log_prob(model, x, draws=0)
    for images in (every_image(3, 2), x[:0]):
        with pytest.raises(ValueError, match="images must be rows of 2 bytes"):
            measure(model, images)
