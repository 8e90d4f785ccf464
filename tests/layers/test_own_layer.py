"""A kind of sums defined outside the library (``shared_layer.py``), on both paths.

Shared weights are those of linear sums that happen to agree, so that the oracle of linear sums
serves here: it is given a linear model with every matrix copied to all nodes of a layer.
"""

import pytest
import torch
from torch import Tensor

import einet
from einet import Einet
from einet.layers import LinearLayer, MixingLayer, SumLayer, register_sums
from tests.inference.test_mode import best_point
from tests.inference.test_sampling import check_counts
from tests.kernels.triton.leaf_check import DEVICES
from tests.layers.shared_layer import SharedCompiler, SharedLayer
from tests.oracle import NAN, Joint, Oracle, close, random_model, random_rows, tracked
from tests.twins import Twins, engine, near

# Triton's interpreter warns of what is computed for lanes that are masked out.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

GRAPHS = {
    "one tree": einet.random_trees(4, depth=2, replicas=1),
    # A mixing layer above; nodes that several layers and several nodes of a layer read.
    "trees": einet.random_trees(4, depth=2, replicas=3),
    "grid": einet.poon_domingos((2, 2), delta=1),
    "strip": einet.poon_domingos((1, 4), delta=1),
}
FAMILIES = [einet.Bernoulli(), einet.Categorical(3), einet.Binomial(2), einet.Categorical(2)]
every_graph = pytest.mark.parametrize("graph", GRAPHS)
on_every_device = pytest.mark.parametrize("device", DEVICES)


def own_model(graph: str, **options) -> Einet:
    return random_model(GRAPHS[graph], FAMILIES, 3, seed=3, sums="shared", **options)


def linear_twin(model: Einet) -> Einet:
    """The same distribution with linear sums, which the oracle knows."""
    twin = Einet(
        model.graph, model.families, model.num_sums, num_classes=model.num_classes, sums="linear",
        dtype=torch.float64,
    )  # fmt: skip
    with torch.no_grad():
        for layer, other in zip(model.circuit.sum_layers, twin.circuit.sum_layers, strict=True):
            if isinstance(layer, SharedLayer):
                assert isinstance(other, LinearLayer)
                pairs = zip(layer.left.tolist(), layer.right.tolist(), strict=True)
                assert other.children_index.view(-1, 2).tolist() == [[*pair] for pair in pairs]
            other.weight.copy_(layer.weight.expand_as(other.weight))
        for block, other in zip(model.leaf.leaf_blocks, twin.leaf.leaf_blocks, strict=True):
            other.stored.copy_(block.stored)
        twin.log_class_prior.copy_(model.log_class_prior)
    return twin


def rows_of(model: Einet, count: int = 30) -> Tensor:
    x = random_rows(model, count, missing=0.3)
    x[2] = NAN
    return x


@every_graph
def test_densities(graph: str):
    model = own_model(graph, num_classes=2)
    x = rows_of(model)
    oracle = Oracle(linear_twin(model))
    close(model.log_prob(x), oracle.log_prob(x))
    close(model.class_log_prob(x), oracle.class_log_prob(x))
    states = Joint(linear_twin(model)).states
    close(model.log_prob(states).exp().sum(), 1.0)


@every_graph
def test_statistics_and_a_step(graph: str):
    model = own_model(graph, num_classes=2)
    x = rows_of(model)
    expected = Oracle(linear_twin(model)).statistics(x)
    found = model.e_step(x)
    after: dict[SumLayer, Tensor] = {}
    for layer, mine, theirs in zip(
        model.circuit.sum_layers, found.weights, expected.weights, strict=True
    ):
        shared = isinstance(layer, SharedLayer)
        assert shared or isinstance(layer, MixingLayer)
        n = torch.from_numpy(theirs.sum(0, keepdims=True) if shared else theirs)
        close(mine, n)
        if shared:
            target = layer.weight.detach() * n
            target /= target.sum(-1, keepdim=True)
            after[layer] = torch.lerp(layer.weight.detach(), target, 0.5)
    before = model.log_prob(x).sum()
    model.em_step(x, step_size=0.5)
    for layer, weight in after.items():
        close(layer.weight, weight, rtol=1e-5)
    assert model.log_prob(x).sum() > before


@every_graph
def test_gradients(graph: str):
    model = own_model(graph)
    x = rows_of(model)
    # Its plain parameters have become canonical ones, which ask for no gradients.
    assert not model.log_prob(x).requires_grad
    tracked(model).log_prob(x).sum().backward()
    statistics = model.e_step(x)
    for layer, statistic in zip(model.circuit.sum_layers, statistics.weights, strict=True):
        close(layer.weight.grad, statistic)


@every_graph
def test_samples(graph: str):
    model = own_model(graph)
    joint = Joint(linear_twin(model))
    check_counts(joint.count(model.sample(20_000, seed=1)), joint.distribution())
    evidence = torch.tensor([[1, NAN, NAN, 1], [NAN, 2, NAN, NAN]]).double()
    x = model.given(evidence).sample(8_000, seed=2)
    for row, e in enumerate(evidence):
        check_counts(joint.count(x[:, row]), joint.distribution(e))


@every_graph
def test_mode(graph: str):
    model = own_model(graph)
    twin, evidence = linear_twin(model), random_rows(model, 3, missing=0.6)
    evidence[0] = NAN
    found = model.given(evidence).mode()
    for row, e in enumerate(evidence):
        close(found[row], best_point(twin, e)[1])


def test_fitting_and_saving(tmp_path):
    model = own_model("trees").float()
    x = model.sample(200, seed=0)
    fresh = Einet(model.graph, FAMILIES, 3, sums="shared", seed=7)
    before = fresh.log_prob(x).mean()
    einet.fit(fresh, x, epochs=3, batch_size=50, optimizer=einet.StochasticEM(0.3))
    assert fresh.log_prob(x).mean() > before + 0.01
    model.save(tmp_path / "model.einet")
    assert torch.equal(einet.load(tmp_path / "model.einet").log_prob(x), model.log_prob(x))


@torch.no_grad()
def test_copies_side_by_side():
    models = [own_model("grid"), own_model("grid")]
    models[1].circuit.randomize(torch.Generator().manual_seed(9))
    twice, x = models[0].circuit.repeated(2).double(), rows_of(models[0])
    for c, model in enumerate(models):
        for layer, copied in zip(model.circuit.sum_layers, twice.sum_layers, strict=True):
            views = zip(copied.simplices(copied.weight), layer.simplices(layer.weight), strict=True)
            for into, weight in views:
                into[c::2] = weight
    leaf = models[0].leaf
    v = torch.empty(leaf.num_nodes, leaf.num_entries, len(x), dtype=torch.float64)
    m = torch.empty(leaf.num_nodes, len(x), dtype=torch.float64)
    leaf.propagate_(leaf.evidence(x, ~x.isnan()), v, m)
    values, count = twice.empty_values(len(x), v), 2 * leaf.num_nodes
    values.body.v[:count], values.body.m[:count] = (t.repeat_interleave(2, 0) for t in (v, m))
    twice.fill_(twice.weights, values)
    for c, model in enumerate(models):
        root = values.top[-2 + c : len(values.top.v) - 1 + c]
        close(root.v[0, 0].log() + root.m[0], model.log_prob(x))


# -- the fused path --------------------------------------------------------------------------------


@on_every_device
@every_graph
def test_the_fused_path_takes_a_detour(graph: str, device: str):
    twins = Twins(GRAPHS[graph], FAMILIES, 3, device, sums="shared", num_classes=2)
    x = twins.rows(20)
    labels = torch.arange(20) % 3 - 1
    twins.densities(x)
    twins.statistics(x, labels=labels, weights=torch.linspace(0.5, 2.0, 20))
    twins.gradients(x)
    twins.step(x)
    twins.queries(x, twins.rows(20, seed=5).nan_to_num(0.0))


@on_every_device
def test_choices_on_the_fused_path(device: str):
    twins = Twins(GRAPHS["trees"], FAMILIES, 3, device, sums="shared")
    evidence = twins.rows(5)
    with engine(device):
        x = twins.model.given(twins.on(evidence)).sample(2_000, seed=1).cpu()
        mode = twins.model.given(twins.on(evidence)).mode().cpu()
    near(mode.double(), twins.exact.given(evidence).mode())
    joint = Joint(linear_twin(twins.exact))
    for row, e in enumerate(evidence):
        check_counts(joint.count(x[:, row]), joint.distribution(e))


@on_every_device
def test_layers_with_and_without_fused_kernels(device: str):
    """Own sums below, fused ones above and beside: gradients and flows pass in both directions."""
    twins = Twins(GRAPHS["strip"], FAMILIES, 3, device, sums="every other")
    kinds = [type(layer) for layer in twins.model.circuit.sum_layers]
    assert {SharedLayer, LinearLayer, MixingLayer} <= set(kinds)
    x = twins.rows(20)
    twins.densities(x)
    twins.statistics(x)
    twins.gradients(x)
    twins.step(x)


@register_sums("every other")
class EveryOther(SharedCompiler):
    """Shared sums on the first level of a graph, linear ones on the next, and so on."""

    def add_partitions(self, partitions: list[int], outputs: int, space: str) -> dict[int, int]:
        before = sum(not isinstance(layer, MixingLayer) for layer in self.layers)
        if before % 2 == 0:
            return super().add_partitions(partitions, outputs, space)
        children = [
            [self.node[region] for region in self.graph.partitions[partition].children]
            for partition in partitions
        ]
        start = self.size[space]
        self.append(LinearLayer(children, self.num_sums, outputs, start, space), space)
        return {partition: start + number for number, partition in enumerate(partitions)}


def test_names_of_sums():
    with pytest.raises(ValueError, match="there are 'shared' sums already"):
        register_sums("shared")
    with pytest.raises(ValueError, match="one of 'einsum', 'linear'.*got 'other'.*register_sums"):
        Einet(GRAPHS["trees"], FAMILIES, 3, sums="other")
    with pytest.raises(ValueError, match=r"shared sums .*must equal num_sums \(3\), got 2"):
        Einet(GRAPHS["trees"], FAMILIES, 3, num_leaves=2, sums="shared")
    with pytest.raises(ValueError, match="shared sums need a graph that splits its root"):
        Einet(einet.random_trees(4, 0, 1), FAMILIES, 3, sums="shared")


def test_what_is_not_there_says_so():
    model = own_model("trees")
    layer, values = model.circuit.sum_layers[0], model.circuit.empty_values(2, torch.zeros(()))
    nodes, flows = layer.written(values), model.circuit.empty_flow(values)["body"]
    with pytest.raises(NotImplementedError, match="SharedLayer has no fused kernels"):
        layer.propagate_fused(layer.weight, values, nodes)
    with pytest.raises(NotImplementedError, match="SharedLayer has no fused kernels"):
        layer.backpropagate_fused(layer.weight, values, nodes.v, flows, None)
