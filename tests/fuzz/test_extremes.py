"""EM on extreme columns: any families, any structure, any type, initialised or not."""

import math
from pathlib import Path

import numpy as np
import torch

import einet
from tests.extremes import KINDS, climb, columns, rounding
from tests.fuzz.campaign import Campaign
from tests.oracle import Oracle


def _case(random: np.random.Generator, _: Path) -> str:
    variables, rows = int(random.integers(1, 5)), int(random.integers(2, 24))
    names = list(random.choice(list(KINDS), variables))
    names = [names[0]] * variables if random.random() < 0.5 else names
    kinds = [KINDS[name] for name in names]

    def table() -> torch.Tensor:
        return torch.from_numpy(np.stack([columns(random, kind, rows) for kind in kinds], 1))

    x, weights = table(), torch.ones(rows, dtype=torch.float64)
    x[torch.from_numpy(random.random(x.shape) < random.choice([0.0, 0.3]))] = math.nan
    if random.random() < 0.5:
        weights = torch.from_numpy(random.choice([1e-6, 0.5, 1.0, 3.0, 1e6], rows))
    depth = int(random.integers(1, 3)) if variables > 2 else variables - 1
    replicas = int(random.integers(1, 4)) if depth else 1
    model = einet.Einet(
        einet.random_trees(variables, depth, replicas, seed=0),
        [kind.family for kind in kinds],
        int(random.integers(1, 5)),
        sums=str(random.choice(["einsum", "linear"])),
        dtype=[torch.float32, torch.float64][int(random.integers(2))],
        seed=int(random.integers(100)),
    )
    start = str(random.choice(["random", "initialised", "initialised on other rows"]))
    if start != "random":
        model.initialize(x if start == "initialised" else table(), seed=int(random.integers(100)))
    climb(model, x, weights, kinds, steps=4, whole=bool(random.integers(2)))

    # What EM has ended with is evaluated as density by density, and can be drawn from.
    one = torch.ones(1, dtype=torch.float64)
    found = model.e_step(x, weights=weights).log_likelihood.item()
    exact = float(weights @ torch.from_numpy(Oracle(model).log_prob(x)))
    slack = rounding(model, x, weights, kinds) + 2.0**-40 * abs(exact)
    assert abs(found - exact) <= slack, f"{found!r} is not {exact!r}"
    drawn = model.sample(8, seed=0)
    assert drawn.isfinite().all()
    assert model.e_step(drawn).impossible == 0, f"drawn outside the support: {drawn}"
    for d, kind in enumerate(kinds):
        if kind.family.discrete:
            alone = torch.where(torch.arange(variables) == d, x, math.nan)
            most = model.log_prob(alone).double().max().item()
            assert most <= rounding(model, x[:1], one, kinds), f"a probability of {most} nats"
    return start


def test_extremes(campaign: Campaign):
    report = campaign.run("extremes", _case, 10)
    assert sum(report.answers.values()) == report.tried
