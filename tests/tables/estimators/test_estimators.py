"""Estimators: scikit-learn's own checks, and what it cannot check: frames, holes, exactness."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from einet.tables import (
    EinetClassifier,
    EinetDensity,
    EinetImputer,
    EinetOutlierDetector,
    EinetRegressor,
    TableModel,
)
from tests.tables.frames import mixed_frame

SMALL: dict[str, Any] = {"num_sums": 2, "epochs": 1, "random_state": 0}


@parametrize_with_checks(
    [
        EinetClassifier(num_sums=4, epochs=4, random_state=0, refine=False),
        EinetRegressor(num_sums=4, epochs=8, random_state=0),
    ]
)
def test_all_checks_of_scikit_learn(estimator: Any, check: Any):
    check(estimator)


# The others share their checks of data with those above: what is left are those of the interface.
@parametrize_with_checks(
    [EinetDensity(**SMALL), EinetImputer(**SMALL), EinetOutlierDetector(**SMALL)], legacy=False
)
def test_checks_of_the_interface(estimator: Any, check: Any):
    check(estimator)


FRAME = mixed_frame(300)


def test_density_of_a_frame():
    density = EinetDensity(**SMALL).fit(FRAME)
    assert np.isfinite(density.score_samples(FRAME)).all()
    assert density.score(FRAME) == pytest.approx(density.score_samples(FRAME).mean())
    assert density.log_prob(FRAME[["sex"]]).shape == (300,)
    assert (density.sample(5, given={"sex": "Male"})["sex"] == "Male").all()
    before = density.score(FRAME)
    for _ in range(3):
        density.partial_fit(FRAME)
    assert density.score(FRAME) > before
    assert EinetDensity(**SMALL).partial_fit(FRAME).score(FRAME) == pytest.approx(before)


def test_a_classifier_with_holes_is_the_marginal_of_one_without():
    frame, labels = FRAME.drop(columns="sex"), FRAME["sex"].fillna("Male")
    classifier = EinetClassifier(num_sums=4, epochs=3, random_state=0).fit(frame, labels)
    p = classifier.predict_proba(frame)
    assert p.shape == (300, 2)
    assert np.allclose(p.sum(1), 1)
    # p(class | all but children) = Σ p(class | all) p(children | all but children)
    row = frame.iloc[[0]]
    values = classifier.model_.table.coding("children").values  # type: ignore[attr-defined]
    full = pd.concat([row.assign(children=int(value)) for value in values])
    weights = np.exp(classifier.model_.log_prob(full))
    expected = (weights[:, None] * classifier.predict_proba(full)).sum(0) / weights.sum()
    hidden = row.assign(children=pd.array([None], dtype="Int64"))
    assert np.allclose(classifier.predict_proba(hidden)[0], expected, atol=1e-9)
    assert set(classifier.predict(frame)) <= {"Female", "Male"}
    assert classifier.score(frame, labels) > 0.6


def test_regression_with_quantiles():
    frame = FRAME.dropna(subset=["height"])
    features = frame.drop(columns="height")
    regressor = EinetRegressor(num_sums=8, epochs=10, random_state=0).fit(features, frame["height"])
    assert regressor.score(features, frame["height"]) > 0.2
    lower, upper = regressor.predict_interval(features, 0.9)
    heights = frame["height"].to_numpy()
    inside = (heights >= lower) & (heights <= upper)
    assert 0.8 < inside.mean() <= 1
    quantiles = regressor.predict_quantile(features, [0.1, 0.5])
    assert (quantiles[0] < quantiles[1]).all()


def test_imputation_in_a_pipeline_and_as_a_frame():
    imputer = EinetImputer(**SMALL).set_output(transform="pandas")
    filled = imputer.fit_transform(FRAME)
    assert isinstance(filled, pd.DataFrame)
    assert not filled.isna().any().any()
    numbers = FRAME[["age", "height", "children"]]
    target = FRAME["member"].to_numpy()
    steps = make_pipeline(EinetImputer(**SMALL), EinetClassifier(**SMALL, refine=False))
    assert cross_val_score(steps, numbers, target, cv=2).shape == (2,)
    drawn = EinetImputer(num_sums=2, epochs=1, method="sample").fit(FRAME)
    assert not drawn.transform(FRAME).equals(drawn.transform(FRAME))


def test_a_grid_search_over_the_number_of_sums():
    x = np.random.default_rng(0).normal(size=(60, 2))
    search = GridSearchCV(EinetDensity(**SMALL), {"num_sums": [1, 2]}, cv=2).fit(x)
    assert search.best_params_["num_sums"] in (1, 2)


def test_estimators_are_saved_to_files_of_models(tmp_path: Path):
    density = EinetDensity(**SMALL).fit(FRAME)
    density.save(tmp_path / "density.einet")
    again = TableModel.load(tmp_path / "density.einet")
    assert np.array_equal(again.log_prob(FRAME), density.score_samples(FRAME))
    copy: Any = clone(density)
    assert copy.get_params() == density.get_params()


def test_outliers_are_the_improbable_rows():
    detector = EinetOutlierDetector(**SMALL, contamination=0.05).fit(FRAME)
    assert (detector.predict(FRAME) == -1).mean() == pytest.approx(0.05, abs=0.01)
    strange = FRAME.head(1).assign(height=900.0)
    assert detector.decision_function(strange)[0] < detector.decision_function(FRAME).min()
    with pytest.raises(ValueError, match="contamination"):
        EinetOutlierDetector(contamination=0.9).fit(FRAME)
