"""Images as data of a model: pictures, masks, recipes, likelihoods and inpainting.

One module for each: :mod:`~einet.imaging.pixels` (between images and a model's variables),
:mod:`~einet.imaging.pictures` (grids and PNG files), :mod:`~einet.imaging.masks` (what is covered),
:mod:`~einet.imaging.likelihood` (nats and bits per dimension), :mod:`~einet.imaging.inpainting`,
:mod:`~einet.imaging.recipe` (structures, leaves and how to learn them),
:mod:`~einet.imaging.held_out` (images to choose by), :mod:`~einet.imaging.memorised` (copies of
training images) and :mod:`~einet.imaging.reading` (sets of images by their path). The command
``einet images`` is made of them.

Example:
    >>> import torch
    >>> from einet import imaging
    >>> images = torch.randint(0, 256, (200, 8 * 8), generator=torch.manual_seed(0)).byte()
    >>> model = imaging.Recipe(num_sums=2).model((8, 8, 1), num_clusters=2)
    >>> history = model.fit(images, epochs=2, progress=False)
    >>> imaging.measure(model, images).method
    'integrated'
    >>> covered = imaging.masks.half((8, 8), "top")
    >>> imaging.inpaint(model, images[:1], covered, samples=3).samples.shape
    torch.Size([3, 1, 64])
"""

from einet.imaging import masks, pictures, reading
from einet.imaging.held_out import hold_out
from einet.imaging.inpainting import Inpainting, inpaint
from einet.imaging.likelihood import Likelihood, measure
from einet.imaging.memorised import Memorised, find_memorised
from einet.imaging.pixels import Pixels
from einet.imaging.recipe import Recipe

__all__ = [
    "Inpainting",
    "Likelihood",
    "Memorised",
    "Pixels",
    "Recipe",
    "find_memorised",
    "hold_out",
    "inpaint",
    "masks",
    "measure",
    "pictures",
    "reading",
]
