import pytest
import torch

import einet
from benchmarks.baseline import BernoulliLeaves, GaussianLeaves, LogDomainNetwork
from experiments.table1.sanity import same_start


def _pair(depth: int, replicas: int, num_sums: int) -> tuple[einet.Einet, LogDomainNetwork]:
    """The same network twice, with the same random parameters."""
    graph = einet.random_trees(num_variables=16, depth=depth, replicas=replicas, seed=1)
    model = einet.Einet(graph, einet.Gaussian(), num_sums, dtype=torch.float64)
    network = LogDomainNetwork(graph, num_sums).double()
    (block,) = model.leaf.leaf_blocks
    mean, variance = block.stored.detach().unflatten(1, network.columns.shape).unbind(-1)
    assert torch.equal(block.columns, network.columns)
    assert isinstance(network.leaves, GaussianLeaves)
    network.leaves.set(mean.movedim(0, -1), variance.movedim(0, -1))
    with torch.no_grad():
        for theirs, ours in zip(network.log_weights, model.circuit.weights, strict=False):
            theirs.copy_(ours.log().reshape(theirs.shape))
    return model, network


@pytest.mark.parametrize(("depth", "replicas", "num_sums"), [(1, 1, 2), (2, 3, 3), (4, 2, 1)])
def test_the_baseline_is_the_same_network(depth: int, replicas: int, num_sums: int):
    model, network = _pair(depth, replicas, num_sums)
    assert network.num_parameters == model.num_parameters
    x = torch.randn(7, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(network(x), model.log_prob(x), rtol=1e-9, atol=1e-9)


def test_the_baseline_takes_the_same_em_step():
    model, network = _pair(depth=2, replicas=3, num_sums=3)
    x = torch.randn(50, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        before = einet.StochasticEM(step_size=0.3).step(model, x)
        torch.testing.assert_close(network.em_step(x, 0.3), before, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(network(x), model.log_prob(x), rtol=1e-4, atol=1e-4)


def test_bernoulli_leaves_take_the_same_em_steps():
    graph = einet.random_trees(num_variables=12, depth=2, replicas=3, seed=1)
    model = einet.Einet(graph, einet.Bernoulli(), 3, dtype=torch.float64)
    network = same_start(model)
    assert isinstance(network.leaves, BernoulliLeaves)
    assert network.num_parameters == model.num_parameters
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(60, 12, generator=generator) < torch.linspace(0.1, 0.9, 12)).double()
    torch.testing.assert_close(network(x), model.log_prob(x), rtol=1e-9, atol=1e-9)
    for _ in range(3):
        before = einet.StochasticEM(step_size=0.3).step(model, x)
        torch.testing.assert_close(network.em_step(x, 0.3), before, rtol=1e-4, atol=1e-4)


def test_other_structures_are_refused():
    with pytest.raises(ValueError, match="equally many"):
        LogDomainNetwork(einet.random_trees(num_variables=7, depth=2, replicas=1), 2)
