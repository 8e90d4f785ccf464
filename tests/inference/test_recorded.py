"""Posteriors on recorded passes answer as they do without: rules on a CPU, numbers on a GPU."""

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
from einet import Einet
from einet.engine import replay
from einet.engine.tape import Recorded, Tape
from einet.inference import recorded
from einet.inference.query_room import Room
from einet.inference.upward import UpwardPass
from einet.layers import choices
from tests.budgets import limit
from tests.kernels.triton.leaf_check import interpreted
from tests.layers.test_tree import BUSHY, hidden_tree
from tests.oracle import NAN, random_rows
from tests.twins import Twins, engine, near

SMALL = hidden_tree([0, 1, 1])


def rooms_of(model: Einet) -> dict[tuple, Room]:
    return dict(replay.recordings_of(model).rooms)


def rows_of(model: Einet, count: int, seed: int = 0, missing: float = 0.4) -> Tensor:
    exact = copy.deepcopy(model).double().cpu()
    return random_rows(exact, count, seed=seed, missing=missing).float().to(model.device)


# -- on a CPU, where a tape plays calls again ------------------------------------------------------


class _FakeTape(Tape):
    """What a :class:`Tape` does, without CUDA: calls are made again, into their first places."""

    made: list[str]

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def begin(self) -> None:
        self.made.append("begin")

    def settle(self) -> None:
        self.made.append("settle")

    def record(self, call: Callable[[], Any]) -> Recorded[Any]:
        self.made.append("record")
        call()
        out = call()

        def play() -> None:
            new = call()
            if isinstance(out, UpwardPass):
                out.copy_(new)
            elif out is not None:
                for place, number in zip(out, new, strict=True):
                    place.copy_(number)

        return Recorded(play, out)


@pytest.fixture
def tape(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Passes are recorded on a CPU, by torch's kernels; what the tapes were asked for."""
    made: list[str] = []
    monkeypatch.setattr(_FakeTape, "made", made, raising=False)
    monkeypatch.setattr(recorded, "Tape", _FakeTape)
    monkeypatch.setattr(
        recorded, "_is_served", lambda model, batch: batch.events is None and len(batch) > 0
    )
    return made


@pytest.fixture
def model() -> Einet:
    family = [einet.Gaussian(), einet.Categorical(3), einet.Gaussian(), einet.Bernoulli()]
    graph = einet.random_trees(4, depth=2, replicas=2, seed=0)
    return einet.Einet(graph, family, 3, num_classes=2)


def answers(posterior: Any) -> list[Tensor]:
    return [posterior.log_evidence, posterior.mean(), posterior.variance()]


def same(one: list[Tensor], two: list[Tensor]) -> bool:
    return all(
        torch.equal(a.nan_to_num(-9.0), b.nan_to_num(-9.0)) for a, b in zip(one, two, strict=True)
    )


def plain(model: Einet, x: Tensor, **options: Any) -> list[Tensor]:
    """What a copy of the model answers, of which nothing is recorded."""
    return answers(copy.deepcopy(model).given(x, **options))


def test_recorded_the_second_time(model: Einet, tape: list[str]):
    for number in range(4):
        x = rows_of(model, 5, seed=number)
        assert same(answers(model.given(x)), plain(model, x))
        # The upward pass, the flows and the moments.
        assert tape.count("record") == (0 if number == 0 else 3)
    assert len(rooms_of(model)) == 1


def test_posteriors_in_turns(model: Einet, tape: list[str]):
    """Whoever is asked in between, each has its own evidence."""
    xs = [rows_of(model, 6, seed=number) for number in range(4)]
    expected = [plain(model, x) for x in xs]
    posteriors = [model.given(x) for x in xs]
    found: list[list[Tensor]] = [[] for _ in xs]
    for ask in (lambda p: p.log_evidence, lambda p: p.mean(), lambda p: p.variance()):
        for number in (0, 1, 2, 3):
            found[number].append(ask(posteriors[number]))
    for mine, exact in zip(found, expected, strict=True):
        assert same(mine, exact)
    for number in (2, 0, 3, 1):
        assert same(answers(posteriors[number]), expected[number])
        full = rows_of(model, 6, seed=9, missing=0.0)
        alone = copy.deepcopy(model).given(xs[number]).log_marginals(full)
        assert torch.equal(posteriors[number].log_marginals(full), alone)


def test_shapes_and_labels(model: Einet, tape: list[str]):
    for number in range(3):
        for count in (3, 5):
            x = rows_of(model, count, seed=number)
            labels = (torch.arange(count) + number) % 3 - 1
            assert same(answers(model.given(x)), plain(model, x))
            given = model.given(x, labels=labels)
            assert same(answers(given), plain(model, x, labels=labels))
            given = model.given(x.double(), labels=labels)
            assert same(answers(given), plain(model, x.double(), labels=labels))
    assert len(rooms_of(model)) == 6


def test_parameters_that_change(model: Einet, tape: list[str]):
    """In place recordings go on; moved parameters begin anew."""
    x = rows_of(model, 5)
    for _ in range(3):
        posterior = model.given(x)
        before = answers(posterior)
        model.em_step(rows_of(model, 20, seed=3, missing=0.1), step_size=0.3)
        assert same(answers(posterior), plain(model, x))
        assert not same(answers(posterior), before)
    assert tape.count("record") == 3
    model.double()
    assert same(answers(model.given(x)), plain(model, x))
    assert not rooms_of(model)
    # What was begun has an end before its memory is given away.
    assert tape.count("settle") == 1
    with einet.unconstrained(model):
        for _ in range(3):
            assert same(answers(model.given(x)), answers(copy.deepcopy(model).given(x)))
        assert not rooms_of(model)


def test_what_is_not_recorded(model: Einet, tape: list[str], monkeypatch: pytest.MonkeyPatch):
    """Events, some rows of a posterior, components, pieces, and what is too large."""
    x = rows_of(model, 70)
    x[:, 0] = NAN
    for _ in range(3):
        model.given(x, where={0: einet.between(-1, 1)}).mean()
        einet.Mixture([model, copy.deepcopy(model)]).given(x).mean()
        model.given(x[:0]).mean()
    limit(monkeypatch, "values")
    for _ in range(3):
        model.given(x).mean()
    monkeypatch.undo()
    assert not tape


def test_what_is_too_large_runs_as_it_is(
    model: Einet, tape: list[str], monkeypatch: pytest.MonkeyPatch
):
    limit(monkeypatch, "recorded queries")
    for number in range(3):
        x = rows_of(model, 5, seed=number)
        assert same(answers(model.given(x)), plain(model, x))
    assert not tape


def test_memory_is_bounded(model: Einet, tape: list[str], monkeypatch: pytest.MonkeyPatch):
    """By the number of shapes and by bytes; those not used for longest go."""
    monkeypatch.setattr(recorded, "_MOST_ROOMS", 2)
    xs = [rows_of(model, count) for count in (3, 4, 5)]
    for _ in range(2):
        for x in xs:
            model.given(x).mean()
    assert [shape[0] for shape in rooms_of(model)] == [4, 5]
    size = sum(room.nbytes for room in rooms_of(model).values())
    limit(monkeypatch, "recorded queries", size)
    for _ in range(2):
        model.given(rows_of(model, 2)).mean()
    assert [shape[0] for shape in rooms_of(model)][-1] == 2
    assert sum(room.nbytes for room in rooms_of(model).values()) <= size
    replay.recordings_of(model)._drop()
    assert not rooms_of(model)


def test_shapes_that_come_in_turns_are_not_recorded_all_the_time(
    model: Einet, tape: list[str], monkeypatch: pytest.MonkeyPatch
):
    """What was dropped is recorded anew after more and more calls."""
    monkeypatch.setattr(recorded, "_MOST_ROOMS", 1)
    monkeypatch.setattr(recorded, "_AFTER_A_DROP", 2)
    xs = [rows_of(model, count) for count in (3, 4)]
    recordings = []
    for _ in range(12):
        for x in xs:
            model.given(x).log_evidence.sum()
        recordings.append(tape.count("record"))
    # Of both the second time, and then seldom.
    assert recordings[:2] == [0, 2]
    assert recordings[-1] <= 5


def test_a_call_that_cannot_be_recorded(model: Einet, tape: list[str], monkeypatch):
    """It is told once, and then made without."""

    def refuse(self: _FakeTape, call: Any) -> None:
        raise RuntimeError("no room for a tape")

    monkeypatch.setattr(_FakeTape, "record", refuse)
    x = rows_of(model, 5)
    model.given(x).mean()
    with pytest.warns(UserWarning, match="could not record the upward pass.*no room for a tape"):
        found = answers(model.given(x))
    assert same(found, plain(model, x))
    assert same(answers(model.given(x)), plain(model, x))


def test_a_copy_that_fails_leaves_no_wrong_numbers(model: Einet, tape: list[str], monkeypatch):
    """Places that were written to for one posterior are not taken for another's."""
    xs = [rows_of(model, 5, seed=number) for number in range(3)]
    for x in xs:
        model.given(x).mean()
    first = model.given(xs[0])
    assert same([first.log_evidence], plain(model, xs[0])[:1])
    with monkeypatch.context() as failing:
        failing.setattr(UpwardPass, "clone", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.given(xs[1]).mean()
    assert same(answers(first), plain(model, xs[0]))


def test_copies_have_recordings_of_their_own(model: Einet, tape: list[str]):
    x = rows_of(model, 5)
    for _ in range(3):
        expected = answers(model.given(x))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert not rooms_of(other)
        assert same(answers(other.given(x)), expected)


@interpreted
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_draws(tape: list[str], monkeypatch: pytest.MonkeyPatch):
    """The same from a seed before and after, given something and given nothing."""
    model = Twins(SMALL, einet.Categorical(3), 2, "cpu", sums="linear").model
    other = copy.deepcopy(model)
    # A generator moves on as far as without recordings.
    one, two = (torch.Generator().manual_seed(5) for _ in range(2))
    with engine("cpu"):
        for number in range(3):
            x = rows_of(model, 2, seed=number, missing=0.6)
            alone = other.conditioned_on(other.as_batch(x), room=1 << 20)
            assert alone.is_part
            assert model.given(x).sample(2, seed=one).equal(alone.sample(2, seed=two))
            with monkeypatch.context() as unserved:
                unserved.setattr(recorded, "serves_draws", lambda *_: False)
                expected = model.sample(2, seed=number)
            assert model.sample(2, seed=number).equal(expected)
        # The upward pass, draws given that, and draws given nothing.
        assert tape.count("record") == 3
        assert len(rooms_of(model)) == 2
        # Means of leaves are not drawn by kernels.
        model.given(x).sample(2, leaves="mean", seed=0)
        assert tape.count("record") == 3


def test_leaves_that_are_drawn_in_torch_wait():
    served = einet.Einet(SMALL, einet.Categorical(3), 2, sums="linear")
    other = einet.Einet(SMALL, einet.Poisson(), 2, sums="linear")
    assert choices.draws_alone(served.leaf)
    assert not choices.draws_alone(other.leaf)


# -- on a GPU --------------------------------------------------------------------------------------

GRAPHS: dict[str, Callable[[], einet.RegionGraph]] = {
    "hidden tree": lambda: BUSHY,
    "random trees": lambda: einet.random_trees(9, depth=2, replicas=3, seed=0),
    "grid": lambda: einet.poon_domingos((3, 3), delta=1),
}
FAMILIES: dict[str, Callable[[], Any]] = {
    "gaussian": einet.Gaussian,
    "categorical": lambda: einet.Categorical(5, numeric=True),
    "bernoulli": einet.Bernoulli,
    "poisson": einet.Poisson,
}


def twins_of(graph: str = "hidden tree", family: str = "gaussian", **options: Any) -> Twins:
    sums = "linear" if graph == "hidden tree" else "einsum"
    options = {"num_sums": 6, "sums": sums, **options}
    return Twins(GRAPHS[graph](), FAMILIES[family](), device="cuda", **options)


def check(twins: Twins, x: Tensor, **options: Any) -> Any:
    """Compare a posterior with that of float64; the posterior."""
    mine = twins.model.given(twins.on(x), **options)
    exact = twins.exact.given(x, **options)
    for found, expected in zip(answers(mine), answers(exact), strict=True):
        near(found.double().cpu(), expected, 1e-3)
    return mine


@pytest.mark.gpu
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("graph", GRAPHS)
def test_gpu_means_and_variances(graph: str, family: str):
    twins = twins_of(graph, family)
    for number in range(4):
        x = twins.rows(20, seed=number)
        posterior = check(twins, x)
        full = random_rows(twins.exact, 20, seed=9, missing=0.0)
        found = posterior.log_marginals(twins.on(full))
        near(found.double().cpu(), twins.exact.given(x).log_marginals(full), 1e-3)
    (room,) = rooms_of(twins.model).values()
    assert room._up is not None
    assert room._down is not None
    assert room._moments is not None


@pytest.mark.gpu
@pytest.mark.parametrize("sums", [70, 130])
def test_gpu_wide_sums(sums: int):
    """Trees whose products are kept in planes."""
    twins = twins_of(num_sums=sums)
    posteriors = [check(twins, twins.rows(20, seed=number)) for number in range(4)]
    for number in (1, 0, 3, 2):
        exact = twins.exact.given(twins.rows(20, seed=number))
        near(posteriors[number].mean().double().cpu(), exact.mean(), 1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("graph", GRAPHS)
def test_gpu_posteriors_in_turns(graph: str):
    twins = twins_of(graph)
    xs = [twins.rows(20, seed=number) for number in range(5)]
    exact = [answers(twins.exact.given(x)) for x in xs]
    posteriors = [twins.model.given(twins.on(x)) for x in xs]
    asked = [lambda p: p.log_evidence, lambda p: p.mean(), lambda p: p.variance()]
    for place, ask in enumerate(asked):
        for number in (3, 0, 4, 1, 2):
            found = ask(posteriors[number])
            near(found.double().cpu(), exact[number][place], 1e-3)
            posteriors[(number + 1) % 5].sample(2, seed=number)
    # Upward passes first, then what goes on from each of them, in another order.
    posteriors = [twins.model.given(twins.on(x)) for x in xs]
    for posterior in posteriors:
        assert posterior.log_evidence.isfinite().all()
    for number in (2, 4, 0, 3, 1):
        near(posteriors[number].mean().double().cpu(), exact[number][1], 1e-3)
    for number in (0, 1, 2, 3, 4):
        some = posteriors[number].at(torch.tensor([1, 7], device="cuda"))
        near(some.mean().double().cpu(), exact[number][1][[1, 7]], 1e-3)


@pytest.mark.gpu
def test_gpu_bit_by_bit():
    """What is recorded gives the very numbers of what is run."""
    twins = twins_of("hidden tree", "categorical")
    xs = [twins.on(twins.rows(20, seed=number)).float() for number in range(3)]
    alone = copy.deepcopy(twins.model)
    for x in [*xs, *xs]:
        run = alone.conditioned_on(alone.as_batch(x), room=1 << 30)
        assert same(answers(twins.model.given(x)), answers(run))
    assert rooms_of(twins.model)
    assert not rooms_of(alone)


@pytest.mark.gpu
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("graph", GRAPHS)
def test_gpu_draws(graph: str, family: str):
    """The same from a seed before and after; observed cells stay."""
    twins = twins_of(graph, family, num_classes=2)
    alone = copy.deepcopy(twins.model)
    for number in range(4):
        x = twins.on(twins.rows(20, seed=number)).float()
        run = alone.conditioned_on(alone.as_batch(x), room=1 << 30)
        posterior = twins.model.given(x)
        for n in (1, 7):
            drawn = posterior.sample(n, seed=number)
            assert drawn.isfinite().all()
            assert drawn.equal(run.sample(n, seed=number))
            assert drawn.equal(torch.where(x.isnan(), drawn, x))
        with pytest.MonkeyPatch.context() as unserved:
            unserved.setattr(recorded, "serves_draws", lambda *_: False)
            expected = twins.model.sample(50, seed=number)
        assert twins.model.sample(50, seed=number).equal(expected)
    drawn = [draws for room in rooms_of(twins.model).values() for draws in room._draws.values()]
    assert len(drawn) == (0 if family == "poisson" else 3)
    assert all(draws.call is not None for draws in drawn)


@pytest.mark.gpu
def test_gpu_draws_without_a_seed_and_from_a_generator():
    twins = twins_of()
    x = twins.on(twins.rows(20))
    for _ in range(3):
        posterior = twins.model.given(x)
        one, two = (posterior.sample(3) for _ in range(2))
        assert not one.equal(two)
        torch.manual_seed(5)
        first = posterior.sample(3)
        torch.manual_seed(5)
        assert posterior.sample(3).equal(first)
        generator = torch.Generator("cuda").manual_seed(1)
        assert posterior.sample(3, seed=generator).equal(posterior.sample(3, seed=1))
        assert not posterior.sample(3, seed=generator).equal(posterior.sample(3, seed=1))


@pytest.mark.gpu
def test_gpu_shapes_types_and_labels():
    twins = twins_of("hidden tree", "categorical", num_classes=3)
    for number in range(3):
        for count in (1, 3, 20, 33, 100):
            x = twins.rows(count, seed=number)
            check(twins, x)
            check(twins, x, labels=(torch.arange(count) + number) % 4 - 1)
        whole = random_rows(twins.exact, 20, seed=number, missing=0.0)
        near(
            twins.model.given(twins.on(whole.long())).log_evidence.double().cpu(),
            twins.exact.given(whole.long()).log_evidence,
            1e-3,
        )
    assert len(rooms_of(twins.model)) == recorded._MOST_ROOMS


@pytest.mark.gpu
def test_gpu_impossible_rows_are_named():
    twins = twins_of("hidden tree", "categorical")
    x = twins.rows(20)
    for number in range(4):
        check(twins, twins.rows(20, seed=number))
        bad = twins.on(x.clone())
        bad[number + 3, 0] = 77.0
        for ask in (lambda p: p.mean(), lambda p: p.sample(1)):
            with pytest.raises(ValueError, match=rf"in 1 of 20 rows \({number + 3}\)"):
                ask(twins.model.given(bad))


@pytest.mark.gpu
@pytest.mark.parametrize("graph", GRAPHS)
def test_gpu_parameters_that_change(graph: str):
    """Steps in between, recorded ones too, statistics elsewhere every time, and moves."""
    twins = twins_of(graph)
    x = twins.rows(20)
    for number in range(4):
        posterior = check(twins, x)
        twins.model.em_step(twins.on(twins.rows(30, seed=number)), step_size=0.4)
        for _ in range(5):
            twins.model.e_step(twins.on(twins.rows(10, seed=number)))
        twins.follow()
        near(posterior.mean().double().cpu(), twins.exact.given(x).mean(), 1e-3)
    assert rooms_of(twins.model)
    twins.model.m_step(twins.model.e_step(twins.on(twins.rows(30, seed=7))), 0.5)
    twins.follow()
    check(twins, x)
    other = copy.deepcopy(twins.model)
    other.em_step(twins.on(twins.rows(30, seed=8)), step_size=0.9)
    twins.model.load_state_dict(other.state_dict())
    twins.follow()
    check(twins, x)
    twins.model.double()
    twins.model.given(twins.on(x)).mean()
    twins.model.float()
    twins.follow()
    for _ in range(3):
        check(twins, x)
    replay.forget(twins.model)
    assert not rooms_of(twins.model)
    for _ in range(3):
        check(twins, x)
    with einet.unconstrained(twins.model):
        for _ in range(3):
            found = twins.model.given(twins.on(x)).mean()
            near(found.double().cpu(), twins.exact.given(x).mean(), 1e-3)


@pytest.mark.gpu
def test_gpu_precisions():
    twins = twins_of(num_sums=32)
    x = twins.on(twins.rows(40))
    found: dict[str, list[Tensor]] = {"highest": [], "high": [], "medium": []}
    for precision in ["highest", "medium", "high"] * 3:
        twins.model.precision = precision  # type: ignore[assignment]
        found[precision].append(twins.model.given(x).mean())
    for means in found.values():
        assert same(means, [means[0]] * 3)
    # A posterior keeps the precision that it was made with.
    twins.model.precision = "highest"
    posterior = twins.model.given(x)
    assert posterior.log_evidence.isfinite().all()
    twins.model.precision = "medium"
    assert posterior.mean().equal(found["highest"][0])


@pytest.mark.gpu
def test_gpu_inference_mode():
    """Whichever comes first, the other one works after it."""
    for first in (True, False):
        twins = twins_of()
        for number in range(8):
            with torch.inference_mode(first == (number % 4 < 2)):
                posterior = check(twins, twins.rows(20, seed=number))
                posterior.sample(2, seed=0)
                twins.model.sample(5, seed=0)


@pytest.mark.gpu
def test_gpu_threads_and_streams():
    """Each gets the answer to its own question, whoever records meanwhile."""
    twins = twins_of()
    xs = [twins.on(twins.rows(20, seed=number)) for number in range(4)]
    expected = [twins.exact.given(x.cpu()).mean() for x in xs]
    # What a model makes on first use is there before threads come.
    check(twins, xs[0].cpu()).sample(2, seed=0)
    torch.cuda.synchronize()

    def ask(number: int) -> Tensor:
        with torch.cuda.stream(torch.cuda.Stream()):
            found = twins.model.given(xs[number % 4])
            found.sample(2, seed=number)
            mean = found.mean()
            torch.cuda.current_stream().synchronize()
            return mean.cpu()

    with ThreadPoolExecutor(4) as pool:
        for number, found in enumerate(pool.map(ask, range(100))):
            near(found.double(), expected[number % 4], 1e-3)


@pytest.mark.gpu
def test_gpu_few_launches():
    """A mean, a variance and samples of new posteriors, once they are recorded."""
    graph = hidden_tree([i // 2 for i in range(600)])
    family = einet.Categorical(16, numeric=True)
    model = Twins(graph, family, 16, "cuda", sums="linear").model
    xs = [rows_of(model, 50, seed=number) for number in range(4)]
    questions: dict[str, Callable[[Tensor], Any]] = {
        "mean": lambda x: model.given(x).mean(),
        "variance": lambda x: model.given(x).variance(),
        "sample": lambda x: model.given(x).sample(1, seed=0),
        "prior": lambda x: model.sample(100, seed=0),
    }
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    for name, ask in questions.items():
        for x in xs[:3]:
            ask(x)
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=activities, acc_events=True) as profile:
            ask(xs[3])
            torch.cuda.synchronize()
        events = profile.events() or []
        launches = [e.name for e in events if e.name.startswith(("cudaLaunch", "cudaGraphLaunch"))]
        launches += [e.name for e in events if e.name.startswith(("cuLaunch", "cudaMemcpy"))]
        assert 0 < len(launches) < 45, (name, len(launches))


@pytest.mark.gpu
def test_gpu_a_deleted_model_is_freed():
    def run() -> Any:
        twins = twins_of()
        for number in range(3):
            posterior = check(twins, twins.rows(20, seed=number))
            posterior.sample(2)
        assert rooms_of(twins.model)
        return weakref.ref(twins.model)

    model = run()
    gc.collect()
    assert model() is None
