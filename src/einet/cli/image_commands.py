"""What the other commands of ``einet images`` do, once their arguments are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
import typer
from torch import Tensor

import einet
from einet.cli.console import as_device, counting
from einet.data.images import Framing, ImageFiles, Images
from einet.data.images.grey import all_grey
from einet.data.images.sources import open_source
from einet.imaging import Pixels, masks, measure, pictures, reading
from einet.imaging.inpainting import inpaint as inpainted
from einet.imaging.pixels import load_with_pixels
from einet.inference.sampling import Leaves

__all__ = [
    "Opened",
    "evaluate",
    "inpaint",
    "open_model",
    "open_set",
    "open_set_for",
    "read_covered",
    "sample",
]


_IN_A_ROW = 12


class Opened(NamedTuple):
    """A model and what its variables are."""

    model: einet.Model
    pixels: Pixels


def open_set(
    path: Path,
    kind: str,
    split: str,
    size: str | None,
    crop: str | None,
    channels: int | None,
    limit: int | None,
) -> Images:
    """The images that a command is given; ``channels`` None leaves it to the images."""
    images = reading.open_images(
        path,
        kind,
        split=split,
        size=None if size is None else reading.parse_size(size),
        crop=None if crop is None else reading.parse_size(crop, "crop"),
        channels=channels,
        limit=limit,
    )
    part = "" if images.split is None else f" ({images.split})"
    typer.echo(f"{len(images):,} images of {_shown(images.image_shape)} in {path}{part}")
    if channels is None and images.channels == 1 and isinstance(images, ImageFiles):
        typer.echo("all of them are grey, and read as one channel; --no-grey reads three", err=True)
    return images


def open_set_for(
    opened: Opened,
    path: Path,
    kind: str,
    split: str,
    size: str | None,
    crop: str | None,
    grey: bool,
    limit: int | None,
) -> Images:
    """The same, checked to be of a model's size and colours.

    Args:
        opened: The model.
        path, kind, split, size, crop, limit: As in :func:`open_set`.
        grey: Whether images with colours are turned grey for a model of grey images.
    """
    kind = reading.detect(path) if kind == "auto" and path.exists() else kind
    channels = opened.pixels.channels if kind in ("folder", "celeba") else None
    if channels == 1 and not grey and _have_colours(path, kind):
        raise ValueError(
            f"the images in {path} have colours, but the model is of grey images; --grey reads "
            "them as grey"
        )
    images = open_set(path, kind, split, size, crop, channels, limit)
    if images.image_shape != opened.pixels.shape:
        raise ValueError(
            f"the images in {path} are {_shown(images.image_shape)}, but the model is of images of "
            f"{_shown(opened.pixels.shape)}; --size resizes image files"
        )
    return images


def _have_colours(path: Path, kind: str) -> bool:
    return path.exists() and (kind == "celeba" or not all_grey(open_source(path)))


def open_model(path: Path, device: str | None) -> Opened:
    """A saved model, on a device."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no model {path}")
    return Opened(*load_with_pixels(path, as_device(device)))


def sample(
    path: Path,
    output: Path,
    number: int,
    leaves: str,
    columns: int | None,
    zoom: int,
    seed: int,
    device: str | None,
) -> None:
    """Write a picture of samples."""
    model, pixels = open_model(path, device)
    drawn = model.sample(number, leaves=_leaves(leaves), seed=seed)
    pictures.save_png(output, pictures.grid(pixels.to_pictures(drawn), columns, zoom))
    typer.echo(f"wrote {number} samples to {output}")


def read_covered(
    opened: Opened,
    image: Path,
    mask: Path | None,
    box: str | None,
    resize: bool,
    grey: bool = False,
) -> tuple[Tensor, Tensor]:
    """An image as a row of bytes, and which of its pixels are covered."""
    pixels = opened.pixels
    row = reading.read_image(image, pixels, resize, grey)
    if box is not None:
        return row, masks.box(pixels.grid, masks.Box.parse(box))
    assert mask is not None
    if not mask.is_file():
        raise FileNotFoundError(f"there is no mask {mask}")
    framing = Framing(pixels.grid, channels=1, enlarge=True) if resize else None
    return row, masks.read(mask, pixels.grid, framing)


def inpaint(
    opened: Opened,
    row: Tensor,
    covered: Tensor,
    output: Path,
    samples: int,
    leaves: str,
    zoom: int,
    seed: int,
) -> None:
    """Write what may lie under the covered part of an image."""
    model, pixels = opened
    draws = {"samples": samples, "leaves": _leaves(leaves), "seed": seed}
    filled = inpainted(model, pixels.to_model(row), covered, **draws)
    original = row.reshape(pixels.shape).double()
    hidden = torch.where(covered.unsqueeze(-1), torch.nan, original).numpy()
    drawn, mean = pixels.to_pictures(filled.samples[:, 0]), pixels.to_pictures(filled.mean[0])
    # Twice it fills the range, as no deviation exceeds 127.5.
    deviation = pixels.deviations(filled.deviation[0]).cpu().numpy()
    map_of_it = np.repeat(2 * deviation[..., None], pixels.channels, -1).clip(0, 255)
    parts: dict[str, Any] = {"covered": hidden}
    parts |= {f"sample-{number}": image for number, image in enumerate(drawn, start=1)}
    parts |= {"mean": mean, "deviation": map_of_it}
    for name, image in parts.items():
        pictures.save_png(output / f"{name}.png", _picture([image]))
    everything = [original.numpy(), *parts.values()]
    pictures.save_png(output / "overview.png", _picture(everything, zoom=zoom, margin=2))
    typer.echo(
        f"covered: {int(covered.sum())} of {covered.numel()} pixels; deviation given the rest "
        f"{deviation[covered.numpy()].mean():.1f} grey values on average, at most "
        f"{deviation.max():.1f}"
    )
    typer.echo(f"wrote {samples} samples, mean.png, deviation.png and overview.png to {output}/")


def _picture(images: Sequence[np.ndarray], zoom: int = 1, margin: int = 0) -> np.ndarray:
    stacked = np.stack([np.asarray(image, dtype=np.float64) for image in images])
    return pictures.grid(stacked, min(_IN_A_ROW, len(stacked)), zoom, margin)


def evaluate(opened: Opened, images: Images, draws: int, seed: int) -> None:
    """Print the likelihood of images."""
    model, pixels = opened
    with counting("evaluating", len(images)) as progress:
        units = {"scale": pixels.scale, "colour": pixels.colour}
        likelihood = measure(model, images, **units, draws=draws, seed=seed, progress=progress)
    (nats, bits), method = (likelihood.nats, likelihood.bits), likelihood.method
    unit = "log-probability" if method == "discrete" else "log-density of pixels/255"
    typer.echo(f"nats:               {nats:.2f} ± {likelihood.nats_error:.2f} ({unit})")
    typer.echo(f"bits per dimension: {bits:.4f} ± {likelihood.bits_error:.4f} ({method})")


def _leaves(text: str) -> Any:
    if text not in get_args(Leaves):
        raise ValueError(f"leaves must be one of {', '.join(get_args(Leaves))}, got {text!r}")
    return text


def _shown(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
