"""Masses of leaves under events, and what is asked of densities given them."""

import math

import pytest
import torch

import einet
from einet.data.batch_events import Events, as_events
from einet.layers.leaf_events import event_pairs, log_masses
from tests.budgets import limit
from tests.oracle import close, random_model

CPU = torch.device("cpu")
FAMILIES = [einet.Gaussian(), einet.Categorical(3), einet.Binomial(5), einet.Gamma()]


def model() -> einet.Einet:
    return random_model(einet.random_trees(4, depth=1, replicas=3), FAMILIES, 2)


def events(rows: int) -> Events:
    generator = torch.Generator().manual_seed(rows)
    lower = torch.randn(rows, generator=generator)
    where = {
        0: einet.between(lower, lower + 1),
        1: einet.likelihood(torch.rand(rows, 3, generator=generator)),
        2: einet.between(2),
        3: einet.between(0.5, 1.5),
    }
    return as_events(where, 4, None, rows, CPU)


def test_masses_add_up_over_the_variables_of_a_leaf(monkeypatch: pytest.MonkeyPatch):
    leaf, some = model().leaf, events(5)
    found = log_masses(leaf, some)
    expected = torch.zeros_like(found)
    for block in leaf.leaf_blocks:
        s = block.columns.shape[1]
        for n, node in enumerate(block.leaves.tolist()):
            for position in range(s):
                variable = int(block.group.variables[block.columns[n, position]])
                stored = block.stored[:, n * s + position].detach()
                family = FAMILIES[variable]
                if variable == 1:
                    weighted = stored @ some.states[0].weights.T
                    expected[node] += (weighted / stored.sum(-1, keepdim=True)).log()
                    continue
                at = some.variables.index(variable)
                bounds = (some.lower[:, at], some.upper[:, at])
                expected[node] += family.log_prob_between(*bounds, stored.unsqueeze(1))
    close(found, expected)
    limit(monkeypatch, "block")
    close(log_masses(leaf, some), expected)
    assert log_masses(leaf, some[:0]).shape[-1] == 0


def test_peaks_are_the_largest_densities():
    leaf, some = model().leaf, events(5)
    peaks, masses = log_masses(leaf, some, peaks=True), log_masses(leaf, some)
    # No interval is wider than 1, and no weight larger.
    assert (peaks <= 20).all()
    counts = as_events({1: einet.among([2]), 2: einet.between(3, 3)}, 4, None, 5, CPU)
    close(log_masses(leaf, counts, peaks=True), log_masses(leaf, counts))
    assert masses.isfinite().all()


def test_intervals_within_an_event():
    leaf, some = model().leaf, events(3)
    for pairs in event_pairs(leaf, some):
        count, rows = len(pairs.leaf), 3
        middle = torch.full((count, rows), 1.0, dtype=torch.float64)
        end = torch.full_like(middle, torch.inf)
        below = pairs.log_prob_between(-end, middle.nextafter(-end))
        above = pairs.log_prob_between(middle, end)
        close((below.exp() + above.exp()), torch.ones_like(above), rtol=1e-9)
        x = torch.full((count, rows), 1.0, dtype=torch.float64)
        assert pairs.log_prob(x).shape == (2, count, rows)


def test_weights_of_states_that_are_next_to_impossible():
    graph = einet.random_trees(1, depth=0, replicas=1)
    one = einet.Einet(graph, einet.Binomial(255), num_sums=1, dtype=torch.float64)
    with torch.no_grad():
        one.leaf.leaf_blocks[0].stored.fill_(1e-3)
    mask = torch.zeros(2, 256, dtype=torch.bool)
    mask[0, 255] = mask[1, 0] = True
    with torch.no_grad():
        found = one.log_prob(where={0: einet.among(mask)})
    close(found, [255 * math.log(1e-3), 255 * math.log1p(-1e-3)], rtol=1e-9)
    assert one.given(where={0: einet.among(mask)}).mode()[:, 0].tolist() == [255, 0]
    close(one.given(where={0: einet.among(mask)}).mean()[:, 0], [255.0, 0.0])
