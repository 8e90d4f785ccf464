"""How models of tables are learnt: recipes, weights of rows, validation rows, refinement."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from einet import Table
from einet.tables.learning import learn, prior_for, recipe_for, refine

GENERATOR = np.random.default_rng(0)
CLASSES = GENERATOR.integers(0, 2, 240)
FRAME = pd.DataFrame(
    {
        "a": GENERATOR.normal(2.0 * CLASSES, 1.0),
        "b": GENERATOR.normal(size=240),
        "c": np.where(GENERATOR.random(240) < 0.2 + 0.5 * CLASSES, "x", "y"),
    }
)
TABLE = Table.of(FRAME)
Z = TABLE.encode(FRAME)
SMALL: Any = {"num_sums": 4, "epochs": 4}


def test_recipes_grow_with_the_number_of_rows():
    recipes = [recipe_for(rows) for rows in (80, 300, 700, 4000, 30_000)]
    assert [recipe.batch_size for recipe in recipes] == [50, 75, 175, 400, 1000]
    assert [recipe.validation for recipe in recipes] == [0.0, 0.1, 0.1, 0.1, 0.1]
    sums = [recipe.num_sums for recipe in recipes]
    assert sums == sorted(sums)


def test_priors_shrink_with_the_number_of_rows():
    priors = [prior_for(rows) for rows in (50, 1000, 100_000)]
    assert [prior.sums for prior in priors] == [1.0, 1.0, 0.01]
    assert [prior.leaves for prior in priors] == pytest.approx([1 / 30, 0.01, 0.003])
    assert all(prior.states == 0.1 for prior in priors)
    with_classes = prior_for(1000, with_classes=True)
    assert (with_classes.sums, with_classes.states) == (0.3, 2.0)


def test_validation_rows_are_not_learnt_from():
    valid = np.arange(0, 240, 5)
    first = learn(TABLE, Z, valid_rows=valid, **SMALL)[0]
    # Rows of other parts do not matter to what is learnt, but those learnt from do.
    other = Z.copy()
    other[valid, 1] += 0.01
    again = learn(TABLE, other, valid_rows=valid, **SMALL)[0]
    changed = Z.copy()
    changed[1::5, 1] += 0.01
    third = learn(TABLE, changed, valid_rows=valid, **SMALL)[0]
    rows = torch.from_numpy(Z)
    near = (first.log_prob(rows) - again.log_prob(rows)).abs().max()
    far = (first.log_prob(rows) - third.log_prob(rows)).abs().max()
    # The tree is read off all rows, and stays the same here.
    assert near < 1e-9 < far


def test_rows_count_as_often_as_they_weigh():
    # Once each is as if there were no weights.
    plain = learn(TABLE, Z, **SMALL)[0]
    once = learn(TABLE, Z, weights=np.ones(240), **SMALL)[0]
    rows = torch.from_numpy(Z)
    assert torch.allclose(plain.log_prob(rows), once.log_prob(rows), atol=1e-5)
    # Rows of class 1 weigh nearly everything: what is learnt is theirs.
    weights = np.where(CLASSES == 1, 1.0, 1e-3)
    heavy = learn(TABLE, Z, weights=weights, **SMALL)[0]
    of_class = Z[CLASSES == 1, 0].mean()
    assert float(heavy.mean()[0]) == pytest.approx(of_class, abs=0.15)


def test_refinement_gains_on_validation_rows_or_changes_nothing():
    labels = CLASSES.astype(np.int64)
    valid = np.arange(0, 240, 4)
    model = learn(TABLE, Z, labels=labels, num_classes=2, valid_rows=valid, **SMALL)[0]

    def quality() -> float:
        joint = model.log_prob(Z[valid], labels=labels[valid])
        return float((joint - model.log_prob(Z[valid])).mean())

    before = quality()
    history = refine(model, Z, labels, epochs=5, valid_rows=valid)
    assert history is not None
    assert len(history) == 5
    assert quality() > before - 0.05
    few = learn(TABLE, Z[:60], labels=labels[:60], num_classes=2, **SMALL)[0]
    assert refine(few, Z[:60], labels[:60], epochs=2) is None
