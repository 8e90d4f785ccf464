"""Queries on a model: conditioning, sampling, moments, modes."""

from einet.inference.einet import EinetPosterior
from einet.inference.posterior import Posterior

__all__ = ["EinetPosterior", "Posterior"]
