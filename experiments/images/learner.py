"""How a model learns: stochastic EM with the steps, the momentum and the prior of its settings."""

from __future__ import annotations

from typing import Any

import einet
from experiments.images.settings import Settings
from experiments.images.soften import Softened

__all__ = ["learner", "prior"]

_SCHEDULES = {"linear": einet.linear, "exponential": einet.exponential, "cosine": einet.cosine}


def learner(settings: Settings, first_step: float | None = None) -> einet.StochasticEM:
    """That of the settings; with a ``first_step``, λ falls from there."""
    first = settings.first_step if first_step is None else first_step
    step: Any = first
    if first != settings.last_step:
        step = _SCHEDULES[settings.schedule](first, settings.last_step)
    if settings.soften:
        return Softened(step, prior(settings), settings.soften, settings.momentum)
    return einet.StochasticEM(step, prior(settings), settings.momentum)


def prior(settings: Settings) -> einet.Prior:
    """Its pseudo-counts."""
    return einet.Prior(settings.prior_sums, settings.prior_leaves)
