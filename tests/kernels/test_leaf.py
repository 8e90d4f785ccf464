"""The leaves' kernels against sums over single densities, whole and in blocks."""

import math

import numpy as np
import pytest
import torch

import einet
from einet.kernels import dispatch
from einet.kernels import leaf as registry
from einet.kernels.leaf_kernel import FusedEvidence
from einet.kernels.torch.leaf_table import TableKernel
from tests.budgets import limit
from tests.kernels.triton.leaf_check import interpreted
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
    parameters = getattr(request.node, "callspec", None)
    if parameters is not None and not parameters.params.get("whole", True):
        limit(monkeypatch, "block")


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
    layer, count = model.leaf, model.leaf.num_nodes
    evidence = layer.evidence(x, ~x.isnan())
    v = torch.full((count, model.num_leaves, len(x)), math.nan, dtype=model.dtype)
    m = torch.full((count, len(x)), math.nan, dtype=torch.float64)
    with torch.no_grad():
        layer.propagate_(evidence, v, m, maximise)
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


# -- kernels by name -------------------------------------------------------------------------------


@pytest.fixture
def names_as_before(monkeypatch):
    """Registers to write into that are put back afterwards."""
    monkeypatch.setattr(registry, "_torch", dict(registry._torch))
    monkeypatch.setattr(registry, "_fused", dict(registry._fused))
    registry.fused_kernel.cache_clear()
    yield
    registry.fused_kernel.cache_clear()


class Counting(TableKernel):
    """A kernel of one's own: the table, and a count of how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def log_values(self, theta, offset, columns, evidence):
        self.asked += 1
        return super().log_values(theta, offset, columns, evidence)


class Own(einet.Categorical):
    """A family that names a kernel of its own."""

    kernel = "counting"


def one_step(family: einet.ExponentialFamily, backend: dispatch.Backend):
    """log p of some rows before and after a step of EM, and the parameters of the leaves."""
    model = einet.Einet(einet.random_trees(4, 1, 2), family, 2, seed=1)
    x = torch.randint(0, 3, (20, 4), generator=torch.manual_seed(0)).float()
    x[3] = x[5, 1:3] = math.nan
    with dispatch.backend(backend), torch.no_grad():
        before = model.log_prob(x)
        model.em_step(x, step_size=0.5)
        return before, model.log_prob(x), *(block.stored for block in model.leaf.leaf_blocks)


# Triton's interpreter warns of what is computed for lanes that are masked out.
in_interpreter = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@in_interpreter
@pytest.mark.usefixtures("names_as_before")
@pytest.mark.parametrize("backend", ["torch", pytest.param("triton", marks=interpreted)])
def test_a_kernel_of_ones_own(backend: dispatch.Backend):
    kernel = Counting()
    registry.register_leaf_kernel("counting", kernel)
    expected = one_step(einet.Categorical(3), "torch")
    for found, exact in zip(one_step(Own(3), backend), expected, strict=True):
        torch.testing.assert_close(found, exact, rtol=2e-4, atol=1e-5)
    # Where it has no fused variant, the product that serves all families takes its place.
    assert (kernel.asked > 0) == (backend == "torch")


@interpreted
@in_interpreter
@pytest.mark.usefixtures("names_as_before")
def test_a_fused_kernel_of_ones_own():
    from einet.kernels.triton.leaf_table import StatesKernel

    used = []

    class Fused(StatesKernel):
        def values(self, pairs, evidence, natural, out):
            used.append(evidence.batch)
            super().values(pairs, evidence, natural, out)

    registry.register_leaf_kernel("counting", registry.TABLE, Fused)
    expected = one_step(einet.Categorical(3), "triton")
    for found, exact in zip(one_step(Own(3), "triton"), expected, strict=True):
        assert torch.equal(found, exact)
    assert used


@pytest.mark.usefixtures("names_as_before")
def test_names_of_kernels():
    with pytest.raises(ValueError, match="there is a leaf kernel 'table' already"):
        registry.register_leaf_kernel("table", Counting())
    for find in (registry.torch_kernel, registry.fused_kernel):
        with pytest.raises(ValueError, match="one of 'product', .*got 'counting'.*register_leaf"):
            find("counting")
    with pytest.raises(ValueError, match="got 'counting'"):
        one_step(Own(3), "torch")


def test_a_kernel_without_a_step_says_so():
    from einet.kernels.triton.leaf_product import KERNEL

    pairs = einet.Einet(einet.random_trees(2, 1, 1), einet.Poisson(), 2).leaf.leaf_blocks[0].pairs
    assert not KERNEL.can_step(pairs)
    evidence, one = FusedEvidence(KERNEL, 1, torch.zeros(2, 2, 1)), torch.ones(())
    with pytest.raises(NotImplementedError, match="FusedProductKernel has no step"):
        KERNEL.step(pairs, evidence, one, one, None)
