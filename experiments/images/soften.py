"""Stochastic EM for tables of grey values that become smooth.

A table of 256 probabilities does not know that grey values 100 and 101 are much alike: it learns
each of them from the few images that have it. Softened, every image counts for the values around
its own as well (Liu and Van den Broeck, 2021, soften data that way).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

import einet
from einet.data import Batch
from einet.families import Categorical
from einet.layers import LeafBlock
from einet.learning.learner import Objective
from einet.learning.schedules import Schedule

__all__ = ["Softened", "neighbours"]


class Softened(einet.StochasticEM):
    r"""Stochastic EM of which Categorical leaves take softened statistics.

    With S of :func:`neighbours` a table p moves to :math:`(1-\lambda) p + \lambda S^\top
    p^\text{mini}`. The E-step is of the images as they are.

    Args:
        step_size, prior, momentum: As in :class:`einet.StochasticEM`.
        width: How far from its own value an image counts, as a standard deviation in grey values.
    """

    def __init__(
        self,
        step_size: float | Schedule,
        prior: einet.Prior | None,
        width: float,
        momentum: float = 0.0,
    ) -> None:
        if not 0 < width < math.inf:
            raise ValueError(f"width must be a positive number, got {width}")
        super().__init__(step_size, prior, momentum)
        self.width = width
        #: Of each block of leaves its tables, room for what they were, and S.
        self._tables: list[tuple[Tensor, Tensor, Tensor]] = []

    def start(
        self,
        model: einet.Model,
        rows: Iterable[Batch] | None = None,
        objective: Objective = "generative",
    ) -> None:
        super().start(model, rows, objective)
        assert rows is not None
        blocks = _blocks(model)
        levels = blocks[0].stored.shape[-1]
        counts = torch.zeros(levels, dtype=torch.float64, device=model.device)
        for part in rows:
            counts += torch.bincount(part.x.flatten().int(), minlength=levels)
        S = neighbours(counts, self.width).to(blocks[0].stored)
        tables = [block.stored.detach().view(-1, levels) for block in blocks]
        self._tables = [(table, torch.empty_like(table), S) for table in tables]

    @torch.no_grad()
    def step(self, model: einet.Model, batch: Any, progress: float = 0.0) -> Float[Tensor, ""]:
        for table, before, _ in self._tables:
            before.copy_(table)
        mean = super().step(model, batch, progress)
        kept = 1 - self.step_size_at(progress)
        for table, before, S in self._tables:
            # In place: recorded steps of a GPU go on with these very tensors.
            torch.addmm(before, table - kept * before, S, beta=kept, out=table)
        return mean

    @torch.no_grad()
    def finish(self, model: einet.Model) -> None:
        super().finish(model)
        self._tables = []
        for block in _blocks(model):
            # What was moved away from may lie below its lower bound by now.
            block.stored.copy_(block.family.project(block.stored.double()))


def neighbours(counts: Float[Tensor, " levels"], width: float) -> Float[Tensor, "levels levels"]:
    r"""How much a grey value a counts for each b: S, whose rows add up to 1.

    .. math:: S_{ab} = (1 - r_a)\,\delta_{ab} + r_a \frac{r_b\,g_{ab}}{\sum_c r_c\,g_{ac}}, \quad
              g_{ab} = \exp\left(-\frac{(a - b)^2}{2 \sigma^2}\right)

    Some values are not like their neighbours: the 0 of the background, or that at which a scanner
    saturated. They are the frequent ones. With a share h of all pixels that is much larger than the
    share u of all values if they were equally frequent, :math:`r = u / (h + u)` is small, and a
    value hardly gives to its neighbours or takes from them.
    """
    size = len(counts)
    levels = torch.arange(size, dtype=torch.float64, device=counts.device)
    share = counts.to(levels) / counts.sum()
    ordinary = 1 / (1 + size * share)
    near = torch.exp(-0.5 * ((levels.unsqueeze(1) - levels) / width) ** 2) * ordinary
    near = near / near.sum(1, keepdim=True)
    return torch.diag(1 - ordinary) + ordinary.unsqueeze(1) * near


def _blocks(model: einet.Model) -> list[LeafBlock]:
    blocks = [module for module in model.modules() if isinstance(module, LeafBlock)]
    others = {type(block.family).__name__ for block in blocks} - {Categorical.__name__}
    if others:
        raise TypeError(f"leaves must be Categorical to be softened, got {', '.join(others)}")
    return blocks
