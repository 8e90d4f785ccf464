"""The leaves' kernels against sums over single densities, whole and in blocks."""

import math

import numpy as np
import pytest
import torch

import einet
from einet.kernels import memory
from tests.oracle import CONTINUOUS, DISCRETE, Oracle, close, random_model, random_rows

FAMILIES = DISCRETE | CONTINUOUS
MIXED = list(FAMILIES.values())
CASES = {name: [family] * 8 for name, family in FAMILIES.items()} | {
    "all families": MIXED,
    "cardinalities": [einet.Categorical(c) for c in (2, 5, 3, 1, 4, 2, 7, 3)],
}
every_case = pytest.mark.parametrize("families", CASES.values(), ids=CASES.keys())
every_size = pytest.mark.parametrize(
    ("batch", "missing", "whole"),
    [(1, 0.0, True), (70, 0.4, True), (70, 0.4, False)],
    ids=["one row", "whole", "in blocks"],
)


@pytest.fixture(autouse=True)
def _budget(request, monkeypatch):
    """With a budget of one byte every block is as small as it gets."""
    if not request.node.callspec.params.get("whole", True):
        monkeypatch.setattr(memory, "_CPU_BLOCK_BYTES", 1)


def case(families: list, batch: int, missing: float = 0.4):
    # Leaves of one, two and three variables, so that there are several blocks of leaves.
    builder = einet.RegionGraphBuilder(8)
    first = [builder.leaf([0, 3, 7]), builder.leaf([1]), builder.leaf([2, 4]), builder.leaf([5, 6])]
    second = [
        builder.leaf([0, 1]),
        builder.leaf([2, 3, 4]),
        builder.leaf([5]),
        builder.leaf([6, 7]),
    ]
    root = builder.region(range(8))
    builder.partition(first, region=root)
    builder.partition(second, region=root)
    model = random_model(builder.build(), families, num_sums=2, num_leaves=3)
    return model, random_rows(model, batch, missing=missing)


def run(model: einet.Einet, x: torch.Tensor, maximise: bool = False):
    leaf, count = model.leaf, model.leaf.num_nodes
    evidence = leaf.evidence(x, ~x.isnan())
    v = torch.full((count, model.num_leaves, len(x)), math.nan, dtype=model.dtype)
    m = torch.full((count, len(x)), math.nan, dtype=torch.float64)
    with torch.no_grad():
        leaf.propagate_(evidence, v, m, maximise)
    return evidence, v, m


@every_case
@every_size
def test_values(families, batch: int, missing: float, whole: bool):
    model, x = case(families, batch, missing)
    x[0] = math.nan if missing else x[0]
    _, v, m = run(model, x)
    expected = Oracle(model).log_values(x)
    for leaf in range(model.leaf.num_nodes):
        close((v[leaf].log() + m[leaf]).T, expected["body", leaf], rtol=1e-10)
    close(v.amax(1), np.ones_like(m))


@every_case
def test_a_missing_cell_at_its_mode(families):
    batch = 70
    model, x = case(families, batch)
    oracle = Oracle(model)
    _, v, m = run(model, x, maximise=True)
    for leaf, stored in enumerate(oracle.leaves):
        total = torch.zeros(batch, model.num_leaves, dtype=torch.float64)
        for variable, parameters in stored.items():
            family = oracle.families[variable]
            at_mode = family.mode(parameters).expand(batch, -1)
            cell = torch.where(x[:, variable, None].isnan(), at_mode, x[:, variable, None])
            total += family.log_prob(cell, parameters)
        close((v[leaf].log() + m[leaf]).T, total, rtol=1e-10)


@every_case
@every_size
def test_statistics(families, batch: int, missing: float, whole: bool):
    model, x = case(families, batch, missing)
    evidence, v, _ = run(model, x)
    flow = torch.rand(v.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = model.leaf.statistics(evidence, flow)
    # Adding to what is there is adding.
    model.leaf.statistics(evidence, flow, found)
    for block, statistic in zip(model.leaf.leaf_blocks, found, strict=True):
        size = block.columns.shape[1]
        for n, leaf in enumerate(block.leaves.tolist()):
            for s, column in enumerate(block.columns[n]):
                variable = int(block.group.variables[column])
                seen = ~x[:, variable].isnan()
                p, pair = flow[leaf][:, seen], n * size + s
                family = block.group.family.at(column)
                close(statistic.total[:, pair], 2 * p.sum(1))
                close(statistic.weighted[:, pair], 2 * p @ family.T(x[seen, variable]))


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "Gaussian"])
def test_an_impossible_cell_spoils_its_row_only(name: str):
    model, x = case([FAMILIES[name]] * 8, 5)
    expected = Oracle(model).log_values(x)
    x[1, 3], x[1, 0] = -1.0, math.nan
    evidence, v, m = run(model, x)
    impossible = [leaf for leaf, stored in enumerate(Oracle(model).leaves) if 3 in stored]
    assert (v[impossible, :, 1] == 0).all()
    assert (m[impossible, 1] == -math.inf).all()
    assert not v.isnan().any()
    others = [0, 2, 3, 4]
    for leaf in range(model.leaf.num_nodes):
        values = (v[leaf].log() + m[leaf]).T
        close(values[others], expected["body", leaf][others], rtol=1e-10)
    flow = torch.ones_like(v)
    flow[:, :, 1] = 0
    for statistic in model.leaf.statistics(evidence, flow):
        assert statistic.total.isfinite().all()
        assert statistic.weighted.isfinite().all()
