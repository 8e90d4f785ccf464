"""What all models share: the names of their variables, and EM steps that refuse nonsense."""

from __future__ import annotations

import copy
import json
import math
import pickle
from typing import Any

import jaxtyping
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.utils.data import DataLoader

import einet
from einet import ClusteredEinet, Einet, FormatError, Mixture
from einet.data import as_batch

GRAPH = einet.random_trees(3, depth=1, replicas=2, seed=0)
NAMES = ("age", "height", "score")
RANDOM = np.random.default_rng(0)
FRAME = pd.DataFrame(RANDOM.normal([0, 5, -5], size=(12, 3)), columns=list(NAMES))
MIXED = FRAME[["score", "age", "height"]]


@pytest.fixture
def unchecked():
    """Without the run-time checks of types, as a user runs it."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def an_einet(seed: int = 0) -> Einet:
    return Einet(GRAPH, einet.Gaussian(), 2, seed=seed)


MODELS = {
    "Einet": an_einet,
    "Mixture": lambda: Mixture([an_einet(0), an_einet(1)]),
    "nested": lambda: Mixture([Mixture([an_einet(0), an_einet(1)]), an_einet(2)]),
    "ClusteredEinet": lambda: ClusteredEinet(GRAPH, einet.Gaussian(), 2, num_clusters=2),
}


@pytest.fixture(params=MODELS.values(), ids=MODELS.keys())
def model(request) -> Any:
    return request.param()


def numbers(model) -> list[bytes]:
    """All numbers of a model, bit by bit: a hyper-parameter that was not given is NaN."""
    return [tensor.detach().numpy().tobytes() for tensor in model.state_dict().values()]


# -- names of variables ----------------------------------------------------------------------------


def test_there_are_none_at_first(model):
    assert model.columns is None
    model.log_prob(FRAME)
    model.e_step(FRAME)
    model.initialize(FRAME.to_numpy())
    model.em_step(FRAME.to_numpy())
    einet.fit(model, pd.DataFrame(FRAME.to_numpy()), epochs=1, progress=False)
    assert model.columns is None


LEARNING = {
    "initialize": lambda model, x: model.initialize(x),
    "em_step": lambda model, x: model.em_step(x),
    "fit": lambda model, x: einet.fit(model, x, epochs=1, progress=False),
    "fit by gradients": lambda model, x: einet.fit(
        model,
        x,
        epochs=1,
        progress=False,
        optimizer=einet.Gradient(torch.optim.Adam, lr=0.01),
    ),
}


@pytest.mark.parametrize("learn", LEARNING.values(), ids=LEARNING.keys())
def test_learning_from_a_table_makes_a_model_remember(model, learn):
    learn(model, pa.Table.from_pandas(FRAME) if isinstance(model, Mixture) else FRAME)
    assert model.columns == NAMES
    before = numbers(model)
    for other in (FRAME.rename(columns={"age": "years"}), FRAME.assign(more=1.0)):
        with pytest.raises(ValueError, match="columns of the model"):
            learn(model, other)
    assert numbers(model) == before
    twin = copy.deepcopy(model)
    learn(model, MIXED)
    learn(twin, FRAME)
    assert numbers(model) == numbers(twin)


QUESTIONS = {
    "log_prob": lambda model, x: model.log_prob(x),
    "call": lambda model, x: model(x),
    "given": lambda model, x: model.given(x.where(x < 3)).mean(),
    "conditional": lambda model, x: model.given(x[:1].where(x[:1] < 0)).log_prob(x),
    "log_marginals": lambda model, x: model.given(x.where(x < 0)).log_marginals(x),
    "e_step": lambda model, x: model.e_step(x).log_likelihood,
    "prior": lambda model, x: (
        einet.Prior(leaves=1.0).pseudo_counts(model, x).log_density(model).detach()
    ),
    "batch": lambda model, x: model.log_prob(as_batch(x, 3)),
    "observed": lambda model, x: model.log_prob(x, observed=x > 0),
}


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_tables_are_matched_by_name_everywhere(model, ask):
    model.initialize(FRAME)
    assert torch.equal(ask(model, MIXED), ask(model, FRAME))
    with pytest.raises(ValueError, match="'age' missing and 'years' unknown"):
        ask(model, FRAME.rename(columns={"age": "years"}))


def test_arrays_go_by_position(model):
    model.initialize(FRAME)
    assert torch.equal(model.log_prob(FRAME.to_numpy()), model.log_prob(FRAME))
    assert torch.equal(model.log_prob(pd.DataFrame(FRAME.to_numpy())), model.log_prob(FRAME))


def test_validation_rows_are_matched_with_the_training_rows(model):
    one = einet.fit(model, FRAME, MIXED, epochs=2, progress=False)
    with pytest.raises(ValueError, match="^valid must have the 3 columns"):
        einet.fit(model, FRAME, FRAME.rename(columns=str.upper), epochs=1, progress=False)
    with pytest.raises(ValueError, match="^train must have the 3 columns"):
        einet.fit(model, FRAME.rename(columns=str.upper), epochs=1, progress=False)
    assert one.valid == pytest.approx(one.train, abs=20)


def test_frames_from_a_loader():
    parts: Any = [FRAME[:6], MIXED[6:]]
    loader = DataLoader(parts, batch_size=None)
    model, plain = an_einet(), an_einet()
    options: Any = {"epochs": 2, "progress": False, "optimizer": einet.EM()}
    history = einet.fit(model, loader, **options)
    assert model.columns == NAMES
    rows = DataLoader([torch.tensor(FRAME[:6].to_numpy()), torch.tensor(FRAME[6:].to_numpy())],
                      batch_size=None)  # fmt: skip
    assert history.train == pytest.approx(einet.fit(plain, rows, **options).train)
    bad: Any = [FRAME[:6], FRAME[6:].rename(columns=str.upper)]
    with pytest.raises(ValueError, match="train: batch 1 must have the 3 columns"):
        einet.fit(an_einet(), DataLoader(bad, batch_size=None), **options)


def test_clusters_learn_from_tables():
    model: Any = MODELS["ClusteredEinet"]()
    model.fit(FRAME, MIXED, epochs=1, progress=False)
    assert model.columns == NAMES
    model.refine(MIXED, epochs=1, progress=False)
    assert torch.equal(model.log_prob(MIXED), model.log_prob(FRAME))
    with pytest.raises(ValueError, match="train must have the 3 columns"):
        model.refine(FRAME.assign(more=1), epochs=1, progress=False)
    # Names can be changed afterwards, and nothing that was kept knows the old ones.
    model.columns = ["a", "b", "c"]
    model.refine(FRAME.set_axis(["a", "b", "c"], axis=1), epochs=1, progress=False)


def test_names_survive(model, tmp_path):
    model.initialize(FRAME)
    model.save(tmp_path / "model.einet")
    for again in (
        einet.load(tmp_path / "model.einet"),
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
    ):
        assert again.columns == NAMES
        assert torch.equal(again.log_prob(MIXED), model.log_prob(FRAME))
        assert again.state_dict().keys() == model.state_dict().keys()
        for component in again.models if isinstance(again, Mixture) else []:
            assert component.columns == NAMES
    model.columns = None
    model.save(tmp_path / "model.einet")
    assert einet.load(tmp_path / "model.einet").columns is None


@pytest.mark.parametrize(
    "columns",
    [["age", "height"], ["age", "age", "b"], ["a", "b", 3], "abc", 3, True, {"a": 1}, None],
)
def test_damaged_names_are_refused(tmp_path, columns):
    path = tmp_path / "model.einet"
    an_einet().initialize(FRAME).save(path)
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["einet"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert header["model"]["columns"] == list(NAMES)
    header["model"]["columns"] = columns
    save_file(tensors, path, {"einet": json.dumps(header)})
    with pytest.raises(FormatError, match="columns"):
        einet.load(path)


def test_names_are_set_by_hand(model):
    model.columns = NAMES
    assert torch.equal(model.log_prob(MIXED), model.log_prob(FRAME.to_numpy()))
    for wrong in (["a"], ["a", "a", "b"], "abc", [1, 2, 3]):
        with pytest.raises((TypeError, ValueError), match="columns must"):
            model.columns = wrong
        assert model.columns == NAMES


def test_models_of_different_columns_are_not_mixed():
    one, two = an_einet(0).initialize(FRAME), an_einet(1).initialize(MIXED)
    with pytest.raises(ValueError, match="components must have the same columns in the same order"):
        Mixture([one, two])
    mixture = Mixture([one, an_einet(2)])
    assert mixture.columns == NAMES == mixture.models[1].columns


# -- steps that must not be taken ------------------------------------------------------------------

STEPS: list[Any] = [
    math.nan, math.inf, -math.inf, -1, 0, 0.0, 2, 1.0001, True, "0.5", None, 1j, [0.5], 10**400,
    torch.tensor(math.nan), torch.tensor(2.0), torch.tensor([0.5]), torch.tensor(1), np.ones(1),
]  # fmt: skip


@pytest.mark.usefixtures("unchecked")
def test_step_sizes_are_checked_first(model):
    model.initialize(FRAME.to_numpy())
    statistics, before = model.e_step(FRAME), numbers(model)
    for step_size in STEPS:
        with pytest.raises((TypeError, ValueError), match="step_size must"):
            model.em_step(FRAME, step_size=step_size)
        with pytest.raises((TypeError, ValueError), match="step_size must"):
            model.m_step(statistics, step_size)
    assert numbers(model) == before
    assert model.columns is None


@pytest.mark.usefixtures("unchecked")
def test_step_sizes_of_other_libraries(model):
    for size in (1, np.float32(0.5), torch.tensor(0.5), torch.tensor(0.5, dtype=torch.float64)):
        assert model.em_step(FRAME, step_size=size).isfinite()


WEIGHTS: list[Any] = [
    [1e308] * 12,
    [0.0] * 12,
    [-1.0] + [1.0] * 11,
    [math.nan] + [1.0] * 11,
    [math.inf] + [1.0] * 11,
    [1.0],
    [1e-200] * 12,
    ["1"] * 12,
    np.ma.array(np.ones(12), mask=np.arange(12) == 3),
    1.0,
]


@pytest.mark.usefixtures("unchecked")
def test_weights_are_checked_first(model):
    model.initialize(FRAME)
    before = numbers(model)
    calls: list[Any] = [model.em_step, lambda x, **options: einet.fit(model, x, **options)]
    if isinstance(model, ClusteredEinet):
        calls += [model.fit, model.refine]
    for call in calls:
        for weights in WEIGHTS:
            with pytest.raises((TypeError, ValueError), match="weights must"):
                call(FRAME, weights=weights)
    assert numbers(model) == before


def test_large_weights_learn_what_small_ones_do(model):
    model.initialize(FRAME)
    twins = [copy.deepcopy(model) for _ in range(3)]
    for twin, scale in zip(twins, (1.0, 1e-11, 1e14), strict=True):
        twin.em_step(FRAME, weights=[scale * number for number in range(1, 13)])
    for twin in twins[1:]:
        for one, other in zip(twin.parameters(), twins[0].parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=2e-4, atol=1e-5)


@pytest.mark.usefixtures("unchecked")
def test_statistics_of_something_else(model):
    before = numbers(model)
    other = Einet(GRAPH, einet.Gaussian(), 3)
    foreign = [None, 3.0, other.e_step(FRAME), Mixture([other]).e_step(FRAME)]
    for statistics in foreign:
        with pytest.raises((TypeError, ValueError), match="statistics must be"):
            model.m_step(statistics)
        if statistics is not None:
            with pytest.raises((TypeError, ValueError), match="into must be"):
                model.e_step(FRAME, into=statistics)
    for prior in (1.0, einet.Prior(1.0)):
        with pytest.raises(TypeError, match="prior must be pseudo-counts"):
            model.em_step(FRAME, prior=prior)
    assert numbers(model) == before


def test_components_that_refuse_data_leave_the_others_alone():
    families = [einet.Gaussian(), einet.Gaussian(), einet.Poisson()]
    model = Mixture([an_einet(), Einet(GRAPH, families, 2)])
    before = numbers(model)
    with pytest.raises(ValueError, match="outside the support of Poisson"):
        model.initialize(FRAME)
    assert numbers(model) == before
    assert model.columns is None


def test_holes_of_all_kinds_are_learnt_from_alike():
    hidden = np.ma.masked_greater(np.where(FRAME > 4.5, 1e20, FRAME), 1e19)
    plain = hidden.filled(math.nan)
    kinds = [plain, pa.Table.from_pandas(pd.DataFrame(plain)), pd.DataFrame(plain, dtype="Float64")]
    for x in (hidden, *kinds):
        model = an_einet()
        history = einet.fit(model, x, x, epochs=2, progress=False)
        expected = an_einet()
        assert history.train == einet.fit(expected, plain, plain, epochs=2, progress=False).train
        assert numbers(model) == numbers(expected)
