"""The model as a module: what it takes, what it gives, how it is moved and copied."""

import copy
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jaxtyping
import numpy as np
import pandas as pd
import pytest
import torch

import einet
from einet import Einet
from einet.data import as_batch
from tests.oracle import (
    CONTINUOUS,
    DISCRETE,
    NAN,
    Oracle,
    close,
    random_model,
    random_rows,
    tracked,
)

FAMILIES = DISCRETE | CONTINUOUS
every_family = pytest.mark.parametrize("name", FAMILIES)

GRAPH = einet.random_trees(4, depth=2, replicas=2)


@pytest.fixture
def unchecked():
    """Without the run-time checks of types, as a user runs it."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


# -- a new model -----------------------------------------------------------------------------------


@every_family
@pytest.mark.parametrize("num_classes", [1, 3])
def test_usable_before_it_has_seen_data(name: str, num_classes: int):
    model = Einet(GRAPH, FAMILIES[name], 3, num_classes=num_classes)
    assert not model.initialized
    assert abs(float(model.log_normalizer())) < 1e-6
    x = model.sample(50, seed=0)
    assert model.log_prob(x).isfinite().all()
    model.m_step(model.e_step(x))
    assert abs(float(model.log_normalizer())) < 1e-5


@every_family
def test_normalised_after_initialisation_and_learning(name: str):
    model = random_model(GRAPH, FAMILIES[name], 3, num_classes=2)
    x = random_rows(model, 40, missing=0.2)
    assert model.initialize(x) is model
    assert model.initialized
    close(model.log_normalizer(), 0.0)
    for _ in range(3):
        model.m_step(model.e_step(x), step_size=0.7)
    close(model.log_normalizer(), 0.0)
    y = random_rows(model, 6, seed=1)
    close(model.log_prob(y), Oracle(model).log_prob(y))


def test_seeds_and_types():
    same = [Einet(GRAPH, einet.Gaussian(), 3, seed=5) for _ in range(2)]
    other = Einet(GRAPH, einet.Gaussian(), 3, seed=6)
    for a, b, c in zip(*(model.parameters() for model in [*same, other]), strict=True):
        assert a.equal(b)
        assert not a.equal(c)
    double = Einet(GRAPH, einet.Gaussian(), 3, dtype=torch.float64)
    assert {p.dtype for p in double.parameters()} == {torch.float64}
    # Weights drawn in float32 would add up to 1 to seven digits only.
    close(double.log_normalizer(), 0.0, atol=1e-14)
    assert same[0].log_prob(torch.zeros(2, 4)).dtype == torch.float32
    assert double.log_prob(torch.zeros(2, 4)).dtype == torch.float64


def test_families_of_all_variables():
    families = [einet.Bernoulli(), einet.Categorical(3), einet.Gaussian(), einet.Categorical(5)]
    model = Einet(GRAPH, families, 2)
    assert [repr(family) for family in model.families] == [repr(family) for family in families]
    assert "variables=4, sums=2, leaves=2" in repr(model)
    assert len(Einet(GRAPH, einet.Binomial([1, 2, 3, 4]), 2).families) == 4


@pytest.mark.usefixtures("unchecked")
def test_bad_arguments_are_named():
    family = einet.Gaussian()
    wrong: Any
    for wrong in (0, -1, 1.5, True, "3", None):
        with pytest.raises((TypeError, ValueError), match="num_sums must be an integer >= 1, got"):
            Einet(GRAPH, family, wrong)
    for wrong in (0, 2.0):
        with pytest.raises((TypeError, ValueError), match="num_leaves must be an integer >= 1"):
            Einet(GRAPH, family, 2, num_leaves=wrong)
        with pytest.raises((TypeError, ValueError), match="num_classes must be an integer >= 1"):
            Einet(GRAPH, family, 2, num_classes=wrong)
    with pytest.raises(TypeError, match="graph must be a RegionGraph, got str"):
        Einet("graph", family, 2)  # type: ignore[arg-type]
    for wrong in ("Gaussian", einet.Gaussian, None, [family, "x", family, family]):
        with pytest.raises(TypeError, match="family must be an exponential family"):
            Einet(GRAPH, wrong, 2)
    with pytest.raises(ValueError, match="one family for each of the 4 variables, got 3"):
        Einet(GRAPH, [family] * 3, 2)
    with pytest.raises(ValueError, match="Binomial.n holds 3 values, but the model has 4"):
        Einet(GRAPH, einet.Binomial([1, 2, 3]), 2)


def test_kinds_of_sums():
    for kind in ("einsum", "linear"):
        model = Einet(GRAPH, einet.Gaussian(), 3, sums=kind)
        assert model.sums == kind
        assert copy.deepcopy(model).sums == kind
        assert ("sums=3 linear" in repr(model)) == (kind == "linear")
    assert Einet(GRAPH, einet.Gaussian(), 3).sums == "einsum"
    with pytest.raises(ValueError, match="sums must be one of 'einsum', 'linear'.*, got 'cubic'"):
        Einet(GRAPH, einet.Gaussian(), 3, sums="cubic")
    message = r"num_leaves must equal num_sums \(3\), got 4"
    with pytest.raises(ValueError, match=message):
        Einet(GRAPH, einet.Gaussian(), 3, sums="linear", num_leaves=4)
    assert Einet(GRAPH, einet.Gaussian(), 3, sums="linear", num_leaves=3).num_leaves == 3


def test_precision():
    model = Einet(GRAPH, einet.Gaussian(), 3, precision="medium")
    assert model.precision == "medium"
    x = torch.randn(5, 4)
    found = model.log_prob(x)
    for precision in ("highest", "high", "medium"):
        model.precision = precision
        assert model.precision == model.circuit.precision == precision
        # It concerns GPUs alone.
        assert model.log_prob(x).equal(found)
        assert copy.deepcopy(model).precision == precision
    assert Einet(GRAPH, einet.Gaussian(), 3).precision == "highest"
    assert not any("precision" in name for name in model.state_dict())


@pytest.mark.usefixtures("unchecked")
def test_a_precision_that_is_none():
    model = Einet(GRAPH, einet.Gaussian(), 3, precision="high")
    wrong: Any
    for wrong in ("low", "HIGH", "", None, 1, torch.float32, ["high"]):
        message = "precision must be one of 'highest', 'high', 'medium', got"
        with pytest.raises(ValueError, match=message):
            Einet(GRAPH, einet.Gaussian(), 3, precision=wrong)
        with pytest.raises(ValueError, match=message):
            model.precision = wrong
        assert model.precision == "high"


# -- data ------------------------------------------------------------------------------------------


def test_any_kind_of_numbers():
    model = random_model(GRAPH, einet.Binomial(3), 2)
    table = [[0, 1, 2, 3], [3, 0, 1, 1], [2, 2, 0, 1]]
    expected = model.log_prob(torch.tensor(table, dtype=torch.float64))
    kinds = [torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.float32]
    for x in (
        table,
        np.array(table),
        np.array(table, dtype=np.float32),
        np.asfortranarray(table),
        pd.DataFrame(table),
        *(torch.tensor(table, dtype=kind) for kind in kinds),
        torch.tensor(table).T.contiguous().T,
        torch.tensor([[row, row] for row in table])[:, 1],
        torch.tensor(table).repeat_interleave(2, 1)[:, ::2],
    ):
        close(model.log_prob(x), expected)
        close(model.given(x).log_evidence, expected)
    bits = random_model(GRAPH, einet.Bernoulli(), 2)
    booleans = torch.tensor(table) > 1
    close(bits.log_prob(booleans), bits.log_prob(booleans.double()))
    close(bits.log_prob(booleans.numpy()), bits.log_prob(booleans.double()))


@every_family
def test_nan_is_a_mask_and_a_mask_is_nan(name: str):
    model = random_model(GRAPH, FAMILIES[name], 3)
    x = random_rows(model, 8)
    x[0] = NAN
    seen = ~x.isnan()
    # What lies under the mask is never looked at.
    for junk in (0.0, -7.5, math.inf):
        close(model.log_prob(x.nan_to_num(junk), seen), model.log_prob(x), rtol=0, atol=0)
    close(model.log_prob(x)[0], 0.0)
    for some, others in zip(
        model.e_step(x.nan_to_num(-7.5), seen).tensors(), model.e_step(x).tensors(), strict=True
    ):
        close(some, others)


@pytest.mark.parametrize("num_classes", [1, 3])
def test_a_batch_is_all_its_parts(num_classes: int):
    model = random_model(GRAPH, einet.Categorical(3), 3, num_classes=num_classes)
    x = random_rows(model, 9)
    beside: dict[str, Any] = {
        "labels": torch.arange(9) % (num_classes + 1) - 1, "weights": torch.rand(9),
    }  # fmt: skip
    batch = as_batch(x, 4, num_classes=num_classes, **beside)
    labels: dict[str, Any] = {"labels": beside["labels"]}

    def same(some: torch.Tensor, other: torch.Tensor) -> None:
        close(some, other, rtol=0, atol=0)

    same(model.log_prob(batch), model.log_prob(x, **labels))
    # These are of the data alone.
    same(model.class_log_prob(batch), model.class_log_prob(x))
    same(model.class_posterior(batch), model.class_posterior(x))
    same(model.given(batch).log_evidence, model.given(x, **labels).log_evidence)
    same(model.given(batch).log_prob(x), model.given(x, **labels).log_prob(x))
    one = model.given(batch[1:2])
    same(one.log_prob(x), model.given(x[1:2], labels=[beside["labels"][1]]).log_prob(x))
    pairs = zip(model.e_step(batch).tensors(), model.e_step(x, **beside).tensors(), strict=True)
    for some, other in pairs:
        same(some, other)
    twin = copy.deepcopy(model)
    same(model.em_step(batch, step_size=0.5), twin.em_step(x, step_size=0.5, **beside))
    for some, other in zip(model.parameters(), twin.parameters(), strict=True):
        same(some, other)
    for name, value in {"observed": batch.mask, **beside}.items():
        with pytest.raises(ValueError, match=f"{name} is given, but x is a Batch"):
            model.e_step(batch, **{name: value})


def test_no_rows():
    model = Einet(GRAPH, einet.Bernoulli(), 2, num_classes=2)
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            assert model.log_prob(torch.empty(0, 4)).shape == (0,)
            assert model.class_log_prob(torch.empty(0, 4)).shape == (0, 2)
            assert model.class_posterior(np.empty((0, 4))).shape == (0, 2)
    assert model.e_step(torch.empty(0, 4)).rows == 0


def test_one_row_at_a_time_is_all_at_once():
    model = random_model(GRAPH, einet.Categorical(3), 3, num_classes=2)
    x = random_rows(model, 20)
    close(torch.cat([model.log_prob(row[None]) for row in x]), model.log_prob(x), rtol=1e-13)
    with torch.no_grad():
        close(model.log_prob(x), torch.cat([model.log_prob(x[:7]), model.log_prob(x[7:])]))


def test_bad_data_are_named():
    model = Einet(GRAPH, einet.Bernoulli(), 2, num_classes=3)
    x = torch.zeros(2, 4)
    for ask in (model.log_prob, model.class_log_prob, model.class_posterior, model.e_step):
        with pytest.raises(ValueError, match=r"x must have shape \[rows, 4\].*got \[2, 3\]"):
            ask(x[:, :3])
        with pytest.raises(TypeError, match="x must be an array of numbers"):
            ask([["a"] * 4])
        with pytest.raises(TypeError, match="observed must be boolean"):
            ask(x, torch.ones(2, 4))
    with pytest.raises(ValueError, match="labels must lie between 0 and 2"):
        model.log_prob(x, labels=[0, 3])
    with pytest.raises(ValueError, match=r"labels must have shape \[2\]"):
        model.e_step(x, labels=[0])
    with pytest.raises(ValueError, match="weights must be finite and not negative"):
        model.e_step(x, weights=[1.0, -1.0])
    with pytest.raises(ValueError, match="data must have at least one row"):
        model.initialize(torch.empty(0, 4))
    with pytest.raises(ValueError, match=r"data must have shape \[rows, 4\]"):
        model.initialize(torch.zeros(2, 5))


@pytest.mark.parametrize("value", [0.5, -1.0, 2.0, math.inf])
def test_initialize_names_values_outside_the_support(value: float):
    model = Einet(GRAPH, [einet.Gaussian(), *[einet.Bernoulli()] * 3], 2)
    data = torch.zeros(5, 4)
    data[3, 2] = value
    with pytest.raises(
        ValueError, match=rf"data\[3, 2\] is {value:g}, outside .* Bernoulli: 0 or 1"
    ):
        model.initialize(data)
    data[3, 2], data[4, 0] = NAN, -math.inf
    with pytest.raises(ValueError, match=r"data\[4, 0\] is -inf, outside .* Gaussian"):
        model.initialize(data)


def test_initialize_ignores_what_is_never_observed():
    model = Einet(GRAPH, einet.Gaussian(), 2, dtype=torch.float64)
    before = {block: block.stored.detach().clone() for block in model.leaf.leaf_blocks}
    data = torch.randn(30, 4).double() * 5 + 100
    data[:, 2] = NAN
    model.initialize(data)
    for block, old in before.items():
        mine = block.group.variables[block.columns].reshape(-1) == 2
        assert block.stored[:, mine].equal(old[:, mine])
        assert not block.stored[:, ~mine].equal(old[:, ~mine])
    assert (model.mean()[[0, 1, 3]] - 100).abs().max() < 10
    assert model.mean()[2].abs() < 5


# -- moving and copying ----------------------------------------------------------------------------


@every_family
def test_float_and_back(name: str):
    model = random_model(GRAPH, FAMILIES[name], 3, num_classes=2)
    model.initialize(random_rows(model, 30, missing=0.1))
    x = random_rows(model, 10)
    single = copy.deepcopy(model).float()
    assert single.dtype == torch.float32
    found = single.log_prob(x)
    assert found.dtype == torch.float32
    expected = single.double().log_prob(x)
    assert single.dtype == torch.float64
    close(found, expected, rtol=1e-5, atol=1e-5)
    close(expected, model.log_prob(x), rtol=1e-5, atol=1e-4)
    close(model.to("cpu").to(torch.float64).log_prob(x), model.log_prob(x), rtol=0)


@every_family
def test_copies_are_independent(name: str):
    model = random_model(GRAPH, FAMILIES[name], 3)
    x = random_rows(model, 30)
    before = model.log_prob(x).detach()
    twin = copy.deepcopy(model)
    twin.initialize(x)
    twin.m_step(twin.e_step(x))
    assert not twin.log_prob(x).equal(before)
    assert model.log_prob(x).equal(before)


@every_family
def test_state_dict(name: str):
    model = random_model(GRAPH, FAMILIES[name], 3, num_classes=2)
    model.initialize(random_rows(model, 30))
    x = random_rows(model, 8, seed=1)
    other = Einet(GRAPH, FAMILIES[name], 3, num_classes=2, dtype=torch.float64, seed=9)
    other.load_state_dict(model.state_dict())
    # Location and scale, which initialisation reads off the data, come along.
    close(other.log_prob(x), model.log_prob(x), rtol=0)
    with pytest.raises(RuntimeError, match="num_sums 3 there and 2 here"):
        Einet(GRAPH, FAMILIES[name], 2, num_classes=2).load_state_dict(model.state_dict())


@pytest.mark.parametrize("name", FAMILIES)
def test_inference_mode(name: str):
    """Nothing made in it is kept for later, where it could not be used."""
    model = random_model(GRAPH, FAMILIES[name], 3)
    x = random_rows(model, 5)
    expected = model.log_prob(x)
    with torch.inference_mode():
        close(model.log_prob(x), expected)
        statistics = model.e_step(x)
        model.given(x).sample(2)
    model.m_step(statistics)
    tracked(model).log_prob(x).sum().backward()


def test_threads():
    model = random_model(GRAPH, einet.Gaussian(), 3)
    x = random_rows(model, 300)
    expected = model.log_prob(x).detach()
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(model.log_prob, [x] * 20):
            close(found, expected, rtol=0)


def test_moments_far_from_the_origin():
    model = random_model(GRAPH, einet.Gaussian(), 3)
    mean, variance = model.mean(), model.variance()
    location = model.leaf.family_groups[0].get_buffer("location")
    location += 1e9
    close(model.mean() - 1e9, mean, rtol=0, atol=1e-6)
    close(model.variance(), variance, rtol=1e-6)


# -- float32 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_float32_on_images(missing: float):
    """Within 1e-5·max(|log p|, D) of float64 on 3,072-dimensional images."""
    D = 3072
    graph = einet.poon_domingos((32, 32), delta=8, axes=[1], channels=3)
    generator = torch.Generator().manual_seed(0)
    # Smooth in both directions like an image, with some noise.
    coarse = torch.rand(60, 3, 4, 4, generator=generator)
    images = torch.nn.functional.interpolate(coarse, (32, 32), mode="bilinear", align_corners=True)
    images = (0.9 * images + 0.1 * torch.rand(images.shape, generator=generator)).flatten(1)
    model = Einet(graph, einet.Gaussian(), 10).initialize(images)
    x = images[:10].clone()
    x[torch.rand(x.shape, generator=generator) < missing] = NAN
    with torch.no_grad():
        single = model.log_prob(x).double()
        graded = copy.deepcopy(model).double().log_prob(x)
        model.m_step(model.e_step(images))
        after = model.log_prob(x).double()
        double_after = copy.deepcopy(model).double().log_prob(x)
    for found, expected in ((single, graded), (after, double_after)):
        assert expected.isfinite().all()
        assert ((found - expected).abs() <= 1e-5 * expected.abs().clamp(min=D)).all()
