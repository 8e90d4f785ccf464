"""The training loop."""

import inspect
import math
import os
import signal
import threading
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from einet import (
    EM,
    Bernoulli,
    Categorical,
    Einet,
    Gaussian,
    Gradient,
    Mixture,
    Model,
    Prior,
    StochasticEM,
    fit,
    random_trees,
    unconstrained,
)
from einet.data import Batch

GRAPH = random_trees(4, depth=2, replicas=2, seed=1)
LEARNERS = {
    "EM": EM,
    "stochastic EM": lambda: StochasticEM(0.4),
    "Adam": lambda: Gradient(torch.optim.Adam, lr=0.03),
}


@pytest.fixture
def model() -> Einet:
    return Einet(GRAPH, Gaussian(), 3)


@pytest.fixture
def x() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    kind = torch.randint(3, (90, 1), generator=generator)
    return kind + 0.3 * torch.randn(90, 4, generator=generator)


@pytest.fixture
def valid() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    kind = torch.randint(3, (40, 1), generator=generator)
    return kind + 0.3 * torch.randn(40, 4, generator=generator)


def copied(model: Model) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(model: Model, state: dict[str, Tensor]) -> bool:
    now = model.state_dict()
    return now.keys() == state.keys() and all(
        torch.equal(now[name].nan_to_num(), state[name].nan_to_num()) for name in now
    )


class Probe(StochasticEM):
    """Notes what the loop does with it, and calls ``act(step)`` in the midst of each step."""

    def __init__(self, act=lambda step: None, step_size: float = 0.5) -> None:
        super().__init__(step_size)
        self.act, self.calls, self.sizes, self.progress = act, [], [], []
        self.rows: list[Batch] = []

    def start(self, model: Model, rows=None, objective="generative") -> None:
        self.calls.append("start")
        super().start(model, rows, objective)

    def step(self, model: Model, batch, progress: float = 0.0) -> Tensor:
        self.calls.append("step")
        self.sizes.append(len(batch))
        self.rows.append(batch)
        self.progress.append(progress)
        self.act(len(self.sizes))
        return super().step(model, batch, progress)

    def end_epoch(self, model: Model, progress: float) -> None:
        self.calls.append("end_epoch")

    def finish(self, model: Model) -> None:
        self.calls.append("finish")
        super().finish(model)


class TestLoop:
    @pytest.mark.parametrize("learner", LEARNERS)
    def test_learns(self, model: Einet, x: Tensor, valid: Tensor, learner: str) -> None:
        optimizer = LEARNERS[learner]()
        history = fit(model, x, valid, epochs=8, batch_size=32, optimizer=optimizer, progress=False)
        assert history.stopped == "finished"
        assert len(history.train) == len(history.valid) == len(history.seconds) == 8
        assert history.train[-1] > history.train[0]
        assert history.best_epoch is not None
        assert history.valid[history.best_epoch] == max(history.valid)
        assert abs(model.log_normalizer().item()) < 1e-5
        assert all(parameter.grad is None for parameter in model.parameters())
        assert model.log_prob(valid).mean().item() == pytest.approx(max(history.valid), abs=1e-4)

    def test_the_default_learner_lowers_its_step(self, model: Einet, x: Tensor) -> None:
        history = fit(model, x, epochs=4, batch_size=10, progress=False)
        assert history.step_size[0] < 0.5
        assert history.step_size[-1] == pytest.approx(0.05)
        assert history.valid == []
        assert history.best_epoch is None

    def test_em_never_decreases(self, x: Tensor) -> None:
        model = Einet(GRAPH, Gaussian(), 3, dtype=torch.float64)
        train = fit(model, x, epochs=15, batch_size=20, optimizer=EM(), progress=False).train
        assert all(b >= a - 1e-9 for a, b in pairwise(train))

    def test_what_the_learner_sees(self, model: Einet, x: Tensor) -> None:
        probe = Probe()
        history = fit(model, x, epochs=2, batch_size=40, optimizer=probe, progress=False)
        epoch = ["step"] * 3 + ["end_epoch"]
        assert probe.calls == ["start", *epoch, *epoch, "finish"]
        assert probe.sizes == [30, 30, 30] * 2
        assert probe.progress == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
        assert history.step_size == [0.5, 0.5]
        # Every row once an epoch, each epoch in another order, and never in the given one.
        batches = [batch.x for batch in probe.rows]
        orders = [torch.cat(batches[:3]), torch.cat(batches[3:])]
        for order in orders:
            assert torch.equal(order[order[:, 0].argsort()], x[x[:, 0].argsort()])
            assert not torch.equal(order, x)
        assert not torch.equal(*orders)

    def test_train_is_the_average_over_rows(self, model: Einet, x: Tensor) -> None:
        """EM leaves the parameters alone within an epoch, so it is that of the first model."""
        model.initialize(x)
        expected = model.log_prob(x).double().mean().item()
        history = fit(model, x, epochs=1, batch_size=40, optimizer=EM(), progress=False)
        assert history.train[0] == pytest.approx(expected, rel=1e-6)

    @pytest.mark.parametrize("learner", LEARNERS)
    def test_the_same_seed_gives_the_same_bits(
        self, x: Tensor, valid: Tensor, learner: str
    ) -> None:
        runs = []
        for global_seed, seed in ((1, 5), (2, 5), (1, 6)):
            torch.manual_seed(global_seed)
            before = torch.get_rng_state()
            model = Einet(GRAPH, Gaussian(), 3)
            history = fit(
                model, x, valid, epochs=3, batch_size=20, optimizer=LEARNERS[learner](), seed=seed,
                progress=False,
            )  # fmt: skip
            assert torch.equal(torch.get_rng_state(), before)
            runs.append((copied(model), history.train, history.valid, model))
        assert same(runs[1][3], runs[0][0])
        assert runs[0][1:3] == runs[1][1:3]
        assert not same(runs[2][3], runs[0][0])

    def test_initialisation(self, x: Tensor) -> None:
        class Still(Probe):
            def step(self, model: Model, batch, progress: float = 0.0) -> Tensor:
                return torch.zeros((), dtype=torch.float64)

        def run(model: Einet, initialize: bool | None) -> bool:
            """Whether the leaves were set."""
            before = copied(model)
            fit(model, x, epochs=1, optimizer=Still(), initialize=initialize, progress=False)
            return not same(model, before)

        model = Einet(GRAPH, Gaussian(), 3)
        assert not run(model, False)
        assert not model.initialized
        assert run(model, None)
        assert model.initialized
        assert not run(model, None)
        # Again, but with the same seed: move something first.
        model.leaf.leaf_blocks[0].stored.data.mul_(2)
        assert run(model, True)

    def test_a_learner_can_be_used_again(self, x: Tensor) -> None:
        for learner in (EM(), StochasticEM(0.5), Gradient(torch.optim.Adam, lr=0.01)):
            runs = []
            for _ in range(2):
                model = Einet(GRAPH, Gaussian(), 3)
                runs.append(
                    fit(model, x, epochs=2, batch_size=50, optimizer=learner, progress=False)
                )
            assert runs[0].train == runs[1].train

    def test_a_mixture(self, x: Tensor, valid: Tensor) -> None:
        mixture = Mixture([Einet(GRAPH, Gaussian(), 2, seed=seed) for seed in range(2)])
        history = fit(mixture, x, valid, epochs=5, batch_size=30, progress=False)
        assert history.valid[-1] > history.valid[0]
        with pytest.raises(ValueError, match="labels"):
            fit(mixture, x, labels=[0] * 90, progress=False)


class TestStopping:
    @pytest.mark.parametrize("learner", LEARNERS)
    def test_the_best_model_comes_back(self, x: Tensor, learner: str) -> None:
        """Few rows and many parameters: it overfits, and the best epoch is not the last."""
        model = Einet(GRAPH, Gaussian(), 6)
        optimizer = LEARNERS[learner]()
        if isinstance(optimizer, Gradient):
            optimizer = Gradient(torch.optim.Adam, lr=0.3)
        history = fit(
            model, x[:12], x[12:], epochs=40, batch_size=6, optimizer=optimizer, patience=4,
            progress=False,
        )  # fmt: skip
        assert history.stopped == "early"
        assert history.best_epoch is not None
        assert len(history) == history.best_epoch + 5
        assert history.valid[history.best_epoch] == max(history.valid)
        score = model.log_prob(x[12:]).double().mean().item()
        assert score == pytest.approx(max(history.valid), rel=1e-4)

    def test_without_validation_the_last_model_stays(self, model: Einet, x: Tensor) -> None:
        probe = Probe()
        fit(model, x, epochs=2, batch_size=45, optimizer=probe, progress=False)
        other = Einet(GRAPH, Gaussian(), 3).initialize(x)
        for rows in probe.rows:
            StochasticEM(0.5).step(other, rows)
        assert same(model, copied(other))

    def test_ctrl_c_stops_between_batches(self, model: Einet, x: Tensor) -> None:
        def interrupt(step: int) -> None:
            if step == 5:
                os.kill(os.getpid(), signal.SIGINT)

        before = signal.getsignal(signal.SIGINT)
        probe = Probe(interrupt)
        history = fit(model, x, epochs=9, batch_size=30, optimizer=probe, progress=False)
        assert signal.getsignal(signal.SIGINT) is before
        assert history.stopped == "interrupted"
        assert len(history) == len(history.seconds) == 1
        # The fifth step was completed, and it was the last.
        assert probe.calls == ["start", *["step"] * 3, "end_epoch", *["step"] * 2, "finish"]
        other = Einet(GRAPH, Gaussian(), 3).initialize(x)
        for rows in probe.rows:
            StochasticEM(0.5).step(other, rows)
        assert same(model, copied(other))

    def test_ctrl_c_keeps_the_best_model(self, model: Einet, x: Tensor, valid: Tensor) -> None:
        def interrupt(step: int) -> None:
            if step == 14:
                os.kill(os.getpid(), signal.SIGINT)

        history = fit(
            model, x, valid, epochs=9, batch_size=30, optimizer=Probe(interrupt), progress=False
        )
        assert history.stopped == "interrupted"
        assert len(history.train) == len(history.valid) == 4
        score = model.log_prob(valid).double().mean().item()
        assert score == pytest.approx(max(history.valid), rel=1e-5)

    def test_ctrl_c_in_the_first_epoch_keeps_what_was_learnt(
        self, model: Einet, x: Tensor, valid: Tensor
    ) -> None:
        model.initialize(x)
        before = copied(model)
        probe = Probe(lambda step: os.kill(os.getpid(), signal.SIGINT))
        history = fit(model, x, valid, batch_size=30, optimizer=probe, progress=False)
        assert history.stopped == "interrupted"
        assert len(history) == 0
        assert history.best_epoch is None
        assert not same(model, before)

    def test_ctrl_c_with_gradients(self, model: Einet, x: Tensor) -> None:
        class Impatient(Gradient):
            def step(self, model: Model, batch, progress: float = 0.0) -> Tensor:
                os.kill(os.getpid(), signal.SIGINT)
                return super().step(model, batch, progress)

        names = list(copied(model))
        learner = Impatient(torch.optim.Adam, lr=0.1)
        assert fit(model, x, optimizer=learner, progress=False).stopped == "interrupted"
        assert list(copied(model)) == names
        assert abs(model.log_normalizer().item()) < 1e-5

    def test_a_second_ctrl_c_does_not_wait(self, model: Einet, x: Tensor) -> None:
        after_epoch = {}

        def interrupt(step: int) -> None:
            if step == 4:
                after_epoch.update(copied(model))
            if step == 5:
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)

        before = signal.getsignal(signal.SIGINT)
        probe = Probe(interrupt)
        with pytest.raises(KeyboardInterrupt):
            fit(model, x, epochs=9, batch_size=30, optimizer=probe, progress=False)
        assert signal.getsignal(signal.SIGINT) is before
        assert probe.calls[-1] == "finish"
        assert same(model, after_epoch)

    def test_ignored_ctrl_c_stays_ignored(self, model: Einet, x: Tensor) -> None:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            probe = Probe(lambda step: os.kill(os.getpid(), signal.SIGINT))
            history = fit(model, x, epochs=2, optimizer=probe, progress=False)
            assert history.stopped == "finished"
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        finally:
            signal.signal(signal.SIGINT, before)

    def test_outside_the_main_thread(self, model: Einet, x: Tensor) -> None:
        results = []
        run = lambda: results.append(fit(model, x, epochs=2, progress=False))  # noqa: E731
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert results[0].stopped == "finished"


class TestFailure:
    @pytest.mark.parametrize("good_epochs", [0, 2])
    @pytest.mark.parametrize("last", [False, True], ids=["first step", "last step"])
    def test_nan_restores_the_model(
        self, model: Einet, x: Tensor, good_epochs: int, last: bool
    ) -> None:
        """Also if the last step of an epoch did it, which no log-likelihood of that epoch shows."""
        good = {}

        class Poison(Probe):
            def step(self, model: Model, batch, progress: float = 0.0) -> Tensor:
                if len(self.sizes) == 3 * good_epochs:
                    good.update(copied(model))
                result = super().step(model, batch, progress)
                if len(self.sizes) == 3 * good_epochs + (3 if last else 1):
                    next(model.parameters()).data.view(-1)[0] = math.nan
                return result

        poison = Poison()
        where = "before training" if good_epochs == 0 else "after epoch 1"
        with pytest.raises(
            FloatingPointError, match=f"NaN at step .*too large a step .it was 0.5.*{where}"
        ):
            fit(model, x, epochs=5, batch_size=30, optimizer=poison, progress=False)
        assert poison.calls[-1] == "finish"
        assert same(model, good)

    def test_an_error_of_the_learner_restores_the_model(self, model: Einet, x: Tensor) -> None:
        def fail(step: int) -> None:
            if step == 2:
                raise RuntimeError("out of luck")

        model.initialize(x)
        before, handler = copied(model), signal.getsignal(signal.SIGINT)
        with pytest.raises(RuntimeError, match="out of luck"):
            fit(model, x, batch_size=30, optimizer=Probe(fail), progress=False)
        assert same(model, before)
        assert signal.getsignal(signal.SIGINT) is handler

    def test_a_start_that_fails_leaves_the_model_alone(self, model: Einet, x: Tensor) -> None:
        names = list(copied(model))
        with pytest.raises(ValueError, match="learning rate"):
            fit(model, x, optimizer=Gradient(torch.optim.Adam, lr=-1.0), progress=False)
        assert list(copied(model)) == names


class TestRows:
    def test_labels_some_of_them_unknown(self) -> None:
        model = Einet(GRAPH, Bernoulli(), 3, num_classes=2)
        kind = torch.arange(60) % 2
        x = kind.unsqueeze(1).repeat(1, 4)
        x[::5, 2] = 1 - x[::5, 2]
        labels = torch.where(torch.arange(60) % 3 == 0, kind, -1)
        history = fit(
            model, x, x[:10], labels=labels, valid_labels=kind[:10], epochs=20, batch_size=20,
            progress=False,
        )  # fmt: skip
        assert (model.class_posterior(x).argmax(1) == kind).all()
        expected = model.log_prob(x[:10], labels=kind[:10]).mean().item()
        assert max(history.valid) == pytest.approx(expected, rel=1e-5)

    @pytest.mark.parametrize("learner", LEARNERS)
    def test_a_mask_counts_as_nan_does(self, learner: str) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randint(3, (40, 4), generator=generator)
        observed = torch.rand(x.shape, generator=generator) < 0.7
        runs = []
        for data, mask in (
            (x.to(torch.uint8), observed),
            (torch.where(observed, x, math.nan), None),
        ):
            model = Einet(GRAPH, Categorical(3), 2)
            few = None if mask is None else mask[:5]
            history = fit(
                model, data, data[:5], observed=mask, valid_observed=few,
                epochs=3, batch_size=15, optimizer=LEARNERS[learner](), progress=False,
            )  # fmt: skip
            runs.append((history.train, history.valid))
        assert runs[0] == runs[1]

    def test_integers_reach_the_learner_as_they_are(self) -> None:
        probe = Probe()
        x = np.random.default_rng(0).integers(0, 2, (20, 4), dtype=np.uint8)
        fit(Einet(GRAPH, Bernoulli(), 2), x, epochs=1, optimizer=probe, progress=False)
        assert probe.rows[0].x.dtype == torch.uint8

    @pytest.mark.parametrize("learner", LEARNERS)
    def test_weights(self, x: Tensor, learner: str) -> None:
        """Weights of 2 and 0 are rows twice and not at all, garbage in the latter included."""
        runs = []
        for data, weights in (
            (torch.cat([x[:6], torch.full((2, 4), math.inf)]), [2.0, 1, 1, 1, 1, 2, 0, 0]),
            (x[[0, 0, 1, 2, 3, 4, 5, 5]], None),
        ):
            model = Einet(GRAPH, Gaussian(), 3, dtype=torch.float64).initialize(x)
            history = fit(
                model,
                data,
                weights=weights,
                epochs=3,
                optimizer=LEARNERS[learner](),
                progress=False,
            )
            runs.append(history.train)
        assert runs[0] == pytest.approx(runs[1], rel=1e-9)

    def test_weighted_average_over_batches(self, x: Tensor) -> None:
        model = Einet(GRAPH, Gaussian(), 3, dtype=torch.float64).initialize(x)
        weights = torch.linspace(0.1, 3, len(x)).double()
        expected = (model.log_prob(x) * weights).sum() / weights.sum()
        history = fit(
            model, x, weights=weights, epochs=1, batch_size=25, optimizer=EM(), progress=False
        )
        assert history.train[0] == pytest.approx(expected.item())

    def test_a_column_never_observed(self, model: Einet, x: Tensor) -> None:
        x[:, 1] = math.nan
        history = fit(model, x, x, epochs=3, batch_size=30, progress=False)
        assert all(math.isfinite(value) for value in history.valid)
        assert model.log_prob(torch.zeros(1, 4)).isfinite().all()

    def test_arrays_frames_and_lists(self, x: Tensor) -> None:
        pandas = pytest.importorskip("pandas")
        x[3, 1] = math.nan
        forms = [
            x,
            x.numpy(),
            pandas.DataFrame(x.numpy(), columns=list("abcd")),
            x.tolist(),
            pandas.DataFrame(x.numpy()).convert_dtypes(),
        ]
        runs = []
        for form in forms:
            model = Einet(GRAPH, Gaussian(), 2)
            runs.append(fit(model, form, form, epochs=2, progress=False).valid)
        assert all(run == pytest.approx(runs[0], rel=1e-6) for run in runs)

    def test_batches_larger_than_the_data(self, model: Einet, x: Tensor) -> None:
        assert len(fit(model, x[:1], epochs=2, batch_size=10**6, progress=False)) == 2

    def test_device(self, model: Einet, x: Tensor) -> None:
        fit(model, x, epochs=1, device="cpu", progress=False)
        assert model.device == torch.device("cpu")


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"train": torch.zeros(0, 4)}, "train must have at least one row"),
            ({"train": torch.zeros(5, 3)}, r"train must have shape \[rows, 4\]"),
            ({"train": [["a", "b", "c", "d"]]}, "train must be an array of numbers"),
            ({"train": [[0.0, math.inf, 0.0, 0.0]]}, r"train\[0, 1\] is inf"),
            ({"valid": torch.zeros(0, 4)}, "valid must have at least one row"),
            ({"valid": torch.zeros(2, 5)}, r"valid must have shape \[rows, 4\]"),
            (
                {"valid": [[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, -math.inf]]},
                r"valid\[1, 3\] is -inf",
            ),
            ({"epochs": 0}, "epochs must be an integer >= 1, got 0"),
            ({"batch_size": -3}, "batch_size must be .* got -3"),
            ({"valid": torch.zeros(2, 4), "patience": 0}, "patience must be .* got 0"),
            ({"patience": 3}, "patience is given, but valid is not"),
            ({"valid_labels": [0]}, "valid_labels is given, but valid is not"),
            ({"valid_observed": [[True] * 4]}, "valid_observed is given, but valid is not"),
            ({"labels": [0, 1]}, r"labels must have shape \[3\]"),
            ({"labels": [0, 0, 1]}, "labels must lie between"),
            ({"observed": [[True] * 4]}, "observed must have the shape of train"),
            ({"weights": [1.0]}, r"weights must have shape \[3\]"),
            ({"weights": [1.0, -1.0, 1.0]}, "weights must be finite and not negative"),
            ({"weights": [0.0, 0.0, 0.0]}, "weights must not be 0 throughout"),
        ],
        ids=lambda value: "" if isinstance(value, dict) else value,
    )
    def test_messages(self, model: Einet, arguments: dict, message: str) -> None:
        before = copied(model)
        arguments = {"train": torch.zeros(3, 4), "progress": False} | arguments
        with pytest.raises((TypeError, ValueError), match=message):
            fit(model, **arguments)
        assert same(model, before)
        assert not model.initialized

    def test_values_outside_the_support(self) -> None:
        model = Einet(GRAPH, Bernoulli(), 2)
        good = [[0, 1, 1, 0], [1, 1, 0, 0]]
        bad = [[0, 1, 1, 0], [0, 1, 2, 0]]
        with pytest.raises(
            ValueError, match=r"train\[1, 2\] is 2, outside the support of Bernoulli"
        ):
            fit(model, bad, progress=False)
        with pytest.raises(ValueError, match=r"valid\[1, 2\] is 2"):
            fit(model, good, bad, progress=False)

    def test_inside_unconstrained(self, model: Einet, x: Tensor) -> None:
        with unconstrained(model), pytest.raises(ValueError, match="unconstrained"):
            fit(model, x, progress=False)

    def test_types(self, model: Einet, x: Tensor) -> None:
        unchecked = inspect.unwrap(fit)
        with pytest.raises(TypeError, match="model must be an Einet or a Mixture, got Linear"):
            unchecked(torch.nn.Linear(2, 2), x, progress=False)
        other = torch.zeros(1, requires_grad=True)
        for given in (torch.optim.Adam, torch.optim.Adam([other])):
            with pytest.raises(TypeError, match=r"einet.Gradient\(torch.optim.Adam.*got Adam"):
                unchecked(model, x, optimizer=given, progress=False)

    def test_a_schedule_out_of_bounds(self, model: Einet, x: Tensor) -> None:
        with pytest.raises(ValueError, match="step_size must lie in"):
            fit(model, x, optimizer=StochasticEM(lambda at: 0.5 - at), batch_size=9, progress=False)


def test_hidden_cells(x: Tensor, valid: Tensor) -> None:
    """Drawn anew for every mini-batch; what is missing stays so, and nothing is hidden later."""
    known: list[Tensor] = []

    class Watching(StochasticEM):
        def step(self, model: Model, batch, progress: float = 0.0) -> Tensor:
            known.append(batch.mask)
            return super().step(model, batch, progress)

    x[:, 0] = math.nan
    model = Einet(GRAPH, Gaussian(), 3)
    history = fit(model, x, valid, epochs=20, optimizer=Watching(), hide=0.3, progress=False)
    masks = torch.stack(known)
    assert not masks[..., 0].any()
    assert masks[..., 1:].float().mean() == pytest.approx(0.7, abs=0.03)
    assert not masks[0].equal(masks[1])
    with torch.no_grad():
        best = max(history.valid)
        assert float(model.log_prob(valid).mean()) == pytest.approx(best, rel=1e-5)

    runs = []
    for hide in (0.0, 0.3, 0.3):
        model = Einet(GRAPH, Gaussian(), 3)
        runs.append(fit(model, x, epochs=2, hide=hide, progress=False).train)
    assert runs[1] == runs[2] != runs[0]


@pytest.mark.parametrize("hide", [-0.1, 1.0, math.nan])
def test_hide_is_a_probability(model: Einet, x: Tensor, hide: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="hide must be a probability"):
        fit(model, x, hide=hide, progress=False)


@pytest.mark.parametrize("with_valid", [True, False])
def test_finish(x: Tensor, valid: Tensor, with_valid: bool) -> None:
    """Epochs of full-batch EM, under the same prior, from the best epoch of the others."""
    prior = Prior(sums=2.0, leaves=1.0)
    held_out = valid if with_valid else None
    model, twin = (Einet(GRAPH, Gaussian(), 3, dtype=torch.float64) for _ in range(2))
    learner = StochasticEM(0.5, prior)
    history = fit(
        model, x, held_out, epochs=3, finish=4, batch_size=20, optimizer=learner, progress=False
    )
    fit(twin, x, held_out, epochs=3, batch_size=20, optimizer=learner, progress=False)
    more = fit(twin, x, held_out, epochs=4, optimizer=EM(prior), progress=False)
    assert len(history) == 7
    assert len(history.step_size) == 3
    assert history.train[3:] == pytest.approx(more.train, rel=1e-9)
    assert history.stopped == "finished"
    if with_valid:
        assert history.valid[3:] == pytest.approx(more.valid, rel=1e-9)
        with torch.no_grad():
            score = float(model.log_prob(valid).mean())
        assert score == pytest.approx(max(history.valid), rel=1e-9)
    else:
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-9)


def test_finish_after_an_early_stop(x: Tensor) -> None:
    """Validation rows unlike any other end the stochastic epochs at once, but not the others."""
    far = torch.full((5, x.shape[1]), 4.0)
    model = Einet(GRAPH, Gaussian(), 3)
    history = fit(model, x, far, epochs=50, finish=2, patience=1, progress=False)
    assert history.stopped == "early"
    assert len(history.step_size) < 50
    assert len(history) == len(history.step_size) + 2


@pytest.mark.parametrize(
    ("finish", "learner", "message"),
    [(-1, None, "finish must be an integer >= 0"), (2, EM(), "StochasticEM to its end")],
)
def test_finish_is_checked(model: Einet, x: Tensor, finish: int, learner: Any, message: str):
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(ValueError, match=message):
        fit(model, x, finish=finish, optimizer=learner, progress=False)
    assert all(p.equal(q) for p, q in zip(model.parameters(), before, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("resident", [True, False], ids=["moved once", "moved batch by batch"])
def test_on_a_gpu(
    x: Tensor, valid: Tensor, learner: str, resident: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not resident:
        monkeypatch.setattr("einet.data.staging._RESIDENT_SHARE", 0.0)
    x[::7, 2] = math.nan
    runs = []
    for device in ("cpu", "cuda"):
        model = Einet(GRAPH, Gaussian(), 3, dtype=torch.float64)
        history = fit(
            model, x, valid, weights=torch.linspace(0, 2, len(x)), epochs=4, batch_size=20,
            optimizer=LEARNERS[learner](), device=device, progress=False,
        )  # fmt: skip
        assert model.device.type == device
        runs.append(history.train + history.valid)
    assert runs[0] == pytest.approx(runs[1], rel=1e-6)
