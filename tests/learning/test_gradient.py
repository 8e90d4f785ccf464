"""Gradient learning on unconstrained parameters."""

import math

import pytest
import torch
from torch import Tensor

from einet import Bernoulli, Categorical, Einet, Gaussian, Gradient, random_trees, unconstrained
from einet.kernels.update import RELATIVE_FLOOR
from einet.layers.parameter import CanonicalParameter
from tests.families.cases import CASES, Case

GRAPH = random_trees(4, depth=2, replicas=2, seed=1)


def draws(case: Case, rows: int = 40) -> Tensor:
    kinds = [case.draw(reference, rows * 4, 1).view(rows, 4) for reference in case.references[:2]]
    x = torch.where((torch.arange(rows) % 2 == 0).unsqueeze(1), *kinds)
    x[::7, 1] = math.nan
    return x


def copied(model: Einet) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def assert_normalised(model: Einet) -> None:
    tolerance = 1e-10 if model.dtype == torch.float64 else 1e-5
    assert abs(model.log_normalizer().item()) < tolerance
    for layer in model.circuit.sum_layers:
        for w in layer.simplices(layer.weight.detach()):
            torch.testing.assert_close(w.sum(-1), torch.ones_like(w[..., 0]))
            assert w.min() >= RELATIVE_FLOOR / w.shape[-1] * (1 - 1e-5)
    torch.testing.assert_close(model.log_class_prior.exp().sum(), torch.ones((), dtype=model.dtype))
    for block in model.leaf.leaf_blocks:
        stored = block.stored.detach().double()
        torch.testing.assert_close(block.family.project(stored), stored, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
class TestEveryFamily:
    def model(self, case: Case, x: Tensor, **options) -> Einet:
        options = {"num_sums": 3, "num_classes": 2, "dtype": torch.float64} | options
        return Einet(GRAPH, case.family, **options).initialize(x)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_there_and_back(self, case: Case, dtype: torch.dtype) -> None:
        x = draws(case)
        model = self.model(case, x, dtype=dtype)
        rtol, atol = (1e-4, 1e-3) if dtype == torch.float32 else (1e-9, 1e-8)
        before, names = model.log_prob(x).detach(), list(copied(model))
        with unconstrained(model) as inside:
            assert inside is model
            torch.testing.assert_close(model.log_prob(x).detach(), before, rtol=rtol, atol=atol)
            with torch.no_grad():
                torch.testing.assert_close(model.log_prob(x), before, rtol=rtol, atol=atol)
        torch.testing.assert_close(model.log_prob(x).detach(), before, rtol=rtol, atol=atol)
        assert list(copied(model)) == names
        assert all(type(p) is CanonicalParameter for p in model.parameters())

    @pytest.mark.parametrize(
        "learner",
        [Gradient(torch.optim.Adam, lr=0.02), Gradient(torch.optim.SGD, lr=1e-3, momentum=0.5)],
        ids=["Adam", "SGD"],
    )
    def test_learns_and_stays_normalised(self, case: Case, learner: Gradient) -> None:
        x = draws(case)
        model = self.model(case, x)
        learner.start(model)
        results = [learner.step(model, x).item() for _ in range(15)]
        assert abs(model.log_normalizer().item()) < 1e-10
        learner.finish(model)
        assert results[-1] > results[0]
        torch.testing.assert_close(model.log_prob(x).mean().item(), results[-1], rtol=0.1, atol=0.1)
        assert_normalised(model)
        assert all(parameter.grad is None for parameter in model.parameters())

    def test_violent_steps_leave_a_sound_model(self, case: Case) -> None:
        x = draws(case)
        model = self.model(case, x, dtype=torch.float32)
        learner = Gradient(torch.optim.SGD, lr=50.0)
        learner.start(model)
        for _ in range(4):
            learner.step(model, x)
        learner.finish(model)
        assert all(parameter.isfinite().all() for parameter in model.parameters())
        assert_normalised(model)


class TestGradient:
    @pytest.fixture
    def x(self) -> Tensor:
        return torch.randn(30, 4, generator=torch.Generator().manual_seed(1)).double()

    @pytest.fixture
    def model(self, x: Tensor) -> Einet:
        return Einet(GRAPH, Gaussian(), 3, dtype=torch.float64).initialize(x)

    def test_a_gradient_is_what_finite_differences_say(self, model: Einet, x: Tensor) -> None:
        with unconstrained(model):
            parameters = list(model.parameters())
            generator = torch.Generator().manual_seed(3)
            ways = [torch.randn(p.shape, generator=generator).double() for p in parameters]
            model.log_prob(x).mean().backward()
            slope = sum(
                (p.grad * way).sum()
                for p, way in zip(parameters, ways, strict=True)
                if p.grad is not None
            )
            values = []
            for sign in (1, -1):
                for p, way in zip(parameters, ways, strict=True):
                    p.data.add_(sign * 1e-6 * way)
                values.append(model.log_prob(x).mean().item())
                for p, way in zip(parameters, ways, strict=True):
                    p.data.sub_(sign * 1e-6 * way)
        assert (values[0] - values[1]) / 2e-6 == pytest.approx(float(slope), rel=1e-6)

    def test_parameters_are_set_to_where_the_optimiser_went(self, model: Einet, x: Tensor) -> None:
        with unconstrained(model):
            optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
            (-model.log_prob(x).mean()).backward()
            optimizer.step()
            inside = model.log_prob(x).detach()
        torch.testing.assert_close(model.log_prob(x).detach(), inside)
        assert all(parameter.grad is None for parameter in model.parameters())

    def test_an_error_inside_does_not_leave_it_behind(self, model: Einet, x: Tensor) -> None:
        before = copied(model)
        with pytest.raises(RuntimeError, match="oops"), unconstrained(model):
            raise RuntimeError("oops")
        assert copied(model).keys() == before.keys()
        for name, parameter in copied(model).items():
            torch.testing.assert_close(parameter, before[name])

    def test_twice_is_refused(self, model: Einet, x: Tensor) -> None:
        before = model.log_prob(x)
        with unconstrained(model):
            with pytest.raises(RuntimeError, match="already"), unconstrained(model):
                raise AssertionError("a second one was let in")
            torch.testing.assert_close(model.log_prob(x).detach(), before)
        torch.testing.assert_close(model.log_prob(x), before)
        assert all(type(p) is CanonicalParameter for p in model.parameters())

    def test_weights_of_rows(self, model: Einet, x: Tensor) -> None:
        other = Einet(GRAPH, Gaussian(), 3, dtype=torch.float64).initialize(x)
        learners = [Gradient(torch.optim.SGD, lr=0.1) for _ in range(2)]
        for learner, target in zip(learners, (model, other), strict=True):
            learner.start(target)
        one = learners[0].step(model, model.as_batch(x[:3], weights=[1.0, 2.0, 0.0]))
        two = learners[1].step(other, x[[0, 1, 1]])
        torch.testing.assert_close(one, two)
        for learner, target in zip(learners, (model, other), strict=True):
            learner.finish(target)
        for a, b in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(a, b)

    def test_labels(self) -> None:
        model = Einet(GRAPH, Bernoulli(), 2, num_classes=2)
        x = torch.tensor([[0, 0, 0, 0], [1, 1, 1, 1]]).repeat(10, 1)
        labels = torch.tensor([0, 1]).repeat(10)
        learner = Gradient(torch.optim.Adam, lr=0.1)
        learner.start(model)
        for _ in range(30):
            learner.step(model, model.as_batch(x, labels=labels))
        learner.finish(model)
        assert (model.class_posterior(x).argmax(1) == labels).all()

    def test_an_optimiser_that_asks_several_times(self, model: Einet, x: Tensor) -> None:
        learner = Gradient(torch.optim.LBFGS, max_iter=5, line_search_fn="strong_wolfe")
        learner.start(model)
        before = learner.step(model, x)
        after = learner.step(model, x)
        learner.finish(model)
        assert after > before
        assert_normalised(model)

    def test_step_size(self, model: Einet) -> None:
        learner = Gradient(torch.optim.Adam, lr=0.07)
        assert learner.step_size_at(0.0) is None
        learner.start(model)
        assert learner.step_size_at(0.0) == pytest.approx(0.07)
        learner.finish(model)

    def test_a_wrong_option_leaves_the_model_alone(self, model: Einet) -> None:
        before = copied(model)
        with pytest.raises(ValueError, match="learning rate"):
            Gradient(torch.optim.Adam, lr=-1.0).start(model)
        assert copied(model).keys() == before.keys()

    def test_step_before_start(self, model: Einet, x: Tensor) -> None:
        with pytest.raises(RuntimeError, match="start"):
            Gradient(torch.optim.Adam).step(model, x)

    def test_different_cardinalities(self) -> None:
        """A category that a variable does not have keeps probability 0."""
        model = Einet(GRAPH, Categorical([2, 3, 5, 2]), 3)
        x = torch.tensor([[0, 1, 2, 1], [1, 2, 4, 0]])
        learner = Gradient(torch.optim.Adam, lr=0.1)
        learner.start(model)
        for _ in range(5):
            learner.step(model, x)
        learner.finish(model)
        states = torch.cartesian_prod(*[torch.arange(5)] * 4)
        assert model.log_prob(states).exp().sum().item() == pytest.approx(1, abs=1e-5)
