"""Images as rows of bytes, from the files in which the public sets come and from your own.

One module for each kind of file: :mod:`~einet.data.images.idx` (MNIST, Fashion-MNIST),
:mod:`~einet.data.images.svhn`, :mod:`~einet.data.images.celeba`, :mod:`~einet.data.images.folder`
(any images), :mod:`~einet.data.images.array` (numpy). Each has a function ``load``, which returns
:class:`Images`. Nothing is downloaded.

Example:
    >>> import numpy as np
    >>> import einet
    >>> from einet.data import images
    >>> pixels = np.random.default_rng(0).integers(0, 256, (90, 4, 6, 3), dtype=np.uint8)
    >>> train = images.ArrayImages(pixels, name="noise", split="train")
    >>> train
    ArrayImages('noise', split='train', 90 images of 4×6×3)
    >>> graph = einet.poon_domingos(train.grid, delta=2, channels=train.channels)
    >>> model = einet.Einet(graph, einet.Binomial(255), num_sums=2)
    >>> history = einet.fit(model, train, epochs=1, batch_size=30, progress=False)
    >>> sum(model.log_prob(x).numel() for x in train.batches(40))
    90
"""

from einet.data.images import array, celeba, folder, idx, svhn
from einet.data.images.array import ArrayImages
from einet.data.images.base import Images
from einet.data.images.files import ImageFiles
from einet.data.images.framing import Framing
from einet.data.images.limits import ImageError

__all__ = [
    "ArrayImages",
    "Framing",
    "ImageError",
    "ImageFiles",
    "Images",
    "array",
    "celeba",
    "folder",
    "idx",
    "svhn",
]
