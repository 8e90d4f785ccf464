"""A family defined outside the library (``negative_binomial.py``) in a model, on both paths.

Its densities, parameters and samples go through ``test_families.py`` by its entry in ``CASES``.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import einet
from einet import Einet
from einet.families import FAMILIES
from tests.families.negative_binomial import NegativeBinomial
from tests.kernels.triton.leaf_check import DEVICES, Both, graph_of
from tests.oracle import NAN, Oracle, close

R = [0.5, 2.5, 10.0, 4.0]
GRAPH = einet.random_trees(4, depth=1, replicas=2)


def own_model(seed: int = 0, **options) -> Einet:
    return Einet(GRAPH, NegativeBinomial(R), 3, dtype=torch.float64, seed=seed, **options)


def counts(rows: int) -> torch.Tensor:
    """Two clusters of counts, some of them missing."""
    generator = np.random.default_rng(0)
    means = np.where(generator.random((rows, 1)) < 0.4, 1.0, 12.0)
    x = torch.from_numpy(stats.nbinom.rvs(R, R / (R + means), random_state=1)).double()
    x[torch.rand(x.shape, generator=torch.manual_seed(2)) < 0.1] = NAN
    return x


def test_densities():
    x = torch.tensor([[0.0, 3, 1, NAN], [7, 0, 25, 2], [NAN, NAN, NAN, NAN], [0.5, 1, 1, 1]])
    model = own_model()
    close(model.log_prob(x), Oracle(model).log_prob(x))
    assert model.log_prob(x).isinf().tolist() == [False, False, False, True]
    model.log_prob(x.nan_to_num(1.0).long())  # whole numbers may be given as such
    with pytest.raises(ValueError, match=r"outside the support of NegativeBinomial: integers"):
        model.initialize(x)


def test_learning_by_em():
    x = counts(400)
    model = own_model().initialize(x)
    means = [float(model.log_prob(x).detach().mean())]
    for _ in range(15):
        model.m_step(model.e_step(x))
        means.append(float(model.log_prob(x).detach().mean()))
    assert all(after >= before - 1e-9 for before, after in pairwise(means))
    assert means[-1] > means[0] + 0.1
    # At the fixed point of EM the model's means are those of the data.
    for _ in range(200):
        model.m_step(model.e_step(x.nan_to_num(3.0)))
    close(model.mean(), x.nan_to_num(3.0).mean(0), rtol=1e-4)


def test_sampling():
    model = own_model(seed=2)
    x = model.sample(40_000, seed=1)
    spread = model.variance().sqrt() / 200
    assert ((x.mean(0) - model.mean()).abs() < 5 * spread).all()
    assert torch.equal(x, x.round())
    assert (x >= 0).all()


def test_saving(tmp_path: Path):
    model = own_model(num_classes=2).initialize(counts(100).nan_to_num(0.0))
    model.save(tmp_path / "model.einet")
    loaded = einet.load(tmp_path / "model.einet")
    assert isinstance(loaded, Einet)
    x = counts(20)
    assert torch.equal(loaded.log_prob(x), model.log_prob(x))
    assert all(isinstance(family, NegativeBinomial) for family in loaded.families)


@pytest.fixture
def unknown() -> Iterator[None]:
    """A program that knows nothing of the family."""
    del FAMILIES["NegativeBinomial"]
    yield
    einet.families.register(NegativeBinomial)


def test_a_family_that_was_not_registered(tmp_path: Path, request: pytest.FixtureRequest):
    path = tmp_path / "model.einet"
    own_model().save(path)
    request.getfixturevalue("unknown")
    with pytest.raises(einet.FormatError, match=r"no family 'Negative.*families\.register"):
        einet.load(path)
    path.unlink()
    match = r"NegativeBinomial could not be loaded again: .*families\.register\(NegativeBinomial\)"
    with pytest.raises(ValueError, match=match):
        own_model().save(path)
    assert not path.exists()


# Triton's interpreter warns of what is computed for lanes that are masked out.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("device", DEVICES)
def test_the_fused_path(device: str):
    """Its leaves have no kernel of their own: the product serves them."""
    x = counts(40)
    both = Both(graph_of(1, 2, 1), NegativeBinomial(R), 3, device, data=x)
    both.all(x.float())
