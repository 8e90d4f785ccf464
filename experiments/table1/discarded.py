"""What did not find its way into the library: averaged parameters, dropped inputs of sums.

    python -m experiments.table1.discarded --device cuda [--datasets plants,jester,dna] [--seeds 3]

Models are those of :mod:`experiments.table1.ablations` without full-batch EM at the end. One run
gives three of them: as it was after its best epoch on validation rows, after its last epoch (no
early stopping), and the mean of its parameters over the last quarter of all steps. Written are
`discarded.json` and `discarded.md`. Finished runs are not repeated.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

import einet
from einet.data import Batch
from einet.learning.schedules import Schedule
from experiments.table1.ablations import compare, parse, variants
from experiments.table1.settings import Kind, Settings
from experiments.table1.train import MEMBERS, Data, begin, step_and_prior

__all__ = ["Averaged", "DropSums", "main", "runs"]

# From here on parameters are averaged.
_LATE = 0.75


class Averaged(einet.StochasticEM):
    """Stochastic EM that adds up the parameters after each late step."""

    def __init__(self, step_size: float | Schedule, prior: einet.Prior | None = None) -> None:
        super().__init__(step_size, prior)
        self._sums: list[Tensor] = []
        self._steps = 0

    @torch.no_grad()
    def step(self, model: einet.Model, batch: Any, progress: float = 0.0) -> Float[Tensor, ""]:
        mean = super().step(model, batch, progress)
        if progress >= _LATE:
            parameters = list(model.parameters())
            self._sums = self._sums or [
                torch.zeros_like(p, dtype=torch.float64) for p in parameters
            ]
            for total, parameter in zip(self._sums, parameters, strict=True):
                total += parameter
            self._steps += 1
        return mean

    @torch.no_grad()
    def put_means(self, model: einet.Model) -> None:
        """Let a model have the means: of weights and of leaves' expectations they are valid."""
        for total, parameter in zip(self._sums, model.parameters(), strict=True):
            parameter.copy_(total / self._steps)


class DropSums(einet.StochasticEM):
    """Stochastic EM in which every weight of a sum is left out of a step with some probability.

    The others are scaled up to a sum of 1 for the E-step. What was left out keeps its share in the
    M-step: nothing was learnt of it.
    """

    def __init__(
        self, step_size: float | Schedule, prior: einet.Prior | None, share: float, seed: int
    ) -> None:
        super().__init__(step_size, prior)
        self.share = share
        self._generator = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def step(self, model: einet.Model, batch: Any, progress: float = 0.0) -> Float[Tensor, ""]:
        assert isinstance(model, einet.Einet)
        assert isinstance(batch, Batch)
        layers = list(model.circuit.sum_layers)
        whole = [layer.weight.detach().clone() for layer in layers]
        for layer in layers:
            for weight in layer.simplices(layer.weight.detach()):
                draws = torch.rand(weight.shape, generator=self._generator).to(weight)
                kept = weight * (draws >= self.share)
                total = kept.sum(-1, keepdim=True)
                weight.copy_(torch.where(total > 0, kept / total, weight))
        statistics = model.e_step(batch)
        for layer, before, statistic in zip(layers, whole, statistics.weights, strict=True):
            triple = (layer.simplices(each) for each in (layer.weight.detach(), before, statistic))
            for weight, old, n in zip(*triple, strict=True):
                counts = weight * n
                spared = torch.where(weight > 0, 0.0, old)
                # Of what was left out as many as its share says; the others make up the rest.
                missing = counts.sum(-1, keepdim=True) * spared
                counts = counts * (1 - spared.sum(-1, keepdim=True)) + missing
                n.copy_(counts / old.clamp(min=torch.finfo(old.dtype).tiny))
            layer.weight.copy_(before)
        pseudo = self._pseudo_counts()
        counts = None if pseudo is None else pseudo.for_rows(float(len(batch)))
        model.m_step(statistics, self.step_size_at(progress), counts)
        return statistics.log_likelihood / statistics.rows


def runs(kind: Kind, rows: int, epochs: int) -> dict[str, tuple[Settings, float]]:
    """Settings, and the share of weights to leave out of each step."""
    found = variants(kind, rows, epochs)
    base, constant = found["no full-batch finish"], found["constant step size 0.1"]
    return {
        "as it is": (base, 0.0),
        "constant step size 0.1": (replace(constant, finish=0), 0.0),
        "0.1 of sums' inputs dropped": (base, 0.1),
        "0.3 of sums' inputs dropped": (base, 0.3),
    }


def train(data: Data, how: tuple[Settings, float], seed: int) -> list[dict[str, Any]]:
    """Validation log-likelihoods of the model after its best epoch, its last one, and averaged."""
    settings, share = how
    # The seed of the first member of the mixtures that others are.
    seed *= MEMBERS
    model = begin(data, settings, seed)
    average = Averaged(*step_and_prior(settings))
    learner = DropSums(*step_and_prior(settings), share, seed) if share else average
    history = einet.fit(
        model,
        data.train,
        data.valid,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        optimizer=learner,
        hide=settings.hide,
        seed=seed,
        progress=False,
    )
    if history.stopped == "interrupted":
        raise KeyboardInterrupt
    valid = {"": max(history.valid), ", last epoch": history.valid[-1]}
    if not share:
        average.put_means(model)
        with torch.no_grad():
            valid[", averaged"] = float(model.log_prob(data.valid).double().mean())
    told = {"share": share, "settings": settings.to_dict()}
    return [{"variant": name, "valid_ll": value, **told} for name, value in valid.items()]


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse("python -m experiments.table1.discarded", "discarded", arguments)
    compare(args, "discarded", runs, train)
    return 0


if __name__ == "__main__":
    sys.exit(main())
