"""Queries under events, against sums over all states and quadrature."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

import einet
from einet import Einet
from einet.inference.bins import bin_log_prob
from einet.kernels.dispatch import backend
from tests.families.negative_binomial import NegativeBinomial
from tests.oracle import NAN, Oracle, close, random_model, support

INF = math.inf
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(48)


class Brute:
    """p(x, e) over a grid of one row: states, or points of a rule, with their weights.

    Args:
        parts: Models and their weights.
        row: The evidence, NaN where it is missing.
        where: ``(lower, upper)`` or a weight for each state, by variable.
    """

    def __init__(self, parts: list[tuple[float, Einet]], row: list[float], where: dict[int, Any]):
        self.points, self.weights = [], []
        for variable, (family, value) in enumerate(zip(parts[0][1].families, row, strict=True)):
            points, weights = support(family)
            event = where.get(variable)
            if not math.isnan(value):
                points, weights = np.array([value]), np.ones(1)
            elif isinstance(event, tuple) and family.discrete:
                weights = weights * ((points >= event[0]) & (points <= event[1]))
            elif isinstance(event, tuple):
                low, high = max(event[0], points[0]), min(event[1], points[-1])
                ends = np.linspace(low, high, 4)
                half = np.diff(ends)[:, None] / 2
                points = (ends[:-1, None] + half * (1 + _POINTS)).ravel()
                weights = (half * _WEIGHTS).ravel()
            elif event is not None:
                weights = weights * np.array(event)
            self.points.append(points)
            self.weights.append(weights)
        grid = np.meshgrid(*self.points, indexing="ij")
        self.states = torch.from_numpy(np.stack([axis.reshape(-1) for axis in grid], 1))
        logs = [math.log(w) + Oracle(part).log_prob(self.states) for w, part in parts]
        self.density = np.exp(np.logaddexp.reduce(logs)).reshape(grid[0].shape)
        self.table = self.density
        for variable, weights in enumerate(self.weights):
            shape = [1] * len(row)
            shape[variable] = -1
            self.table = self.table * weights.reshape(shape)

    @property
    def mass(self) -> float:
        return self.table.sum()

    def marginal(self, variable: int) -> np.ndarray:
        others = tuple(d for d in range(len(self.points)) if d != variable)
        return self.table.sum(others) / self.mass

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = [], []
        for variable, points in enumerate(self.points):
            p = self.marginal(variable)
            mean.append(p @ points)
            variance.append(p @ (points - mean[-1]) ** 2)
        return np.array(mean), np.array(variance)


#: Families, evidence, events as the oracle takes them, and as users write them.
CASES: dict[str, Any] = {
    "tables": (
        [einet.Gaussian(), einet.Categorical(3, numeric=True), einet.Poisson()],
        [NAN, NAN, NAN],
        {0: (-0.3, 1.2), 1: [0.2, 0.0, 3.0], 2: (1, 4)},
        {0: einet.between(-0.3, 1.2), 1: einet.likelihood([0.2, 0, 3]), 2: einet.between(0.5, 4)},
    ),
    "counts": (
        [einet.Gamma(), einet.Bernoulli(), einet.Binomial(3)],
        [NAN, NAN, NAN],
        {0: (0.7, 1.9), 1: [0, 1], 2: [1, 0, 1, 0]},
        {0: einet.between(0.7, 1.9), 1: einet.among([1]), 2: einet.among([0, 2])},
    ),
    "with a value": (
        [einet.Beta(), einet.Exponential(), einet.Categorical(3, numeric=True), einet.Gaussian()],
        [NAN, NAN, NAN, 0.4],
        {0: (0.2, 0.7), 2: (1, 2)},
        {0: einet.between(0.2, 0.7), 2: einet.between(1)},
    ),
    "far out": (
        [einet.Gaussian(), einet.Bernoulli(), einet.Poisson()],
        [NAN, NAN, NAN],
        {0: (7.0, 8.0), 2: (12, 14)},
        {0: einet.between(7, 8), 2: einet.between(12, 14)},
    ),
}
every_case = pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "einsum") for name in CASES),
        *(("tables", kind) for kind in ("linear", "classes", "mixture")),
    ],
)


def build(name: str, kind: str) -> tuple[einet.Model, list[tuple[float, Einet]]]:
    families = CASES[name][0]
    graph = einet.random_trees(len(families), depth=1, replicas=2, seed=1)
    options: dict[str, Any] = {"linear": {"sums": "linear"}, "classes": {"num_classes": 2}}
    parts = [random_model(graph, families, 2, seed=s, **options.get(kind, {})) for s in (0, 1)]
    if kind == "mixture":
        return einet.Mixture(parts, [0.3, 0.7]), [(0.3, parts[0]), (0.7, parts[1])]
    return parts[0], [(1.0, parts[0])]


@every_case
def test_queries_are_sums_over_everything(name: str, kind: str):
    families, row, raw, where = CASES[name]
    model, parts = build(name, kind)
    brute = Brute(parts, row, raw)
    evidence = torch.tensor([row], dtype=torch.float64)
    with torch.no_grad():
        close(model.log_prob(evidence, where=where), [math.log(brute.mass)], rtol=1e-7, atol=1e-8)
    posterior = model.given(evidence, where=where)
    close(posterior.log_evidence, [math.log(brute.mass)], rtol=1e-7, atol=1e-8)
    mean, variance = brute.moments()
    close(posterior.mean()[0], mean, rtol=1e-7, atol=1e-8)
    close(posterior.variance()[0], variance, rtol=1e-6, atol=1e-8)
    query = torch.full_like(evidence, NAN)
    for variable, family in enumerate(families):
        p = brute.marginal(variable)
        best = brute.points[variable][p.argmax()]
        if family.num_states is not None and math.isnan(row[variable]):
            expected = np.zeros(family.num_states)
            expected[brute.points[variable].astype(int)] = p
            close(posterior.probabilities(variable)[0], expected, rtol=1e-7, atol=1e-12)
        if family.discrete and math.isnan(row[variable]):
            close(posterior.impute()[0, variable], best)
            entropy = stats.entropy(p)
            close(posterior.entropy(variable), [entropy], rtol=1e-7, atol=1e-9)
        one = torch.full_like(evidence, NAN)
        place = len(p) // 2 if brute.weights[variable][len(p) // 2] > 0 else int(p.argmax())
        one[0, variable] = query[0, variable] = float(brute.points[variable][place])
        # A density at a point, or the probability of a state.
        share = 1.0 if family.discrete or not math.isnan(row[variable]) else None
        share = brute.weights[variable][place] if share is None else share
        with np.errstate(divide="ignore"):
            expected = np.log(p[place] / share)
        close(posterior.log_prob(one), [expected], rtol=1e-6, atol=1e-8)
        found = posterior.log_marginals(one)[0, variable]
        close(found, expected, rtol=1e-6, atol=1e-8)
    # All of it together, each cell with a value inside its event.
    at = torch.where(evidence.isnan(), query, evidence)
    logs = [math.log(w) + Oracle(part).log_prob(at) for w, part in parts]
    weight = sum(
        math.log(raw[d][int(query[0, d])]) for d, event in raw.items() if isinstance(event, list)
    )
    expected = np.logaddexp.reduce(logs) + weight - math.log(brute.mass)
    close(posterior.log_prob(query), expected, rtol=1e-7, atol=1e-8)
    outside = torch.full_like(evidence, NAN)
    outside[0, 0] = -1000.0
    assert posterior.log_prob(outside).item() == -INF
    assert posterior.log_marginals(outside)[0, 0].item() == -INF


@every_case
def test_draws_obey_events(name: str, kind: str):
    families, row, raw, where = CASES[name]
    model, parts = build(name, kind)
    brute, size = Brute(parts, row, raw), 3000
    posterior = model.given([row], where=where)
    drawn = posterior.sample(size, seed=3)[:, 0]
    mean, variance = brute.moments()
    close(drawn.mean(0), mean, rtol=0, atol=float(5 * np.sqrt(variance.max() / size)))
    points = [drawn, posterior.sample(50, leaves="mean", seed=0)[:, 0], posterior.mode()]
    for variable, event in raw.items():
        p = brute.marginal(variable)
        if families[variable].discrete:
            states = brute.points[variable]
            counts = (drawn[:, variable, None].numpy() == states).sum(0)
            assert counts.sum() == size
            kept = p > 1e-12
            assert not counts[~kept].any()
            statistic = ((counts - size * p)[kept] ** 2 / (size * p)[kept]).sum()
            assert stats.chi2(max(1, kept.sum() - 1)).sf(statistic) > 1e-6
        else:
            cumulative = np.cumsum(p)
            order = np.interp(drawn[:, variable].numpy(), brute.points[variable], cumulative)
            assert stats.kstest(order, "uniform").pvalue > 1e-6
        for each in points:
            if isinstance(event, tuple):
                assert (each[:, variable] >= event[0]).all()
                assert (each[:, variable] <= event[1]).all()
    assert torch.equal(posterior.sample(3, seed=1), posterior.sample(3, seed=1))


def test_each_row_has_its_own_event():
    model, _ = build("tables", "mixture")
    lower, upper = torch.tensor([-1.0, 0.2, 3.0, -INF]), torch.tensor([INF, 0.3, 3.5, -2.0])
    table = torch.tensor([[1, 0, 0], [0.5, 0.5, 2], [0, 3, 1], [1, 1, 1]])
    counts = torch.tensor([[0, 3], [2, 2], [5, 9], [0, 0]])
    where = {
        0: einet.between(lower, upper),
        1: einet.likelihood(table),
        2: einet.between(counts[:, 0], counts[:, 1]),
    }
    whole = model.given(where=where)
    query = torch.tensor([[0.0, 0, 1], [0.25, 1, 2], [3.2, 2, 7], [-4.0, 1, 0]]).double()
    part = query.clone()
    part[:, 0] = NAN
    part[2:, 1] = NAN
    answers = {
        "mean": whole.mean(),
        "variance": whole.variance(),
        "log_marginals": whole.log_marginals(query),
        "log_prob": whole.log_prob(part),
        "probabilities": whole.probabilities(1),
        "entropy": whole.entropy(2),
        "impute": whole.impute(),
        "mode": whole.mode(),
    }
    for row in range(4):
        one = model.given(
            where={
                0: einet.between(float(lower[row]), float(upper[row])),
                1: einet.likelihood(table[row]),
                2: einet.between(int(counts[row, 0]), int(counts[row, 1])),
            }
        )
        close(one.log_evidence[0], whole.log_evidence[row])
        some = slice(row, row + 1)
        close(one.mean()[0], answers["mean"][row], rtol=1e-8)
        close(one.variance()[0], answers["variance"][row], rtol=1e-7)
        close(one.log_marginals(query[some])[0], answers["log_marginals"][row])
        close(one.log_prob(part[some])[0], answers["log_prob"][row])
        close(one.probabilities(1)[0], answers["probabilities"][row])
        close(one.entropy(2)[0], answers["entropy"][row])
        close(one.impute()[0], answers["impute"][row], rtol=1e-8)
        close(one.mode()[0], answers["mode"][row])
        close(whole.at(torch.tensor([row])).mean()[0], answers["mean"][row])
    drawn = whole.sample(20, seed=0)
    assert (drawn[:, :, 0] >= lower).all()
    assert (drawn[:, :, 0] <= upper).all()


@settings(max_examples=12)
@given(
    num_variables=st.integers(1, 5),
    depth=st.integers(0, 3),
    replicas=st.integers(1, 3),
    sums=st.sampled_from(["einsum", "linear"]),
    kind=st.sampled_from(["Gaussian", "Gamma", "Beta", "Exponential", "Poisson", "Binomial"]),
    cuts=st.lists(st.floats(-3, 3), min_size=1, max_size=3, unique=True),
    seed=st.integers(0, 99),
)
def test_complements_add_up_to_one(
    num_variables: int,
    depth: int,
    replicas: int,
    sums: str,
    kind: str,
    cuts: list[float],
    seed: int,
):
    families = {"Poisson": einet.Poisson(), "Binomial": einet.Binomial(9)}
    family = families[kind] if kind in families else getattr(einet, kind)()
    depth = min(depth, math.ceil(math.log2(num_variables)))
    replicas = replicas if depth else 1
    graph = einet.random_trees(num_variables, depth, replicas, seed=seed)
    model = random_model(graph, family, 3, seed=seed, sums=sums)
    scale = {"Gaussian": float, "Beta": lambda cut: 1 / (1 + math.exp(-cut))}.get(kind, math.exp)
    places = sorted(scale(cut) for cut in cuts)
    if family.discrete:
        places = sorted({math.floor(place) for place in places})
        lower, upper = [-INF, *(place + 1 for place in places)], [*places, INF]
    else:
        lower, upper = [-INF, *places], [*places, INF]
    variable = seed % num_variables
    x = torch.full((1, num_variables), NAN, dtype=torch.float64)
    if num_variables > 1:
        x[0, (variable + 1) % num_variables] = family.filler
    pieces = {variable: einet.between(lower, upper)}
    with torch.no_grad():
        logs = model.log_prob(x.expand(len(lower), -1), where=pieces)
        close(torch.logsumexp(logs, 0), model.log_prob(x)[0], rtol=1e-8, atol=1e-9)
        alone = model.log_prob(where=pieces).exp()
        close(alone.sum(), 1.0, rtol=1e-9)
    # Pieces beyond the last state have no mean.
    some = logs > -INF
    bounds = (torch.tensor(bound, dtype=torch.float64)[some] for bound in (lower, upper))
    rows = x.expand(int(some.sum()), -1)
    means = model.given(rows, where={variable: einet.between(*bounds)}).mean()[:, variable]
    share = (logs - torch.logsumexp(logs, 0)).exp()[some]
    close(share @ means, model.given(x).mean()[0, variable], rtol=1e-6, atol=1e-7)


def test_bins_are_events_in_every_cell():
    graph = einet.random_trees(4, depth=2, replicas=2)
    model = einet.Einet(graph, einet.Gaussian(), num_sums=3, dtype=torch.float64)
    model.initialize(5 * torch.randn(40, 4, generator=torch.manual_seed(0)))
    edges = torch.tensor([-INF, *range(-9, 10), INF], dtype=torch.float64)
    for rows in (6, 60):
        bins = torch.randint(0, 20, (rows, 4), generator=torch.manual_seed(1))
        where = {d: einet.between(edges[bins[:, d]], edges[bins[:, d] + 1]) for d in range(4)}
        with torch.no_grad():
            close(model.log_prob(where=where), bin_log_prob(model, bins, edges))


def test_what_evidence_rounds_away_an_event_may_bring_back():
    graph = einet.random_trees(2, depth=0, replicas=1)
    model = einet.Einet(graph, einet.Gaussian(), num_sums=1, num_leaves=2)
    with torch.no_grad():
        # One density is at 0 in both variables, the other at 30.
        block = model.leaf.leaf_blocks[0]
        block.stored[0, :, 0], block.stored[1, :, 0] = 0.0, 30.0
        block.stored[..., 1] = 1.0
        weight = model.circuit.weights[0].flatten().double().log().tolist()
    where = {1: einet.between(30, 31)}
    x = torch.tensor([[8.0, NAN]])
    expected = np.logaddexp(
        weight[0] + stats.norm.logpdf(8.0) + stats.norm.logsf(30.0),
        weight[1] + stats.norm.logpdf(-22.0) + math.log(stats.norm.cdf(1) - 0.5),
    )
    for each in (model, copy.deepcopy(model).double()):
        with torch.no_grad():
            close(each.log_prob(x, where=where), [expected], rtol=1e-6)
        assert 30 <= each.given(x, where=where).mean()[0, 1].item() <= 31


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_fused_kernels_give_the_same():
    graph = einet.random_trees(3, depth=1, replicas=2)
    model = einet.Einet(graph, einet.Gaussian(), num_sums=3, sums="linear")
    x = torch.tensor([[0.3, NAN, NAN], [NAN, NAN, -1.0]])
    where = {1: einet.between([-1, 2], [1, 2.5])}
    with torch.no_grad():
        logs, posterior = model.log_prob(x, where=where), model.given(x, where=where)
        mean, mode = posterior.mean(), posterior.mode()
        with backend("triton"):
            close(model.log_prob(x, where=where), logs, rtol=1e-5, atol=1e-6)
            close(model.given(x, where=where).mean(), mean, rtol=1e-4, atol=1e-5)
            close(model.given(x, where=where).mode(), mode)


def test_impossible_events():
    model, _ = build("counts", "einsum")
    where = {0: einet.between([1, 1, -2], [2, 1, -1]), 1: einet.among([[True, True]] * 3)}
    with torch.no_grad():
        logs = model.log_prob(where=where)
    assert (logs == -INF).tolist() == [False, True, True]
    posterior = model.given(where=where)
    for ask in (posterior.mean, posterior.mode, posterior.impute, lambda: posterior.sample(1)):
        with pytest.raises(ValueError, match=r"probability 0 in 2 of 3 rows \(1, 2\)"):
            ask()
    assert (posterior.log_prob(torch.full((3, 3), NAN)) == -INF).tolist() == [False, True, True]


def test_nothing_known():
    model, _ = build("tables", "einsum")
    with torch.no_grad():
        close(model.log_prob(), [0.0], atol=1e-9)
    close(model.given().mean(), model.mean().unsqueeze(0))
    whole = {0: einet.between(), 1: einet.likelihood([1, 1, 1]), 2: einet.between(0)}
    close(model.given(where=whole).mean()[0], model.mean(), rtol=1e-8)


def test_names_and_classes():
    model, _ = build("tables", "classes")
    assert isinstance(model, Einet)
    model.columns = ["size", "kind", "number"]
    where = {"size": einet.between(0, 1), "number": einet.among([1, 2])}
    by_number = {0: einet.between(0, 1), 2: einet.among([1, 2])}
    with torch.no_grad():
        close(model.log_prob(where=where), model.log_prob(where=by_number))
        by_class = model.class_log_prob(where=where) + model.log_class_prior
        close(torch.logsumexp(by_class, 1), model.log_prob(where=where))
        close(model.class_posterior(where=where), by_class.softmax(1))
        close(model(where=where, labels=[1]), by_class[:, 1])


def test_counts_of_many_states():
    graph = einet.random_trees(2, depth=1, replicas=1)
    parts = []
    for seed in range(2):
        part = einet.Einet(graph, einet.Poisson(), num_sums=3, seed=seed, dtype=torch.float64)
        data = torch.randint(0, 9000, (60, 2), generator=torch.manual_seed(seed))
        parts.append(part.initialize(data))
    model = einet.Mixture(parts)
    where = {0: einet.between([2000, 0, 20_000], [7000, INF, INF])}
    posterior = model.given(where=where)
    found = posterior.impute(method="mode")[:, 0]
    states = torch.arange(21_000, dtype=torch.float64)
    query = torch.full((21_000, 2), NAN, dtype=torch.float64)
    query[:, 0] = states
    for row in range(3):
        logs = posterior.at(slice(row, row + 1)).log_prob(query)
        assert found[row].item() == logs.argmax().item()
        if row == 2:
            p = logs.exp()
            close(p.sum(), 1.0, rtol=1e-6)
            close(posterior.entropy(0)[row], -torch.special.xlogy(p, p).sum(), rtol=1e-6)


def test_no_gradients_and_no_learning():
    model, _ = build("tables", "einsum")
    where = {0: einet.between(0)}
    x = torch.tensor([[NAN, 1.0, 2.0]], dtype=torch.float64, requires_grad=True)
    with pytest.raises(NotImplementedError, match="no derivatives where rows have events"):
        model.log_prob(x, where=where)
    with (
        einet.unconstrained(model),
        pytest.raises(NotImplementedError, match="no derivatives where rows have events"),
    ):
        model.log_prob(where=where)
    batch = model.as_batch(x.detach(), where=where, events=True)
    for learn in (model.e_step, model.em_step, model.initialize):
        with pytest.raises(ValueError, match="is a Batch with events, which only queries take"):
            learn(batch)
    with pytest.raises(ValueError, match="is a Batch with events, which only queries take"):
        einet.fit(model, batch, epochs=1)
    with torch.no_grad():
        close(model.log_prob(batch), model.log_prob(x, where=where))


@pytest.mark.parametrize(
    ("where", "match"),
    [
        ({0: einet.among([1])}, "for discrete variables, but variable 0 is Gaussian"),
        ({0: einet.likelihood([1, 1])}, "for discrete variables, but variable 0 is Gaussian"),
        ({1: einet.among([3])}, "variable 1 must be among its states, .* got 3"),
        ({1: einet.among([-1])}, "variable 1 must be among its states, .* got -1"),
        ({1: einet.likelihood([1, 1])}, "each of its 3 states, got 2"),
        ({1: einet.among([True] * 4)}, "each of its 3 states, got 4"),
        ({2: einet.likelihood([1, 1])}, "variable 2 must name its states .* Poisson"),
    ],
)
@pytest.mark.parametrize("kind", ["einsum", "mixture"])
def test_events_that_a_family_does_not_know(kind: str, where: Any, match: str):
    model, _ = build("tables", kind)
    with pytest.raises(ValueError, match=match):
        model.log_prob(where=where)
    with pytest.raises(ValueError, match=match):
        model.given(where=where)


def test_a_family_without_intervals():
    graph = einet.random_trees(2, depth=1, replicas=1)
    model = einet.Einet(graph, NegativeBinomial(2.5), num_sums=2, dtype=torch.float64)
    with pytest.raises(NotImplementedError, match="variable 0 has an event, but NegativeBinomial"):
        model.log_prob(where={0: einet.between(0)})
    p = model.given(where={0: einet.among([1, 3])}).mean()[0, 0]
    assert 1 < p < 3


def test_float32_keeps_draws_inside():
    model, _ = build("tables", "einsum")
    model = model.float()
    where = {0: einet.between(0.1, 0.1000001)}
    drawn = model.given(where=where).sample(100, seed=0)[:, 0, 0]
    assert drawn.dtype == torch.float32
    inside: Tensor = (drawn.double() >= 0.1) & (drawn.double() <= 0.1000001)
    assert inside.all()
