"""What posteriors keep of their passes: how many they make, how much memory, and for how long."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import einet
from einet.inference import kept
from einet.inference.kept import Kept, Parameters
from einet.inference.posterior import Posterior
from einet.kernels.dispatch import backend
from tests.oracle import NAN, close, random_model, random_rows

QUERIES: dict[str, Callable[[Posterior, Tensor], Tensor]] = {
    "log_evidence": lambda posterior, x: posterior.log_evidence,
    "sample": lambda posterior, x: posterior.sample(3, seed=0),
    "mean": lambda posterior, x: posterior.mean(),
    "variance": lambda posterior, x: posterior.variance(),
    "log_marginals": lambda posterior, x: posterior.log_marginals(x.nan_to_num(1)),
    "probabilities": lambda posterior, x: posterior.probabilities(0),
    "entropy": lambda posterior, x: posterior.entropy(1),
    "impute": lambda posterior, x: posterior.impute(),
}


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Counter:
    """How often each pass was made."""
    count: Counter = Counter()

    def count_calls(name: str) -> None:
        make_pass = getattr(einet.Einet, name)

        def counted(*args, **options):
            count[name] += 1
            return make_pass(*args, **options)

        monkeypatch.setattr(einet.Einet, name, counted)

    count_calls("upward")
    count_calls("downward")
    return count


def make(seed: int = 0, **options) -> einet.Einet:
    return random_model(
        einet.random_trees(4, depth=2, replicas=2), einet.Binomial(3), 3, seed=seed, **options
    )


def mixture() -> einet.Mixture:
    """Nested, of three Einets that all explain every row."""
    inner = einet.Mixture([make(1), make(2)], [0.4, 0.6])
    return einet.Mixture([make(0), inner], [0.5, 0.5])


# -- passes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "reversed"])
def test_one_pass_up_and_one_down_serve_all_queries(passes: Counter, order: int):
    model = make(num_classes=2)
    x = random_rows(model, 7)
    posterior = model.given(x)
    assert not passes
    for ask in list(QUERIES.values())[::order]:
        ask(posterior, x)
    assert passes == {"upward": 1, "downward": 1}
    posterior.sample(2)
    posterior.mean()
    assert passes == {"upward": 1, "downward": 1}
    posterior.log_prob(x)
    assert passes == {"upward": 2, "downward": 1}


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "reversed"])
def test_and_one_of_each_component(passes: Counter, order: int):
    model, x = mixture(), random_rows(make(), 7)
    posterior = model.given(x)
    for ask in list(QUERIES.values())[::order]:
        ask(posterior, x)
    assert passes == {"upward": 3, "downward": 3}


def test_a_sample_makes_one_pass(passes: Counter):
    make().given(random_rows(make(), 7)).sample(2)
    assert passes == {"upward": 1}
    passes.clear()
    make().sample(5)
    assert passes == {"upward": 1}


def test_components_that_explain_some_rows_only(passes: Counter):
    """They go down for these alone, with values of their one pass upwards."""
    graph = einet.random_trees(4, depth=2, replicas=2)
    narrow = random_model(graph, einet.Binomial(1), 3)
    model = einet.Mixture([narrow, make()])
    x = torch.tensor([[3.0, NAN, NAN, NAN], [1.0, NAN, 0.0, NAN], [NAN] * 4]).double()
    posterior = model.given(x)
    answers = {name: ask(posterior, x) for name, ask in QUERIES.items()}
    assert passes["upward"] == passes["downward"] == 2
    for row in range(3):
        alone = model.given(x[row : row + 1])
        for name in answers.keys() - {"sample"}:
            close(answers[name][row : row + 1], QUERIES[name](alone, x[row : row + 1]))


@pytest.mark.parametrize("sums", ["einsum", "linear"])
def test_kept_values_serve_the_fused_kernels(sums: str):
    """What one question does with them leaves them as they were."""
    graph = einet.random_trees(2, depth=1, replicas=2)
    model = einet.Einet(graph, einet.Binomial(3), 2, sums=sums, num_classes=2)
    x = torch.tensor([[0.0, NAN], [NAN, 2.0], [NAN, NAN]])
    with backend("triton"):
        posterior = model.given(x)
        first = [QUERIES[name](posterior, x) for name in ("mean", "sample")]
        posterior.kept.drop("flow")
        posterior.kept.drop("moments")
        again = [QUERIES[name](posterior, x) for name in ("mean", "sample")]
        fresh = QUERIES["sample"](model.given(x), x)
        some = torch.tensor([0, 2])
        assert posterior.at(some).mean().equal(first[0][some])
    assert first[0].equal(again[0])
    assert first[1].equal(again[1])
    assert first[1].equal(fresh)
    close(first[0], model.given(x).mean(), rtol=1e-5, atol=1e-6)


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Einet", "Mixture"])
def test_what_does_not_fit_is_computed_again(
    kind: str, passes: Counter, monkeypatch: pytest.MonkeyPatch
):
    model, x = make() if kind == "Einet" else mixture(), random_rows(make(), 7)
    whole = model.given(x)
    answers = {name: ask(whole, x) for name, ask in QUERIES.items()}
    monkeypatch.setattr(kept, "_CPU_ROOM", 100)
    posterior = model.given(x)
    passes.clear()
    for name, ask in QUERIES.items():
        close(ask(posterior, x), answers[name])
    assert passes["upward"] > len(QUERIES) / 2


def held(posterior: Posterior) -> int:
    """Bytes of values and flows that a posterior and those within it keep."""
    results = posterior.kept._results
    inner = [*results.values.get("components", [])]
    inner += [part.posterior for part in results.values.get("parts", [])]
    return sum(results.sizes.values()) + sum(held(each) for each in inner)


@pytest.mark.parametrize("kind", ["Einet", "Mixture"])
@pytest.mark.parametrize("room", [100, 3_000, 10_000, 1 << 20])
def test_memory_is_bounded(kind: str, room: int):
    model, x = make() if kind == "Einet" else mixture(), random_rows(make(), 7)
    posterior = model.conditioned_on(einet.data.as_batch(x, 4), room=room)
    for ask in QUERIES.values():
        ask(posterior, x)
        assert held(posterior) <= room
    assert (held(posterior) > 0) == (room > 100)


# -- parameters that change ------------------------------------------------------------------------


def em_step(model: einet.Model, x: Tensor) -> None:
    model.em_step(x.nan_to_num(1.0))


def gradient_step(model: einet.Model, x: Tensor) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.01)


@pytest.mark.parametrize("change", [em_step, gradient_step])
@pytest.mark.parametrize("kind", ["Einet", "Mixture"])
def test_answers_are_of_the_parameters_at_the_time(change: Callable, kind: str):
    model, x = make() if kind == "Einet" else mixture(), random_rows(make(), 7)
    posterior = model.given(x)
    before = {name: ask(posterior, x) for name, ask in QUERIES.items()}
    change(model, x)
    for name, ask in QUERIES.items():
        after = ask(posterior, x)
        assert after.equal(ask(model.given(x), x)), name
        if name not in ("sample", "impute"):
            assert not after.equal(before[name]), name


def test_weights_of_a_mixture_change():
    model, x = mixture(), random_rows(make(), 7)
    posterior = model.given(x)
    posterior.mean()
    model.update_weights(torch.tensor([1.0, 9.0]).double(), step_size=0.5)
    assert posterior.mean().equal(model.given(x).mean())


def test_steps_of_the_fused_kernels_are_noticed():
    model = einet.Einet(einet.random_trees(4, depth=2, replicas=2), einet.Binomial(3), 3)
    x = random_rows(model, 16, missing=0.0).float()
    with backend("triton"):
        posterior = model.given(x)
        before = posterior.log_evidence
        model.em_step(x)
        assert not posterior.log_evidence.equal(before)
        assert posterior.log_evidence.equal(model.given(x).log_evidence)


def test_in_inference_mode():
    x = random_rows(make(), 7)
    expected = make().given(x).mean()
    with torch.inference_mode():
        model = make()
        posterior = model.given(x)
        assert posterior.mean().equal(expected)
    assert posterior.variance().equal(make().given(x).variance())


def _in_place(model: nn.Linear) -> None:
    nn.init.zeros_(model.bias)


def _elsewhere(model: nn.Linear) -> None:
    model.double()


def _another(model: nn.Linear) -> None:
    model.weight = nn.Parameter(model.weight.detach())


def _computed(model: nn.Linear) -> None:
    nn.utils.parametrize.register_parametrization(model, "weight", nn.Identity())


@pytest.mark.parametrize("change", [_in_place, _elsewhere, _another, _computed])
def test_every_change_of_a_parameter_is_seen(change: Callable[[nn.Linear], None]):
    inner = nn.Linear(2, 3)
    model = nn.Sequential(nn.Sequential(inner), nn.Identity())
    parameters = Parameters(model)
    inner.weight.sum().backward()
    assert parameters.are_the_same()
    change(inner)
    assert not parameters.are_the_same()
    assert Parameters(model).are_the_same()


# -- results by name -------------------------------------------------------------------------------


def test_results_by_name():
    model = nn.Linear(1, 1)
    results = Kept(model, room=10)
    assert results.get("a") is None
    assert results.once("a", lambda: "first", len) == "first"
    assert results.once("a", lambda: "second", len) == "first"
    results.put("b", "too long", 6)
    assert results.get("b") is None
    results.put("a", "another", 7)
    assert results.get("a") == "another"
    results.drop("a")
    results.put("b", "fits now", 8)
    assert results.get("b") == "fits now"
    with torch.no_grad():
        model.weight += 1
    assert results.get("b") is None
