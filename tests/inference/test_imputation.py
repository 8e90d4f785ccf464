"""Missing cells filled in, against sums over all states and quadrature."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import einet
from einet.inference import imputation
from tests.oracle import CONTINUOUS, DISCRETE, NAN, Joint, close, random_model, random_rows

FAMILIES = DISCRETE | CONTINUOUS


def check(filled: Tensor, posterior_of: list[Joint], evidence: Tensor, model: einet.Einet) -> None:
    """The exact mode of each discrete cell, the mean of each continuous one."""
    assert not filled.isnan().any()
    for row, (joint, e) in enumerate(zip(posterior_of, evidence, strict=True)):
        mean, _ = joint.moments(e)
        for variable, family in enumerate(model.families):
            if not e[variable].isnan():
                assert filled[row, variable] == e[variable]
            elif family.discrete:
                p = joint.marginal(variable, e)
                chosen = int(np.searchsorted(joint.points[variable], float(filled[row, variable])))
                assert joint.points[variable][chosen] == float(filled[row, variable])
                assert p[chosen] >= p.max() * (1 - 1e-9)
            else:
                close(filled[row, variable], mean[variable], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family(name: str):
    model = random_model(einet.random_trees(2, depth=1, replicas=2), FAMILIES[name], 3)
    joint = Joint(model)
    evidence = random_rows(model, 8, missing=0.6)
    evidence[0] = NAN
    evidence[1] = random_rows(model, 1, seed=3, missing=0.0)[0]
    posterior = model.given(evidence)
    check(posterior.impute(), [joint] * 8, evidence, model)
    if FAMILIES[name].discrete:
        assert posterior.impute("mode").equal(posterior.impute())
    if name != "Categorical":
        assert posterior.impute("mean").equal(posterior.mean())


@settings(max_examples=20)
@given(
    kinds=st.lists(st.sampled_from(sorted(FAMILIES)), min_size=4, max_size=4),
    seed=st.integers(0, 99),
    rows_at_once=st.sampled_from([1, 2, 100]),
)
def test_mixed_families_in_parts(kinds: list[str], seed: int, rows_at_once: int):
    families = [FAMILIES[name] for name in kinds]
    model = random_model(einet.random_trees(4, depth=2, replicas=2), families, 2, seed=seed)
    evidence = random_rows(model, 4, seed=seed, missing=0.0)
    # Two missing at most: the oracle's grid grows with them.
    for row, missing in enumerate([(0, 1), (2, 3), (1,), ()]):
        evidence[row, list(missing)] = NAN
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(imputation, "_CPU_TABLE_BYTES", 64 * rows_at_once)
        filled = model.given(evidence).impute()
    check(filled, [Joint(model, row) for row in evidence], evidence, model)


def test_a_mode_that_max_product_misses():
    """p = (0.27, 0.37, 0.36), but the best of the leaves has state 0."""
    model = einet.Einet(einet.RegionGraph(1, [1], []), einet.Categorical(3), 3, dtype=torch.float64)
    with torch.no_grad():
        table = torch.tensor([[0.98, 0.01, 0.01], [0.02, 0.59, 0.39], [0.02, 0.39, 0.59]])
        model.leaf.leaf_blocks[0].stored.copy_(table.unsqueeze(1))
        model.circuit.weights[0].copy_(torch.tensor([[[0.26, 0.38, 0.36]]]))
    assert model.prior().mode().item() == 0
    assert model.prior().impute().item() == 1


def test_mixtures():
    """Nested, and with components that explain only some of the rows."""
    graph = einet.random_trees(3, depth=1, replicas=2)
    families = [einet.Binomial(2), einet.Categorical(3), einet.Gaussian()]
    narrow = [einet.Binomial(1), einet.Categorical(3), einet.Gaussian()]
    parts = [random_model(graph, families, 3, seed=seed) for seed in (0, 1)]
    few = random_model(graph, narrow, 3, seed=2)
    model = einet.Mixture([parts[0], einet.Mixture([parts[1], few], [0.5, 0.5])], [0.3, 0.7])
    evidence = torch.tensor([[NAN] * 3, [2, NAN, NAN], [NAN, 1, 0.5], [0, 0, 0.1]]).double()
    filled = model.given(evidence).impute()
    weights = [0.3, 0.35, 0.35]
    for row, e in enumerate(evidence):
        joints = [Joint(part, e) for part in (*parts, few)]
        masses = np.array([w * j.mass(e) for w, j in zip(weights, joints, strict=True)])
        shares = masses / masses.sum()
        for variable in e.isnan().nonzero().flatten().tolist():
            if variable == 2:
                means = [
                    joint.moments(e)[0][2] if share else 0.0
                    for share, joint in zip(shares, joints, strict=True)
                ]
                close(filled[row, 2], shares @ np.array(means), rtol=1e-7, atol=1e-8)
                continue
            p = np.zeros(3)
            for share, joint in zip(shares, joints, strict=True):
                if share:
                    marginal = joint.marginal(variable, e)
                    p[: len(marginal)] += share * marginal
            assert filled[row, variable] == p.argmax()
    assert filled[3].equal(evidence[3])


def test_samples_are_the_posteriors():
    model = random_model(einet.random_trees(3, depth=1, replicas=2), einet.Categorical(3), 3)
    posterior = model.given(random_rows(model, 5))
    assert posterior.impute("sample", seed=3).equal(posterior.sample(1, seed=3)[0])


def test_types_and_no_rows():
    model = einet.Einet(einet.random_trees(2, 1, 1), einet.Categorical(3), 2)
    x = torch.tensor([[0, 1], [2, 0]])
    known = torch.tensor([[True, False], [True, True]])
    filled = model.given(x, known).impute()
    assert filled.dtype == torch.float32
    assert filled[known].equal(x[known].float())
    assert model.given(torch.full((1, 2), NAN).double()).impute().dtype == torch.float64
    assert model.given(torch.empty(0, 2)).impute().shape == (0, 2)


def test_what_cannot_be_filled_in():
    families = [einet.Gaussian(), einet.Categorical(3)]
    model = random_model(einet.random_trees(2, depth=1, replicas=1), families, 2)
    nothing, one = torch.full((1, 2), NAN).double(), torch.tensor([[NAN, 1.0]]).double()
    with pytest.raises(ValueError, match="variable 1 is missing and holds categories"):
        model.given(nothing).impute("mean")
    with pytest.raises(ValueError, match="variable 0 is missing and continuous"):
        model.given(nothing).impute("mode")
    with pytest.raises(ValueError, match="seed is for method 'sample', but method is 'mean'"):
        model.given(one).impute("mean", seed=1)
    # What is not missing has no say.
    assert model.given(one).impute("mean").equal(model.given(one).impute())
    with pytest.raises(ValueError, match=r"probability 0 in 1 of 1 rows \(0\)"):
        model.given(torch.tensor([[NAN, 5.0]])).impute()
    other = random_model(einet.random_trees(2, depth=1, replicas=1), einet.Gaussian(), 2)
    both = einet.Mixture([model, other])
    with pytest.raises(ValueError, match="variable 1 is discrete in some components"):
        both.given(nothing).impute()
    assert not both.given(one).impute().isnan().any()


def test_numeric_categories_have_a_mean():
    family = einet.Categorical(5, numeric=True)
    model = random_model(einet.random_trees(2, depth=1, replicas=1), family, 3)
    p = model.prior().probabilities(0)[0]
    close(model.prior().impute("mean")[0, 0], float(p @ torch.arange(5.0).double()))
    assert math.isclose(model.prior().impute()[0, 0], p.argmax())
