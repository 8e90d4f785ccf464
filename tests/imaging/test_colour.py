"""Colours against their definition, and what they do to probabilities."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import einet
from einet.imaging import Pixels, measure
from einet.imaging.colour import as_colour, from_ycocg, to_ycocg, to_ycocg_linear
from einet.imaging.likelihood import grey_log_prob, log_density

BYTES = st.lists(st.tuples(*[st.integers(0, 255)] * 3), min_size=1, max_size=8)


def some_bytes(rows: int, pixels: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (rows, 3 * pixels), generator=generator).byte()


@given(BYTES)
def test_comes_back_exactly(colours: list[tuple[int, int, int]]):
    x = torch.tensor(colours, dtype=torch.uint8).flatten().unsqueeze(0)
    z = to_ycocg(x)
    assert torch.equal(from_ycocg(z), x.double())
    Y, Co, Cg = z.view(-1, 3).unbind(-1)
    assert 0 <= int(Y.min()) <= int(Y.max()) <= 255
    assert max(int(Co.abs().max()), int(Cg.abs().max())) <= 255
    torch.testing.assert_close(from_ycocg(to_ycocg_linear(x)), x.double())
    # Rounding down twice takes less than one from any of the three.
    assert float((to_ycocg_linear(x) - z).abs().max()) < 1


def test_is_linear_with_determinant_one():
    unit = torch.eye(3, dtype=torch.uint8)
    assert float(torch.linalg.det(to_ycocg_linear(unit))) == pytest.approx(1)
    x = some_bytes(10, 2)
    parts = torch.stack([torch.zeros_like(x), x])
    torch.testing.assert_close(to_ycocg_linear(parts)[1], to_ycocg_linear(x))
    assert torch.equal(to_ycocg_linear(2 * (x // 4)), 2 * to_ycocg_linear(x // 4))


def model_of_a_pixel(mean: list[float], deviation: list[float]) -> einet.Einet:
    model = einet.Einet(
        einet.random_trees(3, 0, 1), einet.Gaussian(max_variance=1e6), num_sums=1
    ).double()
    (block,) = model.leaf.leaf_blocks
    mu, sd = torch.tensor(mean).double(), torch.tensor(deviation).double()
    block.stored.data.copy_(block.from_phi(torch.stack([mu, mu**2 + sd**2], -1).unsqueeze(0)))
    return model


def test_densities_and_probabilities_of_one_pixel():
    mean, deviation = [100.0, -20.0, 10.0], [30.0, 15.0, 8.0]
    model = model_of_a_pixel(mean, deviation)
    x = some_bytes(50, 1)
    z = to_ycocg(x).numpy().astype(float)
    normal = stats.norm(mean, deviation)
    upper = np.where(z == 255, np.inf, z + 0.5)
    lower = np.where(z == -255, -np.inf, z - 0.5)
    with np.errstate(divide="ignore"):
        exact = np.log(normal.cdf(upper) - normal.cdf(lower)).sum(1)
    near = exact > -30  # further out, differences of distribution functions are rounding
    found = grey_log_prob(model, x, colour="ycocg").numpy()
    np.testing.assert_allclose(found[near], exact[near], rtol=1e-6)
    # A density of R, G and B: that of jointly normal variables.
    back = np.array([from_ycocg(row.double()).numpy() for row in torch.eye(3)]).T
    at = back @ np.array(mean)
    covariance: Any = back @ np.diag(np.square(deviation)) @ back.T
    density = stats.multivariate_normal.logpdf(x.numpy().astype(float), at, covariance)
    expected = density + 3 * math.log(255)
    np.testing.assert_allclose(log_density(model, x, colour="ycocg").numpy(), expected, rtol=1e-9)


def test_probabilities_of_all_colours_add_up_to_at_most_one():
    # So narrow that colours near the mean are all that matter.
    centre = torch.tensor([[120, 100, 90]], dtype=torch.uint8)
    mean = to_ycocg(centre)[0].tolist()
    model = model_of_a_pixel([float(m) for m in mean], [1.5, 1.0, 1.2])
    around = torch.cartesian_prod(*[torch.arange(-20, 21)] * 3) + centre
    total = float(grey_log_prob(model, around.byte(), colour="ycocg").exp().sum())
    assert total == pytest.approx(1, abs=1e-6)
    assert total <= 1 + 1e-12


def test_measure_and_pictures():
    pixels = Pixels((2, 2, 3), colour="ycocg")
    x = some_bytes(60, 4)
    model = einet.Einet(einet.random_trees(12, 2, 2), einet.Gaussian(), num_sums=3)
    einet.fit(model, pixels.to_model(x), epochs=3, progress=False)
    found = measure(model, x, colour=pixels.colour)
    assert found.method == "integrated"
    mass = grey_log_prob(model, x, colour="ycocg")
    assert found.bits == pytest.approx(float(-mass.mean() / (12 * math.log(2))))
    assert found.nats == pytest.approx(float(log_density(model, x, colour="ycocg").mean()))
    bound = measure(model, x, colour=pixels.colour, method="dequantised", draws=50)
    assert bound.bits == pytest.approx(found.bits, abs=0.05)
    np.testing.assert_array_equal(
        pixels.to_pictures(pixels.to_model(x)), x.view(-1, 2, 2, 3).numpy()
    )
    drawn = model.sample(4, seed=0)
    assert pixels.to_pictures(drawn).shape == (4, 2, 2, 3)
    # The deviation of brightness, on the scale of bytes.
    deviation = torch.rand(2, 12)
    assert torch.equal(pixels.deviations(deviation), deviation.view(2, 2, 2, 3)[..., 0].double())
    grey = Pixels((2, 2, 3), scale=255.0).deviations(deviation)
    torch.testing.assert_close(
        grey, 255 * deviation.view(2, 2, 2, 3).double().square().mean(-1).sqrt()
    )


def test_a_file_remembers():
    pixels = Pixels((2, 2, 3), colour="ycocg")
    assert Pixels.from_metadata(pixels.metadata()) == pixels
    old = {"pixels": {"shape": [2, 2, 3], "scale": 1.0}}
    assert Pixels.from_metadata(old).colour == "rgb"
    with pytest.raises(ValueError, match="colour must be one of rgb, ycocg, got 'hsv'"):
        Pixels.from_metadata({"pixels": old["pixels"] | {"colour": "hsv"}})


def test_arguments():
    with pytest.raises(ValueError, match="colour must be one of rgb, ycocg, got 'lab'"):
        as_colour("lab")
    with pytest.raises(ValueError, match="colour must be rgb for images of 1 channel"):
        Pixels((2, 2, 1), colour="ycocg")
    model = einet.Einet(einet.random_trees(3, 1, 1), einet.Categorical(256), num_sums=1)
    with pytest.raises(ValueError, match="colour must be rgb for leaves that count grey values"):
        measure(model, some_bytes(2, 1), colour="ycocg")


@pytest.mark.gpu
def test_on_a_gpu():
    pixels = Pixels((2, 2, 3), colour="ycocg")
    x = some_bytes(60, 4)
    assert torch.equal(to_ycocg(x.cuda()).cpu(), to_ycocg(x))
    found = []
    for device in ("cpu", "cuda"):
        graph = einet.chow_liu(pixels.to_model(x), information="gaussian")
        model = einet.Einet(graph, einet.Gaussian(), num_sums=3, sums="linear", device=device)
        model.initialize(pixels.to_model(x), seed=0)
        rows = pixels.to_model(x.to(device))
        einet.fit(model, rows, epochs=4, batch_size=20, initialize=False, progress=False)
        measured = measure(model, x, colour=pixels.colour)
        found.append((measured.nats, measured.bits))
    assert found[1] == pytest.approx(found[0], rel=1e-4)
