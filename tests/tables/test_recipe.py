"""What is chosen by the number of rows, and what validation does."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from einet import Table, TableModel
from einet.tables.learning import learn, prior_for, recipe_for


@given(rows=st.integers(0, 10**7), on_gpu=st.booleans())
def test_a_recipe_is_within_its_bounds(rows: int, on_gpu: bool):
    recipe = recipe_for(rows, on_gpu=on_gpu)
    assert 4 <= recipe.num_sums <= (512 if on_gpu else 64)
    assert recipe.num_sums >= recipe_for(rows).num_sums
    assert 12 <= recipe.epochs <= 60
    assert recipe.validation == (0.1 if rows >= 100 else 0.0)
    for with_classes in (False, True):
        prior = prior_for(rows, with_classes)
        assert 0 < prior.sums <= 1
        assert 0 < prior.leaves <= 0.1


def test_more_rows_need_less_of_a_prior():
    few, many = prior_for(500), prior_for(50_000)
    assert many.sums < few.sums
    assert many.leaves < few.leaves


def test_what_is_given_is_taken():
    recipe = recipe_for(1000, 7, 3, validation=0.25, on_gpu=True)
    assert (recipe.num_sums, recipe.epochs, recipe.validation) == (7, 3, 0.25)
    for wrong in (-0.1, 0.6, float("nan")):
        with pytest.raises(ValueError, match="validation must be a number"):
            recipe_for(1000, validation=wrong)


def test_without_validation_all_epochs_are_learnt_from_all_rows():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"a": generator.normal(size=300), "b": generator.random(300) < 0.5})
    table = Table.of(frame)
    z = table.encode(frame, seed=0)
    _, history = learn(table, z, epochs=3, validation=0, device="cpu")
    assert len(history) == 3
    assert not history.valid
    model = TableModel.fit(frame, epochs=2, validation=0.3, device="cpu")
    assert model.history is not None
    assert len(model.history.valid) == 2


def test_draws_leave_the_range_of_the_rows_only_where_evidence_says_so():
    values = np.random.default_rng(0).lognormal(0, 1.5, 400)
    frame = pd.DataFrame({"a": values, "b": values > 1})
    model = TableModel.fit(frame, epochs=3, device="cpu")
    drawn = model.sample(3000, seed=0, beyond=False)["a"]
    assert drawn.min() >= values.min() * (1 - 1e-9)
    assert drawn.max() <= values.max() * (1 + 1e-9)
    asked = {"a": (2 * values.max(), 3 * values.max())}
    far = model.sample(50, given=asked, seed=0, beyond=False)["a"]
    assert far.min() >= 2 * values.max() * (1 - 1e-9)
    free = model.sample(3000, seed=0)["a"]
    inside = free.between(values.min(), values.max())
    np.testing.assert_allclose(free[inside], drawn[inside])


@pytest.mark.gpu
def test_a_gpu_learns_a_larger_model_and_draws_there():
    generator = np.random.default_rng(0)
    a = generator.normal(size=6000)
    frame = pd.DataFrame({"a": a, "b": np.where(a > 0, "x", "y")})
    model = TableModel.fit(frame, epochs=2, validation=0, device="cuda")
    assert model.model.num_sums == 128  # type: ignore[attr-defined]
    model.model.to("cuda")
    drawn = model.sample(2000, seed=0, beyond=False)
    assert ((drawn["a"] > 0) == (drawn["b"] == "x")).mean() > 0.9
