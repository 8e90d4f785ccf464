"""Questions to a model: one file each, listed in :class:`Posterior`."""

from einet.inference.einet import EinetPosterior
from einet.inference.posterior import Posterior

__all__ = ["EinetPosterior", "Posterior"]
