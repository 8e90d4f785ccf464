"""Reading data."""

from einet.data import debd
from einet.data.batch import Batch, as_batch, as_labels, as_weights

__all__ = ["Batch", "as_batch", "as_labels", "as_weights", "debd"]
