"""Mixtures that are trained in parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.table1 import train
from experiments.table1.settings import KINDS, Kind, Settings


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds of members that were trained; the third training is interrupted."""
    seeds: list[int] = []
    train_one = train._train_one

    def watched(data: train.Data, settings: Settings, seed: int) -> train.Trained:
        seeds.append(seed)
        if len(seeds) == 3:
            raise KeyboardInterrupt
        return train_one(data, settings, seed)

    monkeypatch.setattr(train, "_train_one", watched)
    return seeds


def settings(kind: Kind) -> Settings:
    return Settings(kind, 2, depth=1, replicas=1, trees=1, batch_size=30, epochs=2, members=3)


@pytest.mark.parametrize("kind", KINDS)
def test_members_that_were_kept_are_not_trained_again(
    root: Path, tmp_path: Path, trained: list[int], kind: Kind
):
    data = train.Data("nltcs", str(root), "cpu")
    keep = tmp_path / "members"
    with pytest.raises(KeyboardInterrupt):
        train.train(data, settings(kind), 1, keep)
    found = train.train(data, settings(kind), 1, keep)
    assert trained == [100, 101, 102, 102]
    whole = train.train(data, settings(kind), 1)
    assert found.record["valid_ll"] == whole.record["valid_ll"]
    assert (found.model.log_prob(data.valid) == whole.model.log_prob(data.valid)).all()
    # Each member's time counts, whenever it was trained.
    seconds = [member["seconds"] for member in found.record["members"]]
    assert found.record["seconds"] >= sum(seconds[:2])


def test_members_with_other_settings_are_not_taken(root: Path, tmp_path: Path, trained: list[int]):
    data = train.Data("nltcs", str(root), "cpu")
    with pytest.raises(KeyboardInterrupt):
        train.train(data, settings("rat"), 1, tmp_path)
    train.train(data, replace(settings("rat"), hide=0.1, members=2), 1, tmp_path)
    assert trained == [100, 101, 102, 100, 101]
