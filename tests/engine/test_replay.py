"""Steps and forward passes replayed as CUDA graphs give what they give when run."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

import einet
from einet.engine import replay
from tests.budgets import limit
from tests.oracle import random_rows
from tests.twins import Twins, near

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
NAN, INF = float("nan"), float("inf")
GRAPHS: dict[str, Callable[[], einet.RegionGraph]] = {
    "trees": lambda: einet.random_trees(9, depth=2, replicas=3, seed=0),
    "grid": lambda: einet.poon_domingos((3, 3), delta=1),
}
on_graphs = pytest.mark.parametrize("graph", GRAPHS)


def twins_of(graph: str = "grid", family: Any = None, K: int = 4, **options: Any) -> Twins:
    return Twins(GRAPHS[graph](), family or einet.Gaussian(), K, DEVICE, **options)


def recorded(model: einet.Einet) -> int:
    """How many of a model's calls are recorded."""
    if model not in replay._of_models:
        return 0
    return sum(r._graph is not None for r in replay._of_models[model]._kept.values())


def parameters(model: einet.Einet) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def same(one: list[Tensor], two: list[Tensor]) -> bool:
    return all(a.equal(b) for a, b in zip(one, two, strict=True))


def step(twins: Twins, rows: int, seed: int = 0, step_size: Any = 0.4, **beside: Any) -> None:
    """Compare a step and a forward pass of both, then let the exact one follow."""
    x = twins.rows(rows, seed)
    twins.densities(x, **{k: v for k, v in beside.items() if k == "labels"})
    twins.step(x, step_size, **beside)
    twins.follow()


# -- what changes from call to call ----------------------------------------------------------------


@on_graphs
def test_the_first_calls(graph: str) -> None:
    """The first one is run, the second one recorded, the others replayed."""
    twins = twins_of(graph)
    for number in range(4):
        step(twins, 40, seed=number, step_size=0.5 / (1 + number))
        assert recorded(twins.model) == (0 if number == 0 else 2)


def test_statistics() -> None:
    """Those that are given are added to, whichever they are; rows and weights change."""
    twins = twins_of("trees", num_classes=2)
    given = [twins.model.e_step(twins.on(twins.rows(3))) for _ in range(2)]
    exact = [twins.exact.e_step(twins.rows(3)) for _ in range(2)]
    for number, rows in enumerate([40, 40, 40, 25, 40]):
        x, weights = twins.rows(rows, number), torch.linspace(0.0, 2.0, rows)
        into = given[number % 2]
        assert twins.model.e_step(twins.on(x), weights=twins.on(weights), into=into) is into
        twins.exact.e_step(x, weights=weights, into=exact[number % 2])
        for found, expected in zip(given, exact, strict=True):
            for one, two in zip(found.tensors(), expected.tensors(), strict=True):
                near(one.cpu().double(), two.double())
    assert recorded(twins.model) >= 1


def test_full_batches() -> None:
    """EM of all rows: the statistics of several batches, then one step."""
    twins = twins_of()
    x = twins.rows(100)
    for model, rows in ((twins.model, twins.on(x)), (twins.exact, x)):
        einet.fit(
            model, rows, epochs=3, batch_size=40, optimizer=einet.EM(), initialize=False,
            progress=False,
        )  # fmt: skip
    twins.parameters()


def test_pieces_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are recorded as one."""
    limit(monkeypatch, "values")
    twins = twins_of("trees")
    rows = twins.rows(30)
    prior = einet.Prior(sums=0.5, leaves=0.5)
    counts = prior.pseudo_counts(twins.model, twins.on(rows)).for_rows(150)
    for number in range(4):
        x = twins.rows(150, number)
        found = twins.model.em_step(twins.on(x), step_size=0.4, prior=counts)
        same = prior.pseudo_counts(twins.exact, rows).for_rows(150)
        near(found.cpu(), twins.exact.em_step(x, step_size=0.4, prior=same))
        twins.parameters()
        twins.follow()
        assert recorded(twins.model) == (number > 0)


def test_fewer_rows_than_recorded() -> None:
    twins = twins_of()
    for number, rows in enumerate([48, 48, 48, 30, 48, 5, 5, 5, 48, 33, 1, 1, 1, 48]):
        step(twins, rows, seed=number)


def test_step_sizes() -> None:
    twins = twins_of()
    sizes = [0.5, 0.1, 1.0, torch.tensor(0.3), torch.tensor(0.2, dtype=torch.float64), 0.05]
    for number, size in enumerate([*sizes, torch.tensor(0.7, device=DEVICE), 1.0]):
        step(twins, 20, seed=number, step_size=size)


def test_weights_and_then_none() -> None:
    twins = twins_of()
    some, others = torch.linspace(0.0, 3.0, 20), torch.arange(20) % 2
    for number, weights in enumerate([some, None, others, others, None, some, None]):
        step(twins, 20, seed=number, weights=weights)
    step(twins, 12, weights=torch.ones(12) * 2)
    step(twins, 20)


def test_labels() -> None:
    twins = twins_of(num_classes=3)
    for number in range(6):
        labels = (torch.arange(20) * (number + 1)) % 4 - 1
        step(twins, 20, seed=number, labels=None if number == 4 else labels)
    step(twins, 15, labels=torch.full((15,), 2))
    step(twins, 20, labels=torch.zeros(20, dtype=torch.long))


def test_what_is_missing() -> None:
    """By NaN, by a mask, and whole rows; the next batch misses others."""
    twins = twins_of(family=[einet.Gaussian(), *[einet.Categorical(3)] * 8])
    full = random_rows(twins.exact, 20, missing=0.0)
    for number in range(5):
        observed = (torch.arange(180).view(20, 9) + number) % 4 > 0
        observed[number] = False
        holes = full.clone()
        holes[~observed] = NAN
        twins.densities(holes)
        twins.densities(full)
        with torch.no_grad():
            found = twins.model.log_prob(full.to(DEVICE), observed.to(DEVICE))
        near(found.cpu().double(), twins.exact.log_prob(holes).detach(), 1e-5)
        exact = twins.exact.em_step(holes, step_size=0.4)
        if number % 2:
            found = twins.model.em_step(holes.to(DEVICE), step_size=0.4)
        else:
            found = twins.model.em_step(full.to(DEVICE), observed.to(DEVICE), step_size=0.4)
        near(found.cpu(), exact)
        twins.parameters()
        twins.follow()


def test_types_of_data() -> None:
    twins = twins_of(family=einet.Categorical(4))
    types = [torch.float32, torch.float64, torch.uint8, torch.int64, torch.float16]
    for number in range(3):
        for dtype in types:
            x = random_rows(twins.exact, 20, seed=number, missing=0.0).to(dtype)
            twins.densities(x)
            twins.step(x)
            twins.follow()


def test_rows_that_were_there_before() -> None:
    """Impossible and infinite ones: a smaller batch must not meet them again."""
    twins = twins_of(family=[einet.Gaussian(), *[einet.Bernoulli()] * 8])
    x = twins.rows(20)
    x[15, 0], x[16, 1], x[17], x[18, 0] = INF, 0.5, NAN, 1e30
    good = [*range(15), 17, 19]
    for _ in range(3):
        assert twins.model.em_step(x.to(DEVICE), step_size=0.4) == -INF
        assert all(p.isfinite().all() for p in twins.model.parameters())
        twins.follow()
        step(twins, 14)
        twins.densities(x[good])
    assert (twins.model.log_prob(x.to(DEVICE)).isinf()).sum() == 2


def test_more_kinds_of_calls_than_are_kept(monkeypatch) -> None:
    monkeypatch.setattr(replay, "_MOST_KEPT", 3)
    twins = twins_of()
    for _ in range(3):
        for rows in (10, 40, 100, 250):
            step(twins, rows)
            assert len(replay._of_models[twins.model]._kept) <= 3


def test_data_on_the_cpu() -> None:
    twins = twins_of()
    for number in range(4):
        x = twins.rows(20, seed=number)
        with torch.no_grad():
            found = twins.model.log_prob(x.numpy())
        near(found.cpu().double(), twins.exact.log_prob(x).detach(), 1e-5)


def test_results_outlive_the_next_call() -> None:
    model = twins_of().model
    some, others = (twins_of().rows(20, seed=s).to(DEVICE) for s in (0, 1))
    with torch.no_grad():
        for _ in range(3):
            first = model.log_prob(some)
            kept = first.clone()
            model.log_prob(others)
            assert first.equal(kept)
    for _ in range(3):
        mean = model.em_step(some, step_size=0.1)
        kept = mean.clone()
        model.em_step(others, step_size=0.1)
        assert mean.equal(kept)


# -- what changes about a model --------------------------------------------------------------------


def test_precisions() -> None:
    twins = twins_of()
    x = twins.rows(40).to(DEVICE)
    found: dict[str, list[Tensor]] = {"highest": [], "high": [], "medium": []}
    with torch.no_grad():
        for precision in ["highest", "medium", "high"] * 3:
            twins.model.precision = precision  # type: ignore[assignment]
            found[precision].append(twins.model.log_prob(x))
    exact = twins.exact.log_prob(x.cpu()).detach()
    for precision, error in {"highest": 1e-5, "high": 5e-3, "medium": 5e-2}.items():
        assert same(found[precision], [found[precision][0]] * 3)
        near(found[precision][0].cpu().double(), exact, error)
    assert not found["high"][0].equal(found["highest"][0])
    assert not found["medium"][0].equal(found["high"][0])


def test_steps_at_lower_precision_learn_as_well() -> None:
    results = {}
    for precision in ("highest", "high", "medium"):
        twins = twins_of("trees")
        twins.model.precision = precision  # type: ignore[assignment]
        x = twins.rows(200).to(DEVICE)
        for _ in range(20):
            mean = twins.model.em_step(x, step_size=0.3)
        results[precision] = float(mean)
        for layer in twins.model.circuit.sum_layers:
            for simplex in layer.simplices(layer.weight.detach()):
                sums = simplex.double().sum(-1)
                torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-5)
    assert results["high"] == pytest.approx(results["highest"], abs=0.01)
    assert results["medium"] == pytest.approx(results["highest"], abs=0.1)


def _doubled(model: einet.Einet) -> None:
    model.double()
    model.log_prob(torch.zeros(3, 9, device=DEVICE))
    model.float()


def _to_the_cpu(model: einet.Einet) -> None:
    model.cpu()
    model.log_prob(torch.zeros(3, 9))
    model.to(DEVICE)


def _other_state() -> dict[str, Tensor]:
    other = twins_of().model
    other.em_step(twins_of().rows(30, seed=5).to(DEVICE), step_size=0.9)
    return other.state_dict()


def _edited(model: einet.Einet) -> None:
    with torch.no_grad():
        for layer in model.circuit.sum_layers:
            for simplex in layer.simplices(layer.weight):
                simplex.copy_(simplex.flip(-1))
        for block in model.leaf.leaf_blocks:
            block.stored.mul_(1.1)


def _new_tensors(model: einet.Einet) -> None:
    for layer in model.circuit.sum_layers:
        for simplex in layer.simplices(layer.weight.data):
            simplex.copy_(simplex.flip(-1))
        layer.weight.data = layer.weight.data.clone()


def _initialized(model: einet.Einet) -> None:
    model.initialize(twins_of().rows(40, seed=7) * 3 + 10)


CHANGES: dict[str, Callable[[einet.Einet], Any]] = {
    "double and back": _doubled,
    "cpu and back": _to_the_cpu,
    "load_state_dict": lambda model: model.load_state_dict(_other_state()),
    "load_state_dict, assigned": lambda model: model.load_state_dict(_other_state(), assign=True),
    "edited in place": _edited,
    "new tensors": _new_tensors,
    "initialized": _initialized,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen_by_the_next_call(change: str) -> None:
    twins = twins_of()
    for number in range(3):
        step(twins, 20, seed=number)
    CHANGES[change](twins.model)
    twins.follow()
    for number in range(3):
        step(twins, 20, seed=number)
    assert recorded(twins.model) >= 2


def test_unconstrained() -> None:
    twins = twins_of(num_classes=2)
    model, x = twins.model, twins.rows(20)
    for _ in range(3):
        step(twins, 20)
    with einet.unconstrained(model):
        for _ in range(3):
            with torch.no_grad():
                near(
                    model.log_prob(x.to(DEVICE)).cpu().double(),
                    twins.exact.log_prob(x).detach(),
                    1e-5,
                )
            with pytest.raises(RuntimeError, match="inside einet.unconstrained"):
                model.em_step(x.to(DEVICE))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(2):
            optimizer.zero_grad()
            (-model.log_prob(x.to(DEVICE)).mean()).backward()
            optimizer.step()
        moved = copy.deepcopy(model).double().cpu()
        with torch.no_grad():
            near(model.log_prob(x.to(DEVICE)).cpu().double(), moved.log_prob(x), 1e-5)
    twins.follow()
    for number in range(3):
        step(twins, 20, seed=number)


def test_inference_mode() -> None:
    """Whichever comes first, the other one works after it."""
    for first in (True, False):
        twins = twins_of()
        x = twins.rows(20)
        for number in range(8):
            with torch.inference_mode(first == (number % 4 < 2)):
                twins.densities(x)
                twins.model.em_step(x.to(DEVICE), step_size=0.2)
            twins.exact.em_step(x, step_size=0.2)
            twins.parameters()
            twins.follow()
        twins.gradients(x)


def test_gradients_between_replays() -> None:
    twins = twins_of(num_classes=2)
    for number in range(4):
        step(twins, 20, seed=number)
        twins.gradients(twins.rows(20, seed=number))
        twins.statistics(twins.rows(20, seed=number))


def test_two_models() -> None:
    pair = [twins_of("trees"), twins_of("grid", K=3), twins_of("trees", num_leaves=3)]
    for number in range(4):
        for twins in pair:
            step(twins, 20, seed=number)


def test_threads() -> None:
    """Each gets the answer to its own question."""
    twins = twins_of()
    questions = [twins.rows(20, seed=s).to(DEVICE) for s in range(4)]

    def ask(x: Tensor) -> Tensor:
        with torch.no_grad():
            return twins.model.log_prob(x)

    expected = [ask(x) for x in questions]
    with ThreadPoolExecutor(4) as pool:
        for number, found in enumerate(pool.map(ask, questions * 50)):
            assert found.equal(expected[number % 4])


def test_another_stream() -> None:
    twins = twins_of()
    x = twins.rows(20).to(DEVICE)
    torch.cuda.synchronize()
    for number in range(4):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            twins.model.em_step(x, step_size=0.3)
        stream.synchronize()
        twins.exact.em_step(x.cpu(), step_size=0.3)
        twins.parameters()
        twins.follow()
        if number == 2:
            step(twins, 20)


# -- copies, and what is left of a model -----------------------------------------------------------


def test_copies(tmp_path) -> None:
    twins = twins_of(num_classes=2)
    for number in range(3):
        step(twins, 20, seed=number)
    model, x = twins.model, twins.rows(20).to(DEVICE)
    with torch.no_grad():
        expected = model.log_prob(x)
    model.save(tmp_path / "model.einet")
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    copies.append(einet.load(tmp_path / "model.einet").to(DEVICE))  # type: ignore[arg-type]
    for other in copies:
        for _ in range(3):
            with torch.no_grad():
                assert other.log_prob(x).equal(expected)
        before = parameters(model)
        for _ in range(3):
            other.em_step(x, step_size=0.5)
        # They share no memory.
        assert same(before, parameters(model))
        with torch.no_grad():
            assert model.log_prob(x).equal(expected)
            assert not other.log_prob(x).equal(expected)


def test_a_deleted_model_is_freed() -> None:
    def run() -> tuple[Any, int]:
        model = einet.Einet(
            einet.random_trees(64, 3, 5, seed=0), einet.Gaussian(), 20, device=DEVICE
        )
        x = torch.randn(200, 64, device=DEVICE)
        for _ in range(3):
            model.em_step(x, step_size=0.1)
            with torch.no_grad():
                model.log_prob(x)
        assert recorded(model) == 2
        torch.cuda.synchronize()
        return weakref.ref(model), torch.cuda.memory_allocated()

    run()
    gc.collect()
    before, known = torch.cuda.memory_allocated(), len(replay._of_models)
    reference, held = run()
    gc.collect()
    assert reference() is None
    assert len(replay._of_models) <= known
    assert torch.cuda.memory_allocated() - before < 0.1 * (held - before)


def test_forget() -> None:
    """The memory of recordings comes back, and the model is as good as before."""
    twins = twins_of()
    replay.forget(twins.model)
    step(twins, 40)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    for number in range(3):
        step(twins, 5000, seed=number)
    assert recorded(twins.model) == 2
    held = torch.cuda.memory_reserved()
    replay.forget(einet.Mixture([twins.model]))
    assert recorded(twins.model) == 0
    assert torch.cuda.memory_reserved() - before < 0.1 * (held - before)
    for number in range(3):
        step(twins, 40, seed=number)
    assert recorded(twins.model) == 2


def test_nothing_is_kept_after_training() -> None:
    twins = twins_of()
    x = twins.on(twins.rows(100))
    einet.fit(twins.model, x, valid=x, epochs=3, batch_size=40, finish=2, progress=False)
    assert recorded(twins.model) == 0


# -- the same every time ---------------------------------------------------------------------------


@on_graphs
def test_training_resumed(graph: str, tmp_path) -> None:
    x = [twins_of().rows(32, seed=s).to(DEVICE) for s in range(8)]
    whole, part = twins_of(graph).model, twins_of(graph).model
    means = [float(whole.em_step(rows, step_size=0.2)) for rows in x]
    for number, rows in enumerate(x):
        if number == 4:
            part.save(tmp_path / "half.einet")
            loaded = einet.load(tmp_path / "half.einet")
            assert isinstance(loaded, einet.Einet)
            part = loaded.to(DEVICE)
        assert float(part.em_step(rows, step_size=0.2)) == means[number]
    assert same(parameters(whole), parameters(part))


@on_graphs
@pytest.mark.parametrize("family", ["gaussian", "categorical"])
def test_fit_twice(graph: str, family: str) -> None:
    results = []
    for _ in range(2):
        chosen = einet.Gaussian() if family == "gaussian" else einet.Categorical(5)
        model = einet.Einet(GRAPHS[graph](), chosen, 10, num_leaves=7, num_classes=2)
        generator = torch.Generator().manual_seed(0)
        x = torch.randint(0, 5, (230, 9), generator=generator).float()
        history = einet.fit(
            model, x[:200], valid=x[200:], epochs=3, batch_size=60, device=DEVICE, seed=3,
            labels=torch.arange(200) % 3 - 1, progress=False,
        )  # fmt: skip
        results.append((parameters(model), history.train, history.valid))
    assert same(results[0][0], results[1][0])
    assert results[0][1:] == results[1][1:]


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_never_waits_for_the_device() -> None:
    model = twins_of(num_classes=2).model
    x = twins_of().rows(40).float().to(DEVICE)
    observed = ~x.isnan()
    size = torch.tensor(0.2, device=DEVICE)

    def calls() -> None:
        model.em_step(x, step_size=0.3)
        model.em_step(x[:30], step_size=size)
        model.em_step(x, observed, step_size=0.3)
        with torch.no_grad():
            model.log_prob(x)
            model.log_prob(x[:25], observed[:25])

    for _ in range(3):
        calls()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        calls()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(p.isfinite().all() for p in model.parameters())
