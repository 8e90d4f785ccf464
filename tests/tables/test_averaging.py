"""Averages of models: who learns from which rows, and what the average is."""

from typing import Any

import numpy as np
import pytest
import torch

import einet
from einet.tables import EinetClassifier, TableModel
from einet.tables.averaging import class_shares, folds, members_for
from tests.tables.frames import mixed_frame


def test_members_by_the_number_of_rows():
    assert [members_for(rows) for rows in (50, 100, 3000, 100_000)] == [1, 8, 5, 1]
    assert members_for(50, 3) == 3
    with pytest.raises(ValueError, match="members must be an integer >= 1, got 0"):
        members_for(50, 0)


@pytest.mark.parametrize(("members", "all_rows"), [(2, 63), (4, 126), (8, 250), (10, 250)])
def test_rows_are_validated_on_by_one_member_at_most(members: int, all_rows: int):
    parts: Any = list(folds(250, members, seed=1))
    rows = np.concatenate(parts)
    assert len(rows) == len(set(rows)) == pytest.approx(all_rows, abs=1)
    assert max(map(len, parts)) <= 32
    assert all((np.diff(part) > 0).all() for part in parts)


def test_few_rows_are_not_shared_out():
    assert list(folds(250, 1)) == [None]
    assert list(folds(99, 3)) == [None, None, None]


def test_the_average_is_a_mixture_of_its_members():
    frame = mixed_frame(120)
    model = TableModel.fit(frame, num_sums=2, epochs=1, members=3)
    assert isinstance(model.model, einet.Mixture)
    of_members = torch.tensor(
        np.stack([TableModel(one, model.table).log_prob(frame) for one in model.model.models])
    )
    expected = of_members.logsumexp(0) - np.log(3)
    assert np.allclose(model.log_prob(frame), expected)
    # Each has learnt from other rows, and found something else.
    assert (of_members[0] - of_members[1]).abs().max() > 1e-3
    alone = TableModel.fit(frame, num_sums=2, epochs=1)
    assert isinstance(alone.model, einet.Einet)


def test_classes_of_an_average_are_the_mean_over_its_members():
    frame, labels = mixed_frame(120).drop(columns="sex"), ["a", "b", "c"] * 40
    classifier = EinetClassifier(num_sums=2, epochs=1, random_state=0, members=2)
    p = classifier.fit(frame, labels).predict_proba(frame)
    z = classifier.model_.table.encode(frame)
    model: Any = classifier.model_.model
    expected = np.mean([one.class_posterior(torch.tensor(z)).numpy() for one in model.models], 0)
    assert np.allclose(p, expected)
    heavy = einet.Mixture(model.models, weights=[3.0, 1.0])
    parts = [class_shares(one, z) for one in model.models]
    assert np.allclose(class_shares(heavy, z), 0.75 * parts[0] + 0.25 * parts[1])
