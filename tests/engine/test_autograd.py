"""Gradients of log_prob in rows and parameters, against enumeration and finite differences."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import forward_ad, gradcheck

import einet
from einet.data.batch import as_batch
from einet.engine import autograd
from einet.kernels import dispatch
from einet.layers import Circuit
from einet.layers.tree import LinearTree
from tests.budgets import limit
from tests.kernels.triton.leaf_check import interpreted
from tests.learning.complete import Complete
from tests.oracle import CONTINUOUS, DISCRETE, close, random_model, random_rows, tracked
from tests.structures.strategies import region_graphs

NAN, INF = float("nan"), float("inf")
GRAPH = einet.random_trees(4, depth=2, replicas=2, seed=1)
MIXED = [einet.Gaussian(), einet.Categorical(3), einet.Gamma(), einet.Bernoulli()]


def gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The gradient in x of a function's sum over finite rows."""
    x = x.detach().clone().requires_grad_()
    value = function(x)
    value[value > -INF].sum().backward()
    assert x.grad is not None
    return x.grad


def enumerated(model: einet.Einet, **labels: Any) -> Callable[[Tensor], Tensor]:
    """log p(x) as a sum over all induced trees, which torch differentiates by itself."""
    complete = Complete(model)
    return lambda x: complete.log_joint(x, **labels).logsumexp(0)


# -- in the rows -----------------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    graph=region_graphs(max_variables=4, max_children=3),
    names=st.lists(st.sampled_from(sorted(CONTINUOUS)), min_size=4, max_size=4),
    num_classes=st.sampled_from([1, 2]),
    labelled=st.booleans(),
    seed=st.integers(0, 99),
)
def test_in_x_against_enumeration(
    graph: einet.RegionGraph, names: list[str], num_classes: int, labelled: bool, seed: int
):
    families = [CONTINUOUS[name] for name in names[: graph.num_variables]]
    model = random_model(graph, families, 2, num_classes=num_classes, seed=seed)
    x = random_rows(model, 3, seed)
    labels = torch.tensor([0, num_classes - 1, -1]) if labelled else None
    wanted = gradient(enumerated(model, labels=labels), x)
    found = gradient(lambda x: model.log_prob(x, labels=labels), x)
    close(found, wanted, rtol=1e-8, atol=1e-8)
    assert (found[x.isnan()] == 0).all()


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("sums", ["einsum", "linear"])
def test_gradcheck_in_x(name: str, sums: str):
    model = random_model(GRAPH, CONTINUOUS[name], 2, num_classes=2, sums=sums)
    x = random_rows(model, 3, missing=0.0).requires_grad_()
    assert gradcheck(model.log_prob, (x,))
    assert gradcheck(model.class_log_prob, (x,))
    assert gradcheck(model.class_posterior, (x,), atol=1e-6)


def test_in_x_of_a_mixture():
    parts = [random_model(GRAPH, CONTINUOUS["Gamma"], 2, seed=seed) for seed in (0, 1)]
    model = einet.Mixture([einet.Mixture(parts, [0.2, 0.8]), random_model(GRAPH, MIXED[2], 2)])
    x = random_rows(parts[0], 4, missing=0.0)
    assert gradcheck(model.log_prob, (x.clone().requires_grad_(),))
    x[1, 2], x[2, 0] = NAN, -1.0
    found = gradient(model.log_prob, x)
    assert found[1, 2] == 0
    assert (found[2] == 0).all()
    assert (found[[0, 3]] != 0).all()


def test_discrete_columns_and_impossible_rows_get_zero():
    model = random_model(GRAPH, MIXED, 2)
    x = random_rows(model, 5, missing=0.0)
    x[1, 2], x[2, 1], x[3, 0], x[4, 0] = -1.0, 7.0, INF, NAN
    found = gradient(model.log_prob, x)
    assert (found[1:4] == 0).all()
    assert found[4, 0] == 0
    assert (found[:, [1, 3]] == 0).all()
    assert (found[0, [0, 2]] != 0).all()
    close(found[[0, 4]], gradient(enumerated(model), x)[[0, 4]] * torch.tensor([1.0, 0, 1, 0]))
    # Also where an impossible row is part of the loss.
    x = x.requires_grad_()
    model.class_log_prob(x).sum().backward()
    close(x.grad, found)


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_variables_alone_are_refused(name: str):
    model = random_model(GRAPH, DISCRETE[name], 2)
    x = random_rows(model, 3)
    wanted = model.log_prob(x)
    x.requires_grad_()
    for ask in (model.log_prob, model.class_log_prob, model.class_posterior):
        with pytest.raises(ValueError, match=rf"discrete \({name}\)"):
            ask(x)
    with torch.no_grad():
        close(model.log_prob(x), wanted)
    assert not model.given(x).log_evidence.requires_grad


def test_values_are_the_same_and_parameters_stay_out():
    model = random_model(GRAPH, einet.Gaussian(), 2)
    x = random_rows(model, 5)
    with_graph = model.log_prob(x.clone().requires_grad_())
    assert with_graph.requires_grad
    assert not model.log_prob(x).requires_grad
    close(with_graph, model.log_prob(x), rtol=1e-13)
    with_graph.sum().backward()
    assert all(p.grad is None for p in model.parameters())


def test_the_graph_of_x_goes_on():
    """As prior of a variational autoencoder: gradients reach what made x."""
    model = random_model(GRAPH, einet.Gaussian(), 2)
    encoder = torch.nn.Linear(2, 4).double()
    rows = torch.randn(3, 2, generator=torch.Generator().manual_seed(0)).double()
    model.log_prob(encoder(rows)).sum().backward()
    in_x = gradient(model.log_prob, encoder(rows))
    close(encoder.weight.grad, in_x.T @ rows)


def test_rows_and_parameters_together():
    model = tracked(random_model(GRAPH, einet.Gaussian(), 2))
    x = random_rows(model, 4).requires_grad_()
    wanted = torch.autograd.grad(model.log_prob(x.detach()).sum(), list(model.parameters()))
    in_x, *found = torch.autograd.grad(model.log_prob(x).sum(), [x, *model.parameters()])
    close(in_x, gradient(enumerated(model), x))
    for mine, other in zip(found, wanted, strict=True):
        close(mine, other)


def test_functional_gradients():
    model = random_model(GRAPH, einet.Gaussian(), 2)
    x = random_rows(model, 4)
    found = torch.func.grad(lambda x: model.log_prob(x).sum())(x)
    close(found, gradient(model.log_prob, x))
    jacobian = torch.autograd.functional.jacobian(model.log_prob, x)
    close(jacobian, torch.diag_embed(found.T).permute(1, 2, 0))


# Torch's own forward mode warns of torch.jit.script, which it uses.
of_torch_itself = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


def total(model: einet.Einet) -> Callable[[Tensor], Tensor]:
    return lambda x: model.log_prob(x).sum()


SECOND: dict[str, Callable[[einet.Einet, Tensor], Any]] = {
    "hessian": lambda model, x: torch.autograd.functional.hessian(total(model), x),
    "func.hessian": lambda model, x: torch.func.hessian(total(model))(x),
    "grad of grad": lambda model, x: torch.func.grad(
        lambda x: torch.func.grad(total(model))(x).sum()
    )(x),
    "jvp": lambda model, x: torch.func.jvp(model.log_prob, (x,), (x,)),
    "jacrev": lambda model, x: torch.func.jacrev(model.log_prob)(x),
}


@of_torch_itself
@pytest.mark.parametrize("ask", SECOND.values(), ids=SECOND.keys())
def test_other_derivatives_are_refused(ask: Callable[[einet.Einet, Tensor], Any]):
    model = random_model(GRAPH, einet.Gaussian(), 2)
    with pytest.raises(NotImplementedError, match="log_prob has"):
        ask(model, random_rows(model, 2))


@of_torch_itself
@pytest.mark.parametrize("grad", [False, True])
def test_tangents_are_refused(grad: bool):
    model = random_model(GRAPH, einet.Gaussian(), 2)
    x = random_rows(model, 2)
    with forward_ad.dual_level(), torch.set_grad_enabled(grad):
        dual = forward_ad.make_dual(x, x)
        with pytest.raises(NotImplementedError, match="forward-mode"):
            model.log_prob(dual)


def test_a_gradient_penalty_is_refused():
    model = tracked(random_model(GRAPH, einet.Gaussian(), 2))
    x = random_rows(model, 2, missing=0.0).requires_grad_()
    (slope,) = torch.autograd.grad(model.log_prob(x).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="first derivatives only"):
        slope.square().sum().backward()


# -- in pieces -------------------------------------------------------------------------------------


def test_large_batches_are_cut_forwards_and_backwards(monkeypatch):
    model = tracked(random_model(GRAPH, MIXED, 2, num_classes=2))
    x = random_rows(model, 300)
    labels = torch.arange(300) % 3 - 1
    weight = torch.linspace(-1.0, 2.0, 300).double()

    def gradients() -> list[Tensor]:
        rows = x.clone().requires_grad_()
        loss = (model.log_prob(rows, labels=labels) * weight).sum()
        return list(torch.autograd.grad(loss, [rows, *model.parameters()]))

    whole = gradients()
    sizes = []
    empty_values = Circuit.empty_values

    def counted(circuit: Circuit, batch: int, *arguments: Any) -> Any:
        sizes.append(batch)
        return empty_values(circuit, batch, *arguments)

    limit(monkeypatch, "values")
    monkeypatch.setattr(Circuit, "empty_values", counted)
    in_pieces = gradients()
    # Each row once forwards and once backwards, never more than a piece at a time.
    assert sum(sizes) == 600
    assert max(sizes) == 64
    for mine, other in zip(in_pieces, whole, strict=True):
        close(mine, other)


def test_values_are_kept_of_one_piece_only(monkeypatch):
    model = tracked(random_model(GRAPH, einet.Gaussian(), 2))
    batch = as_batch(random_rows(model, 100), 4)
    calls = []
    call = autograd._Call

    def noted(*arguments: Any) -> Any:
        calls.append(call(*arguments))
        return calls[-1]

    monkeypatch.setattr(autograd, "_Call", noted)
    model.class_roots(batch)
    limit(monkeypatch, "values")
    model.class_roots(batch)
    assert [each.values is None for each in calls] == [False, True]


# -- in the parameters, and by the fused kernels ---------------------------------------------------


def fused_pair() -> tuple[einet.Einet, einet.Einet, Tensor]:
    graph = einet.random_trees(6, depth=2, replicas=2, seed=0)
    kinds = [*[einet.Gaussian()] * 3, einet.Exponential(), einet.Beta(), einet.Bernoulli()]
    model = einet.Einet(graph, kinds, 3, num_classes=2)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(7, 6, generator=generator) * 0.9 + 0.05
    x[:, 5] = x[:, 5].round()
    x[2, 3], x[5, 0], x[6] = NAN, NAN, NAN
    tracked(model.initialize(x))
    return model, copy.deepcopy(model).double(), x


@interpreted
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("cut", [True, False])
def test_gradients_equal_those_of_float64(same: bool, cut: bool, monkeypatch):
    """Whether or not the fused kernels are still in use when gradients are asked for."""
    model, exact, x = fused_pair()
    x = x.repeat(10, 1)
    labels = torch.arange(70) % 3 - 1
    weight = torch.rand(70, generator=torch.Generator().manual_seed(1)) - 0.3
    rows, exact_rows = x.clone().requires_grad_(), x.double().requires_grad_()
    if cut:
        limit(monkeypatch, "values")
    with dispatch.backend("triton"):
        result = model.log_prob(rows, labels=labels)
        if same:
            (result * weight).sum().backward()
    if not same:
        (result * weight).sum().backward()
    wanted = exact.log_prob(exact_rows, labels=labels)
    torch.testing.assert_close(result.double(), wanted, rtol=1e-5, atol=1e-5)
    (wanted * weight.double()).sum().backward()
    mine, others = [rows, *model.parameters()], [exact_rows, *exact.parameters()]
    for some, other in zip(mine, others, strict=True):
        assert some.grad is not None
        assert other.grad is not None
        torch.testing.assert_close(some.grad.double(), other.grad, rtol=1e-4, atol=2e-4)
    assert (rows.grad[:, 5] == 0).all()  # type: ignore[index]


@interpreted
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_many_entries_are_served_alike(monkeypatch):
    """Leaves and sums both, by the kernels of wide trees; those serve thousands of entries too."""
    chain = torch.randn(40, 1, generator=torch.manual_seed(0)) + torch.randn(40, 5).cumsum(1) / 9
    tree = einet.chow_liu(chain, information="gaussian")
    model = einet.Einet(tree, einet.Gaussian(), 66, sums="linear")
    x = chain[:3].clone()
    x[2, 1] = NAN
    exact = copy.deepcopy(tracked(model.initialize(chain))).double()
    served, empty_values = [], Circuit.empty_values

    def noted(*arguments: Any) -> Any:
        served.append(empty_values(*arguments))
        return served[-1]

    assert Circuit(tree, 300, 300, 1, "linear").fits_kernels
    monkeypatch.setattr(Circuit, "empty_values", noted)
    rows, exact_rows = x.clone().requires_grad_(), x.double().requires_grad_()
    with dispatch.backend("triton"):
        model.log_prob(rows).sum().backward()
    assert [values.fused for values in served] == [True]
    assert any(isinstance(layer, LinearTree) for layer in served[0].kept)
    exact.log_prob(exact_rows).sum().backward()
    mine, others = [rows, *model.parameters()], [exact_rows, *exact.parameters()]
    for some, other in zip(mine, others, strict=True):
        assert some.grad is not None
        assert other.grad is not None
        torch.testing.assert_close(some.grad.double(), other.grad, rtol=1e-4, atol=2e-4)


@interpreted
def test_only_what_needs_gradients_gets_them():
    model, _, x = fused_pair()
    frozen = model.circuit.sum_layers[0].weight
    frozen.requires_grad_(False)
    with dispatch.backend("triton"):
        model.log_prob(x).sum().backward()
    assert frozen.grad is None
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


@interpreted
@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_nothing_may_change_in_between(backend: dispatch.Backend):
    model, _, x = fused_pair()
    with dispatch.backend(backend):
        for changed in (model.circuit.sum_layers[0].weight, x):
            loss = model.log_prob(x).sum()
            with torch.no_grad():
                changed.mul_(1.0)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()


@interpreted
@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_inside_unconstrained(backend: dispatch.Backend):
    model, _, x = fused_pair()
    x = x.requires_grad_()
    with einet.unconstrained(model), dispatch.backend(backend):
        model.log_prob(x).sum().backward()
        assert all(p.grad is not None for p in model.parameters())
    assert x.grad is not None
