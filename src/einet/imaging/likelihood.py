"""How likely images are: nats, and bits per dimension where these mean something.

A density on pixels can be made as large as one likes by narrow peaks at whole grey values, so that
bits per dimension are only ever computed from probabilities of the 256 grey values, or from a lower
bound of them:

``"discrete"``
    The leaves are distributions over 0, …, 255 themselves (Binomial, Categorical).
``"integrated"``
    Densities are integrated over the bin of each grey value, exactly.
``"dequantised"``
    The density is averaged over bins by uniform noise; a lower bound of the above by Jensen's
    inequality, for densities of families that cannot be integrated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from einet._memory import chunks, fitting
from einet.data.images import Images
from einet.families import ExponentialFamily
from einet.imaging.colour import COLOUR_LEVELS, as_colour, to_ycocg, to_ycocg_linear
from einet.inference.bins import bin_log_prob
from einet.models.base import Model
from einet.models.einet import Einet
from einet.models.mixture import Mixture

__all__ = [
    "Likelihood",
    "Method",
    "dequantised_log_prob",
    "grey_log_prob",
    "log_density",
    "measure",
    "method_for",
]

Method = Literal["discrete", "integrated", "dequantised"]

# Rows measured at a time: enough for the tables of bins to pay, if those are not too many cells.
_ROWS = 8192


@dataclass(frozen=True)
class Likelihood:
    """What :func:`measure` found.

    Attributes:
        rows: The number of images.
        nats: Their mean log-likelihood: that of the density on the scale ``byte / 255``, or of the
            bytes themselves if the model is ``"discrete"``.
        nats_error: The standard error of that mean.
        bits: Bits per dimension, −log₂ P / D of the grey values: the mean over images.
        bits_error: The standard error of that mean.
        method: Where the bits come from; see :mod:`einet.imaging.likelihood`.

    Example:
        >>> import einet
        >>> x = torch.tensor([[0, 255], [255, 0]], dtype=torch.uint8)
        >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Binomial(255), num_sums=2)
        >>> found = measure(model, x)
        >>> found.rows, found.method, found.bits == -found.nats / math.log(2) / 2
        (2, 'discrete', True)
    """

    rows: int
    nats: float
    nats_error: float
    bits: float
    bits_error: float
    method: Method


@torch.no_grad()
def measure(
    model: Model,
    images: Images | UInt8[Tensor, "rows variables"],
    *,
    scale: float | int = 1.0,
    colour: str = "rgb",
    method: str | None = None,
    draws: int = 4,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Likelihood:
    """The mean log-likelihood of images in nats and in bits per dimension.

    Args:
        model: A model of the variables ``value / scale``.
        images: The images, as bytes.
        scale: What values are divided by for the model; 1 for discrete leaves.
        colour: What the values are: bytes (``"rgb"``), or those of :mod:`einet.imaging.colour`
            (``"ycocg"``; not with discrete leaves).
        method: How bits are computed; by default the exact way that the model's families permit.
        draws, seed: For ``"dequantised"``: how many draws of noise for each image, and their seed.
        progress: Called with the number of images that are done, again and again.

    Example:
        >>> import einet
        >>> x = torch.tensor([[0, 255], [255, 0]], dtype=torch.uint8)
        >>> model = einet.Einet(einet.random_trees(2, 0, 1), einet.Categorical(256), num_sums=1)
        >>> for block in model.leaf.leaf_blocks:
        ...     _ = block.stored.data.fill_(1 / 256)
        >>> measure(model, x).bits  # equally likely grey values cost 8 bits each
        8.0
    """
    best = method_for(model)
    chosen = best if method is None else _checked(method, best)
    if chosen == "discrete" and scale != 1:
        raise ValueError(f"scale must be 1 for leaves that count grey values, got {scale}")
    if chosen == "discrete" and as_colour(colour) != "rgb":
        raise ValueError(f"colour must be rgb for leaves that count grey values, got {colour!r}")
    units = {"scale": scale, "colour": colour}
    densities, masses = [], []
    done = 0
    for number, x in enumerate(_parts(images, model.num_variables)):
        x = x.to(model.device)
        densities.append(log_density(model, x, **units, discrete=best == "discrete"))
        if chosen == "discrete":
            masses.append(densities[-1])
        elif chosen == "integrated":
            masses.append(grey_log_prob(model, x, **units))
        else:
            noise = torch.Generator(model.device).manual_seed(seed + number)
            masses.append(dequantised_log_prob(model, x, **units, draws=draws, generator=noise))
        done += len(x)
        if progress is not None:
            progress(done)
    nats, bits = torch.cat(densities), -torch.cat(masses) / (model.num_variables * math.log(2))
    (mean, error), (in_bits, error_in_bits) = _mean_and_error(nats), _mean_and_error(bits)
    return Likelihood(len(nats), mean, error, in_bits, error_in_bits, chosen)


def method_for(model: Model) -> Method:
    """The exact way to probabilities of grey values, or the bound where there is none."""
    kinds = {type(family) for family in _families(model)}
    counts = [family.discrete for family in _families(model)]
    if all(counts):
        return "discrete"
    if any(counts):
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(f"all leaves must be densities or all count grey values, got {names}")
    unknown = ExponentialFamily.log_prob_between
    exact = all(kind.log_prob_between is not unknown for kind in kinds)
    return "integrated" if exact else "dequantised"


def log_density(
    model: Model,
    x: UInt8[Tensor, "batch variables"],
    scale: float | int = 1.0,
    colour: str = "rgb",
    discrete: bool = False,
) -> Float[Tensor, " batch"]:
    r"""The log-density of y = byte / 255, in nats (float64).

    The model has a density of z = byte / scale. With y = z · scale / 255,
    :math:`\log p(y) = \log p(z) + D \log(255 / \text{scale})`. Other colours are taken without
    rounding, so that they are linear in the bytes, with determinant 1.

    Args:
        model, x, scale, colour: As in :func:`measure`.
        discrete: The model has a probability of each byte in place of a density: no units.
    """
    values = x if as_colour(colour) == "rgb" else to_ycocg_linear(x)
    logs = _log_prob(model, values if scale == 1 else values / scale)
    return logs if discrete else logs + model.num_variables * math.log(255 / scale)


def grey_log_prob(
    model: Model,
    x: UInt8[Tensor, "batch variables"],
    scale: float | int = 1.0,
    colour: str = "rgb",
    levels: int | None = None,
) -> Float[Tensor, " batch"]:
    """The log-probability of grey values under a density, in nats (float64).

    Grey value v is the bin from v − ½ to v + ½ (divided by the scale); the first reaches down to
    −∞ and the last up to ∞, so that all ``levels ** D`` images have probability 1 together. With
    other colours than ``"rgb"`` it is at most 1, as some of their numbers are of no bytes: bits
    are then rather too many than too few.

    Args:
        model, x, scale, colour: As in :func:`measure`.
        levels: How many grey values there are; 256 by default.
    """
    least, most = COLOUR_LEVELS[as_colour(colour)]
    if levels is not None:
        most = levels - 1
    inner = (torch.arange(least + 1, most + 1, dtype=torch.float64) - 0.5) / scale
    end = torch.tensor([torch.inf], dtype=torch.float64)
    bins = x if colour == "rgb" else to_ycocg(x) - least
    return bin_log_prob(model, bins, torch.cat([-end, inner, end]))


def dequantised_log_prob(
    model: Model,
    x: UInt8[Tensor, "batch variables"],
    scale: float | int = 1.0,
    colour: str = "rgb",
    *,
    draws: int = 4,
    generator: torch.Generator | None = None,
) -> Float[Tensor, " batch"]:
    r"""A lower bound of :func:`grey_log_prob` in expectation, for any density (float64).

    With u uniform on [0, 1) in each variable, z = (byte + u − ½) / scale falls into the bin of the
    byte, whose volume is :math:`\text{scale}^{-D}`, and by Jensen's inequality

    .. math:: \log P(\text{byte}) = \log \int_{\text{bin}} p(z)\,dz
              \ge \mathbb{E}_u\left[\log p(z)\right] - D \log \text{scale}.

    The right-hand side is estimated by the mean over some draws. (The noise is centred because the
    model was trained on bytes without any.)

    Args:
        model, x, scale, colour: As in :func:`measure`.
        draws: How many draws of u for each row.
        generator: Where they come from; on the model's device.
    """
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}")
    total = torch.zeros(len(x), dtype=torch.float64, device=model.device)
    x = x.to(model.device)
    values = (x if as_colour(colour) == "rgb" else to_ycocg(x)).double()
    for _ in range(draws):
        noise = torch.rand(x.shape, generator=generator, dtype=values.dtype, device=x.device)
        total += _log_prob(model, (values + noise - 0.5) / scale)
    return total / draws - model.num_variables * math.log(scale)


@torch.no_grad()
def _log_prob(model: Model, x: Tensor) -> Float[Tensor, " batch"]:
    # Densities take a few float64 for each cell, but no tables.
    parts = chunks(len(x), "image densities", 8 * model.num_variables, model.device)
    return torch.cat([model.log_prob(x[part]).double() for part in parts])


def _checked(method: Any, best: Method) -> Method:
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {', '.join(get_args(Method))}, got {method!r}")
    if (method == "discrete") != (best == "discrete") or (method, best) == (
        "integrated",
        "dequantised",
    ):
        raise ValueError(f"method must fit the model's leaves, as {best!r} does, got {method!r}")
    return method


def _families(model: Model) -> list[ExponentialFamily]:
    if isinstance(model, Mixture):
        return [family for part in model.models for family in _families(part)]
    assert isinstance(model, Einet)
    return [group.family for group in model.leaf.family_groups]


def _parts(images: Any, num_variables: int) -> Iterator[Tensor]:
    x = images if isinstance(images, Images) else torch.as_tensor(images)
    shape = (len(x), images.num_variables) if isinstance(x, Images) else tuple(x.shape)
    if len(shape) != 2 or shape[1] != num_variables or not shape[0]:
        raise ValueError(
            f"images must be rows of {num_variables} bytes, as many as the model has variables, "
            f"and at least one, got shape {list(shape)}"
        )
    if isinstance(x, Tensor) and x.dtype != torch.uint8:
        raise TypeError(f"images must be bytes (uint8), got {x.dtype}")
    rows = min(_ROWS, fitting("images", num_variables, least=256))
    return (x[start : start + rows] for start in range(0, shape[0], rows))


def _mean_and_error(values: Float[Tensor, " rows"]) -> tuple[float, float]:
    error = values.std() / math.sqrt(len(values)) if len(values) > 1 else torch.tensor(math.nan)
    return float(values.mean()), float(error)
