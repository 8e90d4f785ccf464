"""Hostile arguments of public callables: a clear error, and a model that is as it was before.

A case takes one argument of one callable and gives it a value that nobody means. The call may
succeed, if the value happens to be allowed; else it raises a ``TypeError``, a ``ValueError`` or an
``OSError`` that names the argument, before anything has changed. It never hangs, and no error of
some inner tensor or list comes through.
"""

from __future__ import annotations

import decimal
import math
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jaxtyping
import numpy as np
import pandas as pd
import pytest
import torch

import einet
from einet.inference.bins import bin_log_prob

# No call of a small model takes so long.
_SECONDS = 60

NAN = math.nan
X = np.random.default_rng(0).normal(size=(8, 3))
LABELS = [0, 1, -1, 1, 0, 0, 1, -1]
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])
GRAPH = einet.random_trees(3, depth=1, replicas=2, seed=0)
QUIET: dict[str, Any] = {"epochs": 1, "progress": False}

#: Values that are no number, or none that can be meant.
VALUES: dict[str, Callable[[], Any]] = {
    "NaN": lambda: NAN,
    "infinite": lambda: math.inf,
    "negative": lambda: -1,
    "minus infinity": lambda: -math.inf,
    "zero": lambda: 0,
    "a fraction": lambda: 0.5,
    "above one": lambda: 1.5,
    "a bool": lambda: True,
    "text": lambda: "0.5",
    "empty text": lambda: "",
    "bytes": lambda: b"1",
    "None": lambda: None,
    "complex": lambda: 1j,
    "10**12": lambda: 10**12,
    "2**63": lambda: 2**63,
    "2**64": lambda: 2**64,
    "10**400": lambda: 10**400,
    "1e308": lambda: 1e308,
    "a list": lambda: [1, 2],
    "an empty list": list,
    "nested": lambda: [[1.0, "x"], [None, 2.0]],
    "ragged": lambda: [[1.0], [1.0, 2.0]],
    "a dict": lambda: {"a": 1},
    "a set": lambda: {1},
    "an object": object,
    "a class": lambda: int,
    "a function": lambda: lambda value: value,
    "an array": lambda: np.array([1.0, NAN]),
    "a masked array": lambda: np.ma.array([1.0, 2.0], mask=[True, False]),
    "an empty array": lambda: np.empty((0, 3)),
    "a matrix": lambda: np.ones((4, 4)),
    "weights of 1e308": lambda: [1e308] * 8,
    "weights of zero": lambda: [0.0] * 8,
    "negative weights": lambda: [-1.0] * 8,
    "dates": lambda: np.full((8, 3), "2020-01-01", dtype="datetime64[s]"),
    "huge": lambda: np.full((8, 3), 2**64 - 1, dtype=np.uint64),
    "strings": lambda: pd.DataFrame({"a": ["u"], "b": ["v"], "c": ["w"]}),
    "other columns": lambda: FRAME.rename(columns={"a": "z"}),
    "a tensor": lambda: torch.tensor([1.0, NAN]),
    "a scalar tensor": lambda: torch.tensor(NAN),
    "a sparse tensor": lambda: torch.eye(3).to_sparse(),
    "a complex tensor": lambda: torch.ones(8, 3, dtype=torch.cfloat),
    "a generator": lambda: torch.Generator(),
    "a decimal": lambda: decimal.Decimal("NaN"),
    "another model": lambda: einet.Einet(GRAPH, einet.Gaussian(), 5),
    "statistics": lambda: einet.Einet(GRAPH, einet.Gaussian(), 5).e_step(X),
    "a prior": lambda: einet.Prior(1.0),
}

# These ask for more time rather than for something impossible.
_LARGE = {"10**12", "2**63", "2**64", "10**400"}

Call = Callable[[Any, Any], Any]


def call(of: Callable[[Any], Any], argument: str, *arguments: Any, **options: Any) -> Call:
    """Calls what ``of`` finds in a model, with the hostile value as one argument."""
    return lambda model, value: of(model)(*arguments, **{**options, argument: value})


def asked(question: str, argument: str, **options: Any) -> Call:
    """Calls a question to a posterior."""
    return lambda model, value: getattr(model.given([[0.5, NAN, 1.0]]), question)(
        **{**options, argument: value}
    )


#: Calls of any model, with the argument that errors name.
OF_MODELS: list[tuple[str, Call]] = [
    *(
        (argument, call(lambda model, name=name: getattr(model, name), argument, x=X))
        for name in ("log_prob", "e_step", "em_step", "given")
        for argument in ("x", "observed")
    ),
    *(
        (argument, call(lambda model: model.initialize, argument, data=X))
        for argument in ("data", "observed", "seed")
    ),
    *(
        (argument, call(lambda model: model.em_step, argument, x=X))
        for argument in ("labels", "weights", "step_size", "prior")
    ),
    ("weights", call(lambda model: model.e_step, "weights", x=X)),
    ("into", call(lambda model: model.e_step, "into", x=X)),
    *(
        (argument, lambda model, value, argument=argument: model.m_step(
            **{"statistics": model.e_step(X), argument: value}))
        for argument in ("statistics", "step_size", "prior")
    ),
    ("columns", lambda model, value: setattr(model, "columns", value)),
    ("n", call(lambda model: model.sample, "n")),
    ("leaves", call(lambda model: model.sample, "leaves", n=2)),
    ("seed", call(lambda model: model.sample, "seed", n=2)),
    ("n", asked("sample", "n")),
    ("seed", asked("sample", "seed", n=2)),
    ("x", asked("log_prob", "x")),
    ("observed", asked("log_prob", "observed", x=X)),
    ("x", asked("log_marginals", "x")),
    ("variable", asked("probabilities", "variable")),
    ("variable", asked("entropy", "variable")),
    ("method", asked("impute", "method")),
    ("seed", asked("impute", "seed", method="sample")),
    *(
        (argument, lambda model, value, argument=argument: bin_log_prob(
            model, **{"bins": torch.zeros(2, 3, dtype=torch.long),
                      "edges": torch.tensor([0.0, 1.0]), argument: value}))
        for argument in ("bins", "edges")
    ),
    *(
        (argument, lambda model, value, argument=argument: einet.fit(
            **{"model": model, "train": X, **QUIET, argument: value}))
        for argument in (
            "model", "train", "valid", "epochs", "batch_size", "optimizer", "labels", "observed",
            "weights", "hide", "finish", "initialize", "seed", "device", "objective", "transform",
            "callbacks", "resume", "progress", "every", "on_error",
        )
    ),
    *(
        (argument, lambda model, value, argument=argument: einet.fit(
            **{"model": model, "train": X, "valid": X, **QUIET, argument: value}))
        for argument in ("valid_labels", "valid_observed", "patience")
    ),
    ("x", lambda model, value: einet.Prior(leaves=1.0).pseudo_counts(model, value)),
    ("model", lambda model, value: einet.Prior(leaves=1.0).pseudo_counts(value, X)),
    ("weight", lambda model, value: einet.Prior(1.0).pseudo_counts(model, X).for_rows(value)),
]  # fmt: skip

OF_CLUSTERS: list[tuple[str, Call]] = [
    *(
        (argument, call(lambda model, name=name: getattr(model, name), argument, train=X, **QUIET))
        for name in ("fit", "refine")
        for argument in (
            "train", "valid", "epochs", "batch_size", "optimizer", "observed", "weights", "seed",
            "device", "transform", "callbacks", "resume", "progress", "every",
        )
    ),
    *(
        (argument, call(lambda model: model.fit, argument, train=X, **QUIET))
        for argument in (
            "hide", "finish", "clusters", "kmeans_iterations", "from_clusters", "together",
        )
    ),
]  # fmt: skip


def makes(make: Callable[..., Any], argument: str, **options: Any) -> tuple[str, Call]:
    return argument, lambda model, value: make(**{**options, argument: value})


_EINET: dict[str, Any] = {"graph": GRAPH, "family": einet.Gaussian(), "num_sums": 2}
_TREES = {"num_variables": 3, "depth": 1, "replicas": 2}

#: Calls that make something.
MAKERS: list[tuple[str, Call]] = [
    *(
        makes(einet.Einet, argument, **_EINET)
        for argument in (
            "graph", "family", "num_sums", "num_leaves", "sums", "num_classes", "precision", "seed",
            "dtype", "device",
        )
    ),
    *(
        makes(einet.ClusteredEinet, argument, num_clusters=2, **_EINET)
        for argument in ("num_sums", "num_clusters", "seed")
    ),
    ("components", lambda model, value: einet.Mixture(value)),
    ("components", lambda model, value: einet.ClusteredEinet.of(value)),
    ("weights", lambda model, value: einet.Mixture([einet.Einet(**_EINET)], value)),
    *(makes(einet.random_trees, argument, **_TREES) for argument in (*_TREES, "seed")),
    *(
        makes(einet.poon_domingos, argument, shape=(2, 3), delta=1)
        for argument in ("shape", "delta", "axes", "channels")
    ),
    *(
        makes(einet.chow_liu, argument, data=X > 0)
        for argument in (
            "data", "observed", "weights", "information", "levels", "smoothing", "trees", "seed",
        )
    ),
    makes(einet.RegionGraphBuilder, "num_variables"),
    makes(einet.Gaussian, "min_variance"),
    makes(einet.Gaussian, "max_variance"),
    makes(einet.Gaussian, "relative_floor"),
    makes(einet.Bernoulli, "min_probability"),
    makes(einet.Binomial, "n"),
    makes(einet.Binomial, "min_probability", n=3),
    makes(einet.Categorical, "num_categories"),
    makes(einet.Categorical, "min_probability", num_categories=3),
    makes(einet.Categorical, "numeric", num_categories=3),
    makes(einet.Poisson, "min_rate"),
    makes(einet.Exponential, "min_mean"),
    makes(einet.Exponential, "max_mean"),
    makes(einet.Exponential, "relative_floor"),
    makes(einet.Beta, "min_concentration"),
    makes(einet.Beta, "max_concentration"),
    makes(einet.Gamma, "min_shape"),
    makes(einet.Gamma, "max_shape"),
    *(
        makes(schedule, argument, start=0.5, end=0.1)
        for schedule in (einet.linear, einet.exponential, einet.cosine)
        for argument in ("start", "end")
    ),
    makes(einet.StochasticEM, "step_size"),
    makes(einet.StochasticEM, "prior"),
    makes(einet.EM, "prior"),
    makes(einet.Gradient, "optimizer"),
    makes(einet.Prior, "sums"),
    makes(einet.Prior, "leaves"),
    ("model", lambda model, value: einet.unconstrained(value).__enter__()),
]  # fmt: skip

# What can be called may be what was meant; what it raises is its own.
_CALLABLE = {"a class", "a function", "another model"}
_CALLED = {"transform", "callbacks", "optimizer"}
# A number of rounds is what was asked for, however long it takes.
_ROUNDS = {"epochs", "finish", "kmeans_iterations"}


def values_for(argument: str) -> list[str]:
    """The names of the values that are hostile for an argument."""
    left_out = (_LARGE if argument in _ROUNDS else set()) | (
        _CALLABLE if argument in _CALLED else set()
    )
    return [name for name in VALUES if name not in left_out]


def new_model(kind: str) -> Any:
    """A small model that remembers the columns of its data."""
    if kind == "Mixture":
        parts = [einet.Einet(GRAPH, einet.Gaussian(), 2, seed=seed) for seed in (0, 1)]
        return einet.Mixture(parts).initialize(FRAME)
    if kind == "ClusteredEinet":
        model = einet.ClusteredEinet(GRAPH, einet.Gaussian(), 2, num_clusters=2)
        return model.initialize(FRAME)
    model = einet.Einet(GRAPH, einet.Gaussian(), 2, num_classes=2 if kind == "classes" else 1)
    return model.initialize(FRAME)


def numbers(model: Any) -> list[bytes]:
    """All numbers of a model, bit by bit."""
    return [tensor.detach().numpy().tobytes() for tensor in model.state_dict().values()]


@contextmanager
def no_longer_than(seconds: int, what: str) -> Iterator[None]:
    """Raise where something hangs; where there are no alarms, it hangs."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def ring(*_: Any) -> None:
        raise AssertionError(f"{what} took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def attempt(kind: str, argument: str, attack: Call, name: str) -> str:
    """Try one call; how it was answered."""
    model, value = new_model(kind), VALUES[name]()
    before, columns = numbers(model), model.columns
    what = f"{argument}={name} of a {kind}"
    try:
        with no_longer_than(_SECONDS, what), warnings.catch_warnings():
            # Trees that run out of variables are warned of.
            warnings.simplefilter("ignore")
            attack(model, value)
    except (TypeError, ValueError, OSError) as error:
        kind, message = type(error).__name__, str(error)
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__} came through: {error}") from error
    else:
        # A component that has no rows weighs nothing, of which the log is −∞.
        broken = any(bool(tensor.isnan().any()) for tensor in model.parameters())
        assert not broken, f"{what}: parameters are NaN"
        return "allowed"
    assert argument in message, f"{what}: the {kind} does not name it: {message}"
    assert len(message) < 2000, f"{what}: nobody can read this: {message[:200]}"
    assert numbers(model) == before, f"{what}: the model was changed"
    assert model.columns == columns, f"{what}: the names were changed"
    return f"refused by {kind}"


@pytest.fixture
def unchecked():
    """Without the run-time checks of types, as a user runs it."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("unchecked")
def test_misuse(campaign):
    groups = {
        "Einet": OF_MODELS,
        "classes": OF_MODELS,
        "Mixture": OF_MODELS,
        "ClusteredEinet": [*OF_MODELS, *OF_CLUSTERS],
    }
    attacks = [(kind, *attack) for kind, group in groups.items() for attack in group]
    makers = [("Einet", *attack) for attack in MAKERS]

    def case(random: np.random.Generator, _: Any) -> str:
        # Makers are as many as what is asked of one kind of model.
        pool = makers if random.random() < 0.3 else attacks
        kind, argument, attack = pool[random.integers(len(pool))]
        names = values_for(argument)
        return attempt(kind, argument, attack, names[random.integers(len(names))])

    report = campaign.run("misuse", case, cases=100)
    assert report.tried == sum(report.answers.values())
