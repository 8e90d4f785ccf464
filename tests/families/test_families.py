"""What every family must satisfy, in float64 unless said otherwise."""

import inspect
import math

import pytest
import torch
from torch import Tensor

from einet.families import FAMILIES, ExponentialFamily, Gaussian, family_from_config
from tests.families.cases import CASES, Case

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def close(actual: Tensor, expected: Tensor, rtol: float = 1e-7, atol: float = 1e-9) -> None:
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)


def integral(case: Case, row: int, values) -> Tensor:
    """E[values(x)] under one row of stored parameters, by quadrature of our own density."""
    x, weights = case.nodes(case.references[row])
    mass = case.family.log_prob(x, case.parameters[row]).exp() * weights
    return (mass.reshape(-1, *[1] * (values(x).ndim - 1)) * values(x)).sum(0)


#: The families of the library itself; tests may have registered others.
OURS = [kind for kind in FAMILIES.values() if kind.__module__.startswith("einet.")]


def test_every_family_is_covered():
    assert set(OURS) <= {type(case.family) for case in CASES}


def test_families_are_final_and_abstract_methods_are_done():
    assert len(OURS) == 8
    for kind in OURS:
        assert issubclass(kind, ExponentialFamily)
        # What is derived from is abstract, and what is not abstract is not derived from.
        assert all(inspect.isabstract(base) for base in kind.__bases__)
        assert not inspect.isabstract(kind)


@every_case
def test_discrete_families_say_so(case: Case):
    assert case.family.discrete == (case.chart is None)
    if case.family.num_states is not None:
        assert case.family.discrete


# -- the density -----------------------------------------------------------------------------------


@every_case
def test_density_integrates_to_one(case: Case):
    for row in range(len(case.stored)):
        close(integral(case, row, torch.ones_like), torch.tensor(1.0).double(), atol=1e-8)


@every_case
def test_log_prob_agrees_with_scipy(case: Case):
    for parameters, reference in zip(case.parameters, case.references, strict=True):
        x = case.draw(reference, 50)
        x = torch.cat([x, case.nodes(reference)[0][::97]])
        expected = torch.as_tensor(case.log_prob(reference, x))
        # The concentrated ones cancel large terms, here and in scipy.
        close(case.family.log_prob(x, parameters), expected, rtol=1e-7, atol=2e-8)


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_integers_count_as_the_same_numbers(case: Case, dtype: torch.dtype):
    stored = case.family.project(case.parameters.to(dtype))
    whole = torch.arange(-3, 10).unsqueeze(-1)
    expected = case.family.log_prob(whole.to(dtype), stored)
    for kind in (torch.int64, torch.int32, torch.int16, torch.int8):
        assert torch.equal(case.family.log_prob(whole.to(kind), stored), expected)
    bits = torch.tensor([[False], [True]])
    assert torch.equal(case.family.log_prob(bits, stored), expected[3:5])
    assert torch.equal(case.family.log_prob(whole[3:].to(torch.uint8), stored), expected[3:])


@every_case
def test_the_wider_type_wins(case: Case):
    stored = case.family.project(case.parameters.float())
    x = case.draw(case.references[0], 20).float().unsqueeze(-1)
    exact = case.family.log_prob(x.double(), stored.double())
    assert torch.equal(case.family.log_prob(x, stored.double()), exact)
    assert torch.equal(case.family.log_prob(x.double(), stored), exact)
    assert case.family.log_prob(x, stored).dtype == torch.float32


def test_intervals_between_integers():
    family, stored = Gaussian(), torch.tensor([[0.3, 0.5], [2.0, 1.0]])
    low, high = torch.tensor([[-1], [2]]), torch.tensor([[1], [3]])
    expected = family.log_prob_between(low.float(), high.float(), stored)
    assert torch.equal(family.log_prob_between(low, high, stored), expected)
    exact = family.log_prob_between(low.double(), high.double(), stored.double())
    assert torch.equal(family.log_prob_between(low.float(), high.double(), stored), exact)
    assert torch.equal(family.log_prob_between(low, high, stored.double()), exact)


@every_case
def test_moments_agree_with_quadrature(case: Case):
    for row, parameters in enumerate(case.parameters):
        mean, variance = case.family.mean(parameters), case.family.variance(parameters)
        if mean.isnan():
            assert variance.isnan()
            continue
        close(integral(case, row, lambda x: x), mean, atol=1e-9 * float(variance.sqrt()))
        # The integrand is centred, so that a small variance far from 0 is seen at all.
        central = integral(case, row, lambda x, mean=mean: (x - mean).square())
        close(central, variance, rtol=1e-6, atol=1e-300)


@every_case
def test_mode_is_where_the_density_is_highest(case: Case):
    modes = case.family.mode(case.parameters)
    assert (case.family.log_h(modes) > -math.inf).all()
    for parameters, mode, reference in zip(case.parameters, modes, case.references, strict=True):
        x = case.nodes(reference)[0]
        # A density that is unbounded has a mode by convention: a millionth from the end.
        if case.chart == "logit":
            x = x.clamp(1e-6, 1 - 1e-6)
        if case.chart == "log":
            x = x.clamp(min=1e-6 * float(reference.mean()))
        best = case.family.log_prob(x, parameters).max()
        assert case.family.log_prob(mode, parameters) >= best - 1e-9


@every_case
def test_outside_the_support_is_impossible(case: Case):
    outside = torch.tensor([*case.outside, math.inf, -math.inf], dtype=torch.float64)
    log_prob = case.family.log_prob(outside.unsqueeze(-1), case.parameters)
    assert (log_prob == -math.inf).all()
    assert case.family.T(outside).isfinite().all()


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_input_gives_nan(case: Case, dtype: torch.dtype):
    sizes = torch.tensor([0.0, 1e-300, 1e-30, 1e-6, 0.5, 1.0, 3.0, 1e6, 1e18, 1e20, 1e150, 1e300])
    sizes = torch.cat([sizes.double(), torch.tensor([1.7e308, math.inf]).double()])
    x = torch.cat([sizes, -sizes]).to(dtype).unsqueeze(-1)
    assert case.family.T(x).isfinite().all()
    log_prob = case.family.log_prob(x, case.parameters.to(dtype))
    assert log_prob.dtype == dtype
    assert not log_prob.isnan().any()
    assert (log_prob < math.inf).all()


@every_case
def test_filler_is_inside_the_support(case: Case):
    assert case.family.log_h(torch.tensor(case.family.filler).double()) > -math.inf
    assert case.family.support


@every_case
def test_states_are_those_with_probability(case: Case):
    states = case.family.num_states
    if states is None:
        return
    x = torch.arange(-1.0, states + 1).double()
    possible = case.family.log_prob(x, case.parameters[0]) > -math.inf
    assert possible.tolist() == [False] + [True] * states + [False]


# -- parametrisations ------------------------------------------------------------------------------


@every_case
def test_gradient_of_A_is_phi(case: Case):
    theta = case.family.theta_of(case.parameters).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(case.family.A(theta).sum(), theta)
    close(gradient, case.family.phi(theta.detach()))
    close(gradient, case.family.phi_of(case.parameters))


@every_case
def test_phi_is_the_expected_statistic(case: Case):
    for row, phi in enumerate(case.family.phi_of(case.parameters)):
        # What the quadrature leaves out of the tails weighs more in E[log x].
        close(integral(case, row, case.family.T), phi, rtol=1e-6, atol=1e-7)


@every_case
def test_theta_and_phi_invert_each_other(case: Case):
    family = case.family
    theta = family.theta_of(case.parameters)
    close(family.theta(family.phi(theta)), theta, rtol=1e-6)
    phi = family.phi_of(case.parameters)
    close(family.phi(family.theta(phi)), phi)


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stored_parameters_survive_a_round_trip(case: Case, dtype: torch.dtype):
    """As in an M-step with step size 0: float32 parameters, float64 arithmetic."""
    family, stored = case.family, case.family.project(case.parameters.to(dtype))
    again = family.project(family.store(family.phi_of(stored.double())))
    close(again, stored.double(), rtol=1e-6, atol=0)
    assert stored.shape[-1] == family.num_parameters
    assert family.phi_of(stored).shape[-1] == family.num_statistics


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_projection_is_idempotent_and_keeps_what_is_inside(case: Case, dtype: torch.dtype):
    family = case.family
    close(family.project(case.parameters), case.parameters, rtol=1e-12, atol=1e-15)
    shape = (200, family.num_parameters)
    signs = torch.randn(shape, generator=seeded(), dtype=torch.float64)
    wild = (signs * torch.logspace(-12, 12, 200).double().unsqueeze(-1)).to(dtype)
    projected = family.project(wild)
    assert projected.dtype == dtype
    torch.testing.assert_close(family.project(projected), projected, rtol=1e-6, atol=0)
    assert family.is_within_bounds(projected).all()
    assert not family.is_within_bounds(torch.full_like(projected, math.nan)).any()
    assert not family.is_within_bounds(torch.full_like(projected, math.inf)).any()
    moved = ((wild - projected).abs() > 1e-3 * projected.abs()).any(-1)
    assert torch.equal(family.is_within_bounds(wild[moved]), torch.zeros_like(moved[moved]))
    assert family.theta_of(projected).isfinite().all()
    assert family.A(family.theta_of(projected.double())).isfinite().all()


@every_case
def test_unconstrained_parameters_survive_a_round_trip(case: Case):
    family = case.family
    for dtype, rtol in ((torch.float64, 1e-9), (torch.float32, 2e-5)):
        stored = family.project(case.parameters.to(dtype))
        raw = family.unconstrain(stored)
        assert raw.isfinite().all()
        close(family.constrain(raw), stored, rtol=rtol, atol=0)


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_constrain_is_differentiable_and_stays_inside(case: Case, dtype: torch.dtype):
    family = case.family
    shape = (100, family.num_parameters)
    raw = torch.randn(shape, generator=seeded(), dtype=dtype)
    raw = torch.cat([raw, 10 * raw, torch.full((1, shape[-1]), 200.0).to(dtype), -200 * raw.abs()])
    raw.requires_grad_()
    stored = family.constrain(raw)
    torch.testing.assert_close(family.project(stored), stored, rtol=1e-5, atol=0)
    assert family.is_within_bounds(stored.detach()).all()
    x = case.draw(case.references[0], 1).to(dtype)
    loss = family.log_prob(x, stored[:100]).sum() + family.theta_of(stored).sum()
    (gradient,) = torch.autograd.grad(loss, raw)
    assert gradient.isfinite().all()
    # A family with one state has nothing to learn; these all have.
    assert (gradient[:100] != 0).any(-1).all()


@every_case
def test_random_start(case: Case):
    for family, shape in ((case.family, (5, 4)), (case.several, (5, 3))):
        phi = family.random_phi(shape, seeded())
        assert phi.shape == (*shape, family.num_statistics)
        assert phi.dtype == torch.float64
        assert torch.equal(phi, family.random_phi(shape, seeded()))
        assert not torch.equal(phi[0], phi[1])
        close(family.phi(family.theta(phi)), phi, rtol=1e-6)
        assert family.theta_of(family.project(family.store(phi))).isfinite().all()


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_have_the_type_of_the_input(case: Case, dtype: torch.dtype):
    family = case.several
    stored = family.project(family.store(family.random_phi((2, 3), seeded()))).to(dtype)
    x = family.sample(stored, seeded())
    assert x.shape == (2, 3)
    theta, phi = family.theta_of(stored), family.phi_of(stored)
    results = [x, family.T(x), family.log_h(x), theta, phi, family.log_prob(x, stored)]
    results += [family.A(theta), family.theta(phi), family.phi(theta), family.store(phi)]
    results += [family.project(stored), family.constrain(stored), family.unconstrain(stored)]
    results += [family.mean(stored), family.variance(stored), family.mode(stored)]
    assert {result.dtype for result in results} == {dtype}
    assert (family.log_h(family.mode(stored)) > -math.inf).all()


# -- samples and estimates -------------------------------------------------------------------------


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples_have_the_right_moments(case: Case, dtype: torch.dtype):
    family, size = case.family, 20_000
    stored = family.project(case.parameters.to(dtype)).expand(size, -1, -1)
    x = family.sample(stored, seeded(1))
    assert torch.equal(x, family.sample(stored, seeded(1)))
    assert not torch.equal(x, family.sample(stored, seeded(2)))
    assert (family.log_h(x) > -math.inf).all()
    if dtype == torch.float32:
        return
    statistics = family.T(x)
    moments = [(statistics, family.phi_of(stored[0]))]
    mean, variance = family.mean(stored[0]), family.variance(stored[0])
    if not mean.isnan().any():
        moments += [(x, mean), ((x - mean).square(), variance)]
    for drawn, expected in moments:
        # Rare events are counted, not averaged: without one the sample has no spread to go by.
        spread = drawn.std(0).clamp(min=1e-9 * expected.abs()) / math.sqrt(size)
        rare = drawn.std(0) == 0
        z = (drawn.mean(0) - expected) / spread
        assert (z.abs() < 5)[~rare].all()


@every_case
def test_averaged_statistics_maximise_the_likelihood(case: Case):
    family = case.family
    for reference in case.references:
        x = case.draw(reference, 200)
        weights = torch.rand(200, generator=seeded(), dtype=torch.float64)
        phi = (weights.unsqueeze(-1) * family.T(x)).sum(0) / weights.sum()
        best = family.project(family.store(phi))

        def likelihood(stored: Tensor, x=x, weights=weights) -> Tensor:
            return weights @ family.log_prob(x.unsqueeze(-1), stored)

        shift = torch.randn(300, family.num_parameters, generator=seeded(), dtype=torch.float64)
        shift *= torch.logspace(-4, 0, 300).double().unsqueeze(-1)
        others = family.constrain(family.unconstrain(best) + shift)
        top = likelihood(best.unsqueeze(0))
        assert (likelihood(others) <= top + 1e-7 * (1 + top.abs())).all()


@every_case
def test_outliers_leave_parameters_that_float32_can_hold(case: Case):
    family = case.family
    x = torch.tensor([1e-300, 1e-6, 1.0, 1e6, 1e150, 1e300], dtype=torch.float64)
    for share in (1.0, 0.5, 1e-9):
        phi = torch.lerp(family.phi_of(case.parameters[0]), family.T(x), share)
        stored = family.project(family.store(phi)).float()
        assert stored.isfinite().all()
        theta = family.theta_of(stored.double())
        assert theta.isfinite().all()
        assert family.A(theta).isfinite().all()


# -- hyper-parameters ------------------------------------------------------------------------------


@every_case
def test_variables_with_their_own_hyperparameters(case: Case):
    family = case.several
    stored = family.project(family.store(family.random_phi((4, 3), seeded())))
    x = family.sample(stored, seeded())
    log_prob = family.log_prob(x, stored)
    singles = [family.at(torch.tensor(variable)) for variable in range(3)]
    for variable, single in enumerate(singles):
        close(single.log_prob(x[:, variable], stored[:, variable]), log_prob[:, variable])
        close(single.project(3 * stored[:, variable]), family.project(3 * stored)[:, variable])
        close(single.constrain(stored[:, variable]), family.constrain(stored)[:, variable])
        close(single.mode(stored[:, variable]), family.mode(stored)[:, variable])
    close(type(family).stack(singles).log_prob(x, stored), log_prob)
    grid = torch.tensor([[2, 0], [1, 1]])
    close(family.at(grid).log_prob(x[:, grid], stored[:, grid]), log_prob[:, grid])


@every_case
def test_expand_gives_every_variable_its_own(case: Case):
    wide = case.family.expand(3)
    assert all(value.shape == (3,) for value in wide.hyper.values())
    stored = wide.project(wide.store(wide.random_phi((4, 3), seeded())))
    x = wide.sample(stored, seeded())
    close(wide.log_prob(x, stored), case.family.log_prob(x, stored))
    if case.family.hyperparameters:
        with pytest.raises(ValueError, match="3 values, but the model has 4 variables"):
            wide.expand(4)
        with pytest.raises(ValueError, match="3 values, but this family stands for one"):
            type(wide).stack([wide, case.family])


@every_case
def test_hyperparameters_move_to_a_device(case: Case):
    there = case.several.to("meta")
    assert type(there) is type(case.several)
    assert all(value.device.type == "meta" for value in there.hyper.values())
    assert all(value.device.type == "cpu" for value in case.several.hyper.values())


@every_case
def test_adapt_reads_only_observed_values_inside_the_support(case: Case):
    family = case.family.expand(3)
    stored = family.project(family.store(family.random_phi((500, 3), seeded())))
    x = family.sample(stored, seeded())
    observed = torch.rand(x.shape, generator=seeded()) < 0.7
    observed[:, 2] = False
    spoilt = torch.where(observed, x, math.nan)
    spoilt[0], observed[0] = math.inf, True
    adapted = family.adapt(spoilt, observed)
    clean = family.adapt(x[1:], observed[1:] & torch.tensor([True, True, False]))
    for name, value in adapted.hyper.items():
        torch.testing.assert_close(value, clean.hyper[name], equal_nan=True)
        torch.testing.assert_close(value[2], family.hyper[name][2], equal_nan=True)
        assert value.dtype == torch.float64


@every_case
def test_saved_families_come_back(case: Case):
    family = case.several
    again = family_from_config(type(family).__name__, family.config(), family.hyper)
    assert type(again) is type(family)
    assert repr(again) == repr(family)
    stored = family.project(family.store(family.random_phi((4, 3), seeded())))
    x = family.sample(stored, seeded())
    assert torch.equal(again.log_prob(x, stored), family.log_prob(x, stored))
    with pytest.raises(ValueError, match=f"{type(family).__name__} has the hyper-parameters"):
        family_from_config(type(family).__name__, family.config(), {})


@pytest.mark.parametrize(
    ("kind", "name", "arguments"),
    [
        pytest.param(type(case.family), name, arguments, id=f"{case.name}: {arguments}")
        for case in CASES
        for name, arguments in case.mistakes
    ],
)
def test_mistakes_are_named(kind: type, name: str, arguments: dict):
    with pytest.raises(ValueError, match=name):
        kind(**arguments)


@every_case
def test_hyperparameters_of_a_file_are_checked_as_those_of_a_user(case: Case):
    family = case.several
    family.check_hyperparameters()
    family.expand(3).check_hyperparameters()
    for name in family.limits:
        # All have a lower bound or must be finite; NaN may stand for what was not given.
        for value in (-math.inf, -1.0, 0.0) if "location" not in name else (math.inf, -math.inf):
            wrong = torch.full((3,), value, dtype=torch.float64)
            with pytest.raises(ValueError, match=name):
                family.with_hyperparameters({name: wrong}).check_hyperparameters()
    assert set(family.limits) == set(family.hyperparameters)
