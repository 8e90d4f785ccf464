"""Counts of pairs against counting row by row, in both ways."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from einet.data.batch import Batch
from einet.structures import pair_counts as module
from einet.structures.pair_counts import pair_counts
from tests.budgets import limit

_BUDGETS = ("one-hot rows", "pair counts", "pair tables", "pair codes")


def by_rows(x: np.ndarray, known: np.ndarray, weights: np.ndarray, states: int) -> np.ndarray:
    """n[u, a, v, b], row by row."""
    variables = x.shape[1]
    result = np.zeros((variables, states, variables, states))
    for row, weight in zip(range(len(x)), weights, strict=True):
        for u in np.flatnonzero(known[row]):
            for v in np.flatnonzero(known[row]):
                result[u, x[row, u], v, x[row, v]] += weight
    return result


@given(
    st.integers(1, 12), st.integers(1, 10), st.integers(1, 5), st.integers(0, 2**31),
    st.booleans(), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_agrees_with_counting(
    rows: int, variables: int, states: int, seed: int,
    holes: bool, weigh: bool, products: bool, parts: bool,
):  # fmt: skip
    generator = np.random.default_rng(seed)
    x = generator.integers(0, states, (rows, variables))
    known = generator.random(x.shape) < (0.6 if holes else 1.1)
    weights = generator.random(rows) * 3 if weigh else np.ones(rows)
    expected = by_rows(x, known, weights, states)
    batch = Batch(
        torch.as_tensor(np.where(known, x, 0), dtype=torch.uint8),
        torch.as_tensor(known) if holes else None,
        weights=torch.as_tensor(weights) if weigh else None,
    )
    seen = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(module._STATES_OF_PRODUCTS, "cpu", states if products else 0)
        for name in _BUDGETS if parts else ():
            limit(patch, name, 64)
        for first, second, joint in pair_counts(batch, states):
            for i, u in enumerate(range(first.start, first.stop)):
                for j, v in enumerate(range(second.start, second.stop)):
                    if u >= v:
                        continue
                    assert (u, v) not in seen
                    seen.add((u, v))
                    found = joint[i, :, j].numpy()
                    order = [_exchanged(expected[d].sum(-1)[:, d], states) for d in (u, v)]
                    wanted = expected[u][:, v][np.ix_(*order)]
                    if weigh:
                        np.testing.assert_allclose(found, wanted, atol=1e-12)
                        assert (found >= 0).all()
                    else:
                        assert (found == wanted).all()
    assert seen == {(u, v) for v in range(variables) for u in range(v)}


def _exchanged(counts: np.ndarray, states: int) -> list[int]:
    """States with the commonest and the first in one another's places."""
    order = list(range(states))
    common = int(counts.argmax())
    order[0], order[common] = common, 0
    return order


def test_256_states_and_missing_cells():
    x = torch.arange(256, dtype=torch.uint8).unsqueeze(-1).repeat(1, 2)
    known = torch.ones_like(x, dtype=torch.bool)
    known[7, 0] = known[9, 1] = False
    ((_, _, joint),) = pair_counts(Batch(x, known), 256)
    counts = joint[0, :, 0]
    assert counts.shape == (256, 256)
    assert float(counts.sum()) == 254
    assert torch.equal(counts, torch.diag(known.all(1).double()))


def test_binary_data_are_one_product(monkeypatch: pytest.MonkeyPatch):
    """Without missing cells there is one column for each variable, not two."""
    columns = []
    one_hot = module._one_hot

    def watched(*arguments):
        columns.append(one_hot(*arguments).shape[1])
        return one_hot(*arguments)

    monkeypatch.setattr(module, "_one_hot", watched)
    x = torch.randint(2, (30, 16), generator=torch.manual_seed(0), dtype=torch.uint8)
    ((_, _, joint),) = pair_counts(Batch(x), 2)
    assert columns == [16]
    assert joint.shape == (16, 2, 16, 2)
