"""Evidence that cannot be, values far out, and arguments that make no sense."""

import math
from typing import Any

import jaxtyping
import pytest
import torch
from torch import Tensor

import einet
from einet import Einet
from tests.budgets import limit
from tests.oracle import CONTINUOUS, DISCRETE, NAN, close, random_model, random_rows, tracked

INF = math.inf
FAMILIES = DISCRETE | CONTINUOUS

#: A value outside the support of each family.
OUTSIDE = {
    "Bernoulli": 2.0,
    "Binomial": 0.5,
    "Categorical": 3.0,
    "Poisson": -1.0,
    "Gaussian": INF,
    "Exponential": -0.1,
    "Gamma": 0.0,
    "Beta": 1.0,
}
both_types = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


@pytest.fixture
def unchecked():
    """Without the run-time checks of types, as a user runs it."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def case(name: str, rows: int = 5, num_classes: int = 1) -> tuple[Einet, Tensor]:
    graph = einet.random_trees(4, depth=2, replicas=2)
    model = random_model(graph, FAMILIES[name], 3, num_classes=num_classes)
    return model, random_rows(model, rows)


QUERIES = {
    "sample": lambda posterior, x: posterior.sample(2, seed=0),
    "means": lambda posterior, x: posterior.sample(2, leaves="mean", seed=0),
    "mean": lambda posterior, x: posterior.mean(),
    "variance": lambda posterior, x: posterior.variance(),
    "mode": lambda posterior, x: posterior.mode(),
    "log_marginals": lambda posterior, x: posterior.log_marginals(x),
    "probabilities": lambda posterior, x: posterior.probabilities(0),
    "impute": lambda posterior, x: posterior.impute(),
}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("num_classes", [1, 2])
@both_types
def test_impossible_rows_stand_alone(name: str, num_classes: int, dtype: torch.dtype):
    model, x = case(name, num_classes=num_classes)
    model = model.to(dtype)
    possible = [0, 2, 4]
    x[[1, 3], 2] = OUTSIDE[name]
    found = model.log_prob(x)
    assert (found[[1, 3]] == -INF).all()
    close(found[possible], model.log_prob(x[possible]))
    assert found[possible].isfinite().all()

    statistics, fewer = model.e_step(x), model.e_step(x[possible])
    close(statistics.impossible, 2.0)
    close(statistics.rows, 5.0)
    assert statistics.log_likelihood == -INF
    # The three sums above come first; of all others an impossible row is no part.
    for some, others in zip(statistics.tensors()[3:], fewer.tensors()[3:], strict=True):
        close(some, others, rtol=1e-5, atol=1e-6)

    posterior = model.given(x)
    close(posterior.log_evidence, found)
    conditional = posterior.log_prob(x)
    assert (conditional[[1, 3]] == -INF).all()
    close(conditional[possible], [0.0] * 3)
    for ask in QUERIES.values():
        with pytest.raises(ValueError, match=r"probability 0 in 2 of 5 rows \(1, 3\)"):
            ask(posterior, x)


def test_gradients_of_impossible_rows_are_zero():
    model, x = case("Binomial", num_classes=2)
    tracked(model).log_prob(x[[0, 2]]).sum().backward()
    expected = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    x[1, 0] = 17
    for labels in (None, [-1, 1, -1]):
        model.zero_grad()
        model.log_prob(x[:3], labels=labels).sum().backward()
        for parameter, gradient in zip(model.parameters(), expected, strict=True):
            close(parameter.grad, gradient)


def test_class_posterior_of_an_impossible_row_is_the_prior():
    model, x = case("Bernoulli", num_classes=3)
    x[1, 0] = 0.5
    found = model.class_posterior(x)
    close(found.sum(1), [1.0] * 5)
    close(found[1], model.log_class_prior.exp())
    assert (model.class_log_prob(x)[1] == -INF).all()


def test_many_impossible_rows_are_counted():
    model, x = case("Bernoulli", rows=30)
    x[:, 0] = 3
    with pytest.raises(ValueError, match=r"30 of 30 rows \(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …\)"):
        model.given(x).mean()


def test_a_class_that_cannot_be():
    """Evidence that only one class explains, and a label that names the other."""
    model = Einet(einet.RegionGraph(1, [1], []), einet.Categorical(2), 2, num_classes=2)
    with torch.no_grad():
        model.leaf.leaf_blocks[0].stored.copy_(torch.eye(2).view(2, 1, 2))
        model.circuit.weights[0].copy_(torch.eye(2))
    x = torch.tensor([[0.0], [1.0], [NAN]])
    # The floor of log p keeps these from being exactly 0, but nothing is left of them.
    assert model.class_posterior(x).round(decimals=6).tolist() == [[1, 0], [0, 1], [0.5, 0.5]]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("value", [1e20, -1e20, 1e300, -1e300, 1e308, INF, -INF])
@both_types
def test_huge_values_never_give_nan(name: str, value: float, dtype: torch.dtype):
    model, x = case(name, rows=4)
    model = model.to(dtype)
    x[1, 1] = value
    x[2] = value
    x[3, 1:] = NAN
    x[3, 0] = value
    for found in (model.log_prob(x), model.class_log_prob(x), model.given(x).log_prob(x)):
        assert not found.isnan().any()
        assert not (found == INF).any()
    close(model.log_prob(x)[0], model.log_prob(x[:1])[0])
    if math.isinf(value):
        assert (model.log_prob(x)[1:] == -INF).all()
    for tensor in model.e_step(x).tensors():
        assert not tensor.isnan().any()
    # Evidence that is possible, though barely, has a posterior like any other.
    barely = model.given(x[model.log_prob(x) > -INF])
    moments = barely.mean(), barely.variance(), barely.mode()
    if name != "Categorical":
        assert not any(answer.isnan().any() for answer in moments)
    query = torch.full_like(barely.evidence.x, value)
    assert not barely.log_marginals(query).isnan().any()


# -- arguments -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unchecked")
def test_bad_arguments_are_named():
    model, x = case("Bernoulli", num_classes=2)
    posterior = model.given(x)
    wrong: Any
    for wrong in (-1, 2.5, True, "3", None):
        with pytest.raises((TypeError, ValueError), match="n must be an integer >= 0, got"):
            posterior.sample(wrong)
        with pytest.raises((TypeError, ValueError), match="n must be"):
            model.sample(wrong)
    for wrong in ("x", None, "median"):
        with pytest.raises(ValueError, match="leaves must be 'sample' or 'mean', got"):
            posterior.sample(1, leaves=wrong)
    for wrong in (-1, 4, 1.0, "a", True):
        with pytest.raises((TypeError, ValueError), match="variable must"):
            posterior.probabilities(wrong)
        with pytest.raises((TypeError, ValueError), match="variable must"):
            posterior.entropy(wrong)
    for wrong in ("median", None):
        with pytest.raises(ValueError, match="method must be one of 'best', 'mean', 'mode', 'samp"):
            posterior.impute(wrong)
    for rows in (x[:4], x[:1]):
        with pytest.raises(ValueError, match="x must have as many rows as the evidence, 5, got"):
            posterior.log_prob(rows)
        with pytest.raises(ValueError, match="x must have as many rows as the evidence, 5, got"):
            posterior.log_marginals(rows)
    with pytest.raises(ValueError, match=r"x must have shape \[rows, 4\]"):
        posterior.log_prob(x[:, :3])
    with pytest.raises(ValueError, match=r"x must have shape \[rows, 4\]"):
        model.given(x[:, :3])
    with pytest.raises(TypeError, match="x must be an array of numbers"):
        posterior.log_marginals("x")
    with pytest.raises(TypeError, match="observed must be boolean"):
        model.given(x, torch.ones(5, 4))
    with pytest.raises(ValueError, match="observed must have the shape of x"):
        posterior.log_prob(x, torch.ones(4, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"labels must have shape \[5\]"):
        model.given(x, labels=[0])
    with pytest.raises(ValueError, match="labels must lie between 0 and 1"):
        model.given(x, labels=[0, 1, 2, 0, 0])


def test_states_are_only_asked_of_variables_that_have_them():
    for name in ("Gaussian", "Poisson"):
        model, x = case(name)
        with pytest.raises(ValueError, match=f"variable 2 is {name}, which has no finite set"):
            model.given(x).probabilities(2)


def test_no_rows():
    model, x = case("Categorical", num_classes=2)
    posterior = model.given(x[:0], labels=[])
    assert posterior.log_prob(x[:0]).shape == (0,)
    assert posterior.log_evidence.shape == (0,)
    for answer in (posterior.mean(), posterior.variance(), posterior.mode()):
        assert answer.shape == (0, 4)
    assert posterior.log_marginals(x[:0]).shape == (0, 4)
    assert posterior.probabilities(1).shape == (0, 3)
    assert posterior.sample(3).shape == (3, 0, 4)


@pytest.mark.parametrize("grad", [False, True])
def test_queries_never_write_gradients(grad: bool):
    model, x = case("Binomial", num_classes=2)
    with torch.set_grad_enabled(grad):
        posterior = model.given(x)
        answers = [ask(posterior, x) for ask in QUERIES.values()]
        answers += [posterior.log_prob(x), posterior.log_evidence, model.log_normalizer()]
        answers += [posterior.entropy(0), posterior.impute("mean"), posterior.impute("sample")]
        answers += [model.mean(), model.variance(), model.mode(), model.sample(2)]
        model.e_step(x)
        model.log_prob(x)
        model.class_posterior(x)
    assert not any(answer.requires_grad for answer in answers)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_large_batches_go_through_in_pieces(monkeypatch):
    model, x = case("Binomial", rows=200, num_classes=2)
    labels = torch.arange(200) % 3 - 1
    whole, answers = model.given(x, labels=labels), {}
    for name, ask in QUERIES.items():
        # Draws come in another order.
        answers[name] = None if name in ("sample", "means") else ask(whole, x)
    log_prob, statistics = whole.log_prob(x), model.e_step(x, labels=labels)
    limit(monkeypatch, "values")
    assert len(model.pieces(200)) == 4
    pieces = model.given(x, labels=labels)
    for name, expected in answers.items():
        found = QUERIES[name](pieces, x)
        if expected is not None:
            close(found, expected)
    close(pieces.log_prob(x), log_prob)
    for some, others in zip(
        model.e_step(x, labels=labels).tensors(), statistics.tensors(), strict=True
    ):
        close(some, others)
    one = model.given(x[:1], labels=labels[1:2])
    close(
        one.log_prob(x[:200])[:5], model.given(x[:1].repeat(5, 1), labels=[0] * 5).log_prob(x[:5])
    )


def test_answers_hold_the_evidence_as_it_was_given():
    model, x = case("Gaussian")
    posterior = model.float().given(x)
    for answer in (posterior.mean(), posterior.mode(), posterior.sample(1)[0]):
        assert answer.dtype == torch.float64
        assert answer[~x.isnan()].equal(x[~x.isnan()])
    assert (posterior.variance()[~x.isnan()] == 0).all()
    assert model.given(x.float()).mean().dtype == torch.float32


def test_evidence_of_another_type_is_the_same_evidence():
    """0.1 in float32 is another number than in float64, but no contradiction."""
    model, _ = case("Gaussian")
    numbers = [[0.1, 0.2, 0.3, 0.7]]
    for single in (torch.tensor(numbers), torch.tensor(numbers, dtype=torch.float16)):
        close(model.given(single).log_prob(numbers), [0.0])
        close(model.given(numbers).log_prob(single), [0.0])
        close(model.given(single).log_marginals(numbers), [[0.0] * 4])
    assert model.given(torch.tensor(numbers)).log_prob([[0.1001, 0.2, 0.3, 0.7]]) == -INF
    counts, _ = case("Poisson")
    close(counts.given([[1, 2, 3, 4]]).log_prob([[1.0, 2.0, 3.0, 4.0]]), [0.0])
    assert counts.given([[1, 2, 3, 4]]).log_prob([[1, 2, 3, 5]]) == -INF


def test_evidence_is_kept_as_it_was():
    model, x = case("Binomial")
    seen = ~x.isnan()
    expected = model.given(x.clone()).mean()
    integers = x.nan_to_num(0).long()
    posteriors = model.given(x), model.given(integers, seen), model.given(x.numpy())
    for tensor in (x, integers, seen):
        tensor.fill_(1)
    for posterior in posteriors:
        close(posterior.mean(), expected)
