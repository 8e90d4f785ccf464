"""The arithmetic over roots against numpy, one row at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from einet.engine.root import join, log_sum, responsibilities, share_out

INF = float("inf")

# Some far too small for a float once exponentiated, some impossible.
logs = st.one_of(st.just(-INF), st.floats(-2000, 50), st.floats(-3, 3))


@st.composite
def tables(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """Log densities, a log prior and labels."""
    parts, rows = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    row = st.lists(logs, min_size=rows, max_size=rows)
    table = draw(st.lists(row, min_size=parts, max_size=parts))
    weights = torch.tensor(draw(st.lists(st.floats(0.1, 1), min_size=parts, max_size=parts)))
    labels = draw(st.lists(st.integers(-1, parts - 1), min_size=rows, max_size=rows))
    prior = (weights / weights.sum()).double().log()
    return torch.tensor(table, dtype=torch.float64), prior, torch.tensor(labels)


def by_hand(joint: np.ndarray) -> tuple[float, np.ndarray]:
    """log Σ exp and the shares of one row."""
    peak = joint.max()
    if peak == -INF:
        return -INF, np.zeros_like(joint)
    shares = np.exp(joint - peak)
    return peak + np.log(shares.sum()), shares / shares.sum()


@given(tables())
def test_every_row(table: tuple[Tensor, Tensor, Tensor]):
    log_prob, prior, labels = table
    joint = join(log_prob, prior, labels)
    total, part = log_sum(joint), responsibilities(joint)
    or_prior = responsibilities(joint, prior)
    for row, label in enumerate(labels.tolist()):
        wanted = (log_prob[:, row] + prior).numpy().copy()
        if label >= 0:
            wanted[np.arange(len(wanted)) != label] = -INF
        np.testing.assert_array_equal(joint[:, row].numpy(), wanted)
        log_p, shares = by_hand(wanted)
        np.testing.assert_allclose(total[row].item(), log_p, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(part[:, row], shares, rtol=1e-12, atol=1e-300)
        instead = prior.exp() if log_p == -INF else part[:, row]
        torch.testing.assert_close(or_prior[:, row], instead)


@given(tables(), st.booleans())
def test_shares_are_weighted(table: tuple[Tensor, Tensor, Tensor], weighted: bool):
    joint = join(*table)
    weights = torch.arange(joint.shape[1]).double() if weighted else None
    log_prob, share, row_weights = share_out(joint, weights)
    assert log_prob.equal(log_sum(joint))
    assert row_weights.equal(torch.ones(joint.shape[1]).double() if weights is None else weights)
    assert share.equal(responsibilities(joint) * row_weights)
    torch.testing.assert_close(share.sum(0), torch.where(log_prob > -INF, row_weights, 0.0))


@given(tables())
def test_gradients_are_responsibilities_and_never_nan(table: tuple[Tensor, Tensor, Tensor]):
    log_prob, prior, labels = table
    log_prob, prior = log_prob.requires_grad_(), prior.requires_grad_()
    joint = join(log_prob, prior, labels)
    total = log_sum(joint)
    total[total > -INF].sum().backward()
    wanted = responsibilities(joint.detach())
    torch.testing.assert_close(log_prob.grad, wanted)
    torch.testing.assert_close(prior.grad, wanted.sum(1))


def test_values_of_float32_are_added_in_float64():
    joint = join(torch.full((2, 1), -1e8), torch.tensor([0.25, 0.75]).log())
    assert joint.dtype == torch.float64
    assert log_sum(joint).item() == pytest.approx(-1e8, abs=1e-6)
