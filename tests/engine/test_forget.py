"""Recordings are given back: what of it needs no GPU (the rest is in test_replay)."""

import pytest
import torch

import einet
from einet.engine import replay


def small() -> einet.Einet:
    return einet.Einet(einet.random_trees(3, depth=1, replicas=1, seed=0), einet.Gaussian(), 2)


def test_fit_forgets_what_it_recorded(monkeypatch: pytest.MonkeyPatch):
    forgotten = []
    monkeypatch.setattr(replay, "forget", forgotten.append)
    model, x = small(), torch.randn(10, 3)
    einet.fit(model, x, epochs=1, progress=False)
    assert forgotten == [model]
    monkeypatch.setattr(einet.StochasticEM, "step", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        einet.fit(model, x, epochs=1, progress=False)
    assert forgotten == [model, model]


def test_of_a_mixture_all_members_are_forgotten(monkeypatch: pytest.MonkeyPatch):
    calls = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: calls.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("empty_cache"))
    members = [small(), small(), small()]
    for member in members[:2]:
        replays = replay.recordings_of(member)
        replays._places, replays._pool = [], object()  # type: ignore[assignment]
        replays._kept[("step",)] = object()  # type: ignore[assignment]
    replay.forget(einet.Mixture(members))
    assert calls == ["synchronize", "empty_cache"] * 2
    for member in members[:2]:
        replays = replay.recordings_of(member)
        assert not replays._kept
        assert replays._places is None
        assert replays._pool is None
    # Nothing is left to forget.
    replay.forget(members[0])
    assert len(calls) == 4
