"""How good a model of images is: on images it was trained on, and on images it was not."""

from __future__ import annotations

import torch

import einet
from einet.cli.console import counting, say
from einet.data.images import Images
from einet.imaging import Pixels, find_memorised, measure

__all__ = ["report"]

# So many images of each kind are measured: bits per dimension take their time on a CPU.
_MOST_IMAGES = 250


def report(
    model: einet.ClusteredEinet,
    pixels: Pixels,
    images: Images,
    held_out: Images | None,
    seed: int,
) -> None:
    """Print the likelihood of training and of held-out images; warn of what was memorised."""
    parts = {"training": images, "held-out": held_out}
    for name, part in parts.items():
        if part is not None:
            _print_likelihood(name, model, pixels, part, seed)
    memorised = find_memorised(model, images.tensor(), pixels, seed=seed)
    if memorised is not None and memorised.is_worth_a_warning:
        say(
            f"einet: warning: the model has memorised some of its images: {memorised}. More "
            "images, fewer clusters (--clusters) or a larger prior (--prior) help",
            err=True,
        )


def _print_likelihood(
    name: str, model: einet.ClusteredEinet, pixels: Pixels, images: Images, seed: int
) -> None:
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    some = images.take(order[:_MOST_IMAGES].sort().values)
    with counting(f"evaluating {name} images", len(some)) as progress:
        units = {"scale": pixels.scale, "colour": pixels.colour}
        likelihood = measure(model, some, **units, seed=seed, progress=progress)
    part = f" ({len(some)} of them)" if len(some) < len(images) else ""
    unit = "log-probability" if likelihood.method == "discrete" else "log-density of pixels/255"
    say(
        f"{name} images{part}: {likelihood.nats:.2f} ± {likelihood.nats_error:.2f} nats ({unit}), "
        f"{likelihood.bits:.4f} ± {likelihood.bits_error:.4f} bits per dimension"
    )
