"""What the other commands of ``einet images`` do, once their arguments are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

import einet
from einet._memory import check_room
from einet.cli.console import as_device, counting, say
from einet.cli.outputs import Output, check_outputs, check_space
from einet.data.images import Framing, ImageFiles, Images
from einet.data.images.grey import all_grey
from einet.data.images.limits import MAX_PIXELS
from einet.data.images.sources import open_source
from einet.imaging import Pixels, masks, measure, pictures, reading
from einet.imaging.inpainting import inpaint as inpainted
from einet.imaging.pixels import load_with_pixels
from einet.inference.sampling import Leaves

__all__ = [
    "Opened",
    "check_overview",
    "check_pictures",
    "evaluate",
    "inpaint",
    "open_model",
    "open_set",
    "open_set_for",
    "picture_names",
    "read_covered",
    "sample",
]


_IN_A_ROW = 12
# Each of them is a file.
_MOST_SAMPLES = 100_000
# A value of a sample on its way into a picture: as the model draws it, in float64, and as a byte.
_BYTES_A_VALUE = 24


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
    max_pixels: int = MAX_PIXELS,
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
        max_pixels=max_pixels,
    )
    part = "" if images.split is None else f" ({images.split})"
    size = f"{len(images) * images.num_variables / 1e6:,.1f} MB"
    say(f"{len(images):,} images of {_shown(images.image_shape)} in {path}{part}, {size}")
    if channels is None and images.channels == 1 and isinstance(images, ImageFiles):
        say("all of them are grey, and read as one channel; --no-grey reads three", err=True)
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
    max_pixels: int = MAX_PIXELS,
) -> Images:
    """The same, checked to be of a model's size and colours.

    Args:
        opened: The model.
        path, kind, split, size, crop, limit, max_pixels: As in :func:`open_set`.
        grey: Whether images with colours are turned grey for a model of grey images.
    """
    kind = reading.detect(path) if kind == "auto" and path.exists() else kind
    channels = opened.pixels.channels if kind in ("folder", "celeba") else None
    if channels == 1 and not grey and _have_colours(path, kind, max_pixels):
        raise ValueError(
            f"the images in {path} have colours, but the model is of grey images; --grey reads "
            "them as grey"
        )
    images = open_set(path, kind, split, size, crop, channels, limit, max_pixels)
    if images.image_shape != opened.pixels.shape:
        raise ValueError(
            f"the images in {path} are {_shown(images.image_shape)}, but the model is of images of "
            f"{_shown(opened.pixels.shape)}; --size resizes image files"
        )
    return images


def _have_colours(path: Path, kind: str, max_pixels: int) -> bool:
    return path.exists() and (kind == "celeba" or not all_grey(open_source(path), max_pixels))


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
    max_pixels: int = MAX_PIXELS,
) -> None:
    """Write a picture of samples."""
    picture = Output("output", output, "png", makes_folder=True)
    check_outputs([picture], {"model": path})
    how = _leaves(leaves)
    model, pixels = open_model(path, device)
    _check_picture(picture, number, pixels, columns, zoom, max_pixels, "number")
    drawn = model.sample(number, leaves=how, seed=seed)
    pictures.save_png(output, pictures.grid(pixels.to_pictures(drawn), columns, zoom))
    say(f"wrote {number} samples to {output}")


def _check_picture(
    output: Output,
    count: int,
    pixels: Pixels,
    columns: int | None,
    zoom: int,
    max_pixels: int,
    option: str,
) -> None:
    """Raise if a picture of so many images is too large to be drawn or written."""
    height, width = pictures.picture_size(count, pixels.grid, columns, zoom)
    if height * width > max_pixels:
        raise ValueError(
            f"{option}: {count} images of {_shown(pixels.grid)} with zoom {zoom} make a picture of "
            f"{height}×{width} pixels, more than the {max_pixels} that are allowed; a larger "
            "--max-pixels allows more"
        )
    check_room(f"{count} images", count * pixels.num_variables * _BYTES_A_VALUE)
    check_space([(output, 3 * height * width)])


def picture_names(samples: int) -> list[str]:
    """What :func:`inpaint` writes."""
    drawn = (f"sample-{number}" for number in range(1, samples + 1))
    return ["covered", *drawn, "mean", "deviation", "overview"]


def check_pictures(
    output: Path, samples: int, *, model: Path, image: Path, mask: Path | None
) -> None:
    """Raise if the pictures of an inpainting cannot, or must not, be written."""
    if samples > _MOST_SAMPLES:
        raise ValueError(f"samples must be at most {_MOST_SAMPLES}, got {samples}")
    files = [
        Output("output", output / f"{name}.png", "png", makes_folder=True)
        for name in picture_names(samples)
    ]
    inputs = {"model": model, "image": image} | ({} if mask is None else {"mask": mask})
    check_outputs(files, inputs)


def check_overview(
    opened: Opened, output: Path, samples: int, zoom: int, max_pixels: int = MAX_PIXELS
) -> None:
    """Raise if the picture of everything is too large to be drawn or written."""
    picture = Output("output", output / "overview.png", "png", makes_folder=True)
    count = len(picture_names(samples))
    columns = min(_IN_A_ROW, count)
    _check_picture(picture, count, opened.pixels, columns, zoom, max_pixels, "samples")


def read_covered(
    opened: Opened,
    image: Path,
    mask: Path | None,
    box: str | None,
    resize: bool,
    grey: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> tuple[Tensor, Tensor]:
    """An image as a row of bytes, and which of its pixels are covered."""
    pixels = opened.pixels
    row = reading.read_image(image, pixels, resize, grey, max_pixels)
    if box is not None:
        return row, masks.box(pixels.grid, masks.Box.parse(box))
    assert mask is not None
    if not mask.is_file():
        raise FileNotFoundError(f"there is no mask {mask}")
    size = pixels.grid if resize else None
    framing = Framing(size, channels=1, enlarge=resize, max_pixels=max_pixels)
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
    say(
        f"covered: {int(covered.sum())} of {covered.numel()} pixels; deviation given the rest "
        f"{deviation[covered.numpy()].mean():.1f} grey values on average, at most "
        f"{deviation.max():.1f}"
    )
    say(f"wrote {samples} samples, mean.png, deviation.png and overview.png to {output}/")


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
    say(f"nats:               {nats:.2f} ± {likelihood.nats_error:.2f} ({unit})")
    say(f"bits per dimension: {bits:.4f} ± {likelihood.bits_error:.4f} ({method})")


def _leaves(text: str) -> Any:
    if text not in get_args(Leaves):
        raise ValueError(f"leaves must be one of {', '.join(get_args(Leaves))}, got {text!r}")
    return text


def _shown(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
