"""Reading data."""

from einet.data import debd, images
from einet.data.batch import Batch, as_batch, as_labels, as_weights

__all__ = ["Batch", "as_batch", "as_labels", "as_weights", "debd", "images"]
