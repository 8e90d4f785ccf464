"""Blocks, rows without copies, and that no large tensor is ever made."""

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import einet
from einet.kernels.memory import NodeRows, blocks, scratch, spacing
from tests.oracle import tracked


@pytest.mark.parametrize("rows", [1, 7, 40])
@pytest.mark.parametrize("batch", [1, 63, 64, 65, 1000])
def test_blocks_cover_every_cell_once(rows: int, batch: int):
    for budget in (1, 3000, 100_000, 10**9):
        parts, pieces = blocks(rows, batch, 8, budget)
        for cuts, total in ((parts, rows), (pieces, batch)):
            assert [i for cut in cuts for i in range(cut.start, cut.stop)] == list(range(total))
        tallest = max(part.stop - part.start for part in parts)
        widest = max(piece.stop - piece.start for piece in pieces)
        # No block exceeds the budget, but for a single row: up to three times, or 64 columns.
        if tallest > 1:
            assert tallest * widest * 8 <= budget
        else:
            assert widest * 8 <= 3 * budget or widest <= 64


@pytest.mark.parametrize("index", [[4], [0, 1, 2], [1, 3, 5], [2, 0, 1], [3, 3, 0], [2, 1, 0]])
def test_rows_by_number(index: list[int]):
    step = spacing(index)
    assert (step is None) == (index not in ([4], [0, 1, 2], [1, 3, 5]))
    rows = NodeRows(torch.tensor(index), index[0], step)
    tensor = torch.arange(18.0).view(6, 3)
    for part in (slice(0, len(index)), slice(len(index) - 1, len(index))):
        assert rows.take(tensor, part, "test").equal(tensor[index[part]])
        values = torch.rand(len(index[part]), 3)
        added, expected = tensor.clone(), tensor.clone()
        rows.add_(added, part, values)
        for number, value in zip(index[part], values, strict=True):
            expected[number] += value
        torch.testing.assert_close(added, expected)


def test_scratch_memory_is_kept():
    like = torch.empty(0)
    large = scratch("test", (4, 5), like)
    assert large.shape == (4, 5)
    assert scratch("test", (3, 2), like).data_ptr() == large.data_ptr()
    assert scratch("other", (3, 2), like).data_ptr() != large.data_ptr()
    assert scratch("test", (3, 2), like.double()).dtype == torch.float64


class Largest(TorchDispatchMode):
    """Notes the storage of every tensor that comes out of an operation."""

    nbytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.nbytes = max(self.nbytes, tensor.untyped_storage().nbytes())
        return result


@pytest.mark.parametrize(
    ("family", "missing"),
    [
        (einet.Gaussian(), False),
        (einet.Gaussian(), True),
        (einet.Categorical(3), True),
        ([einet.Gaussian(), einet.Bernoulli()] * 48, True),
    ],
    ids=["Gaussian", "missing", "Categorical", "two families"],
)
def test_neither_products_nor_leaves_are_written_out(family, missing: bool):
    """The largest tensor is far below batch·L·K² and batch·D·K·R numbers.

    What remains are the values of all nodes, and their gradients.
    """
    D, depth, R, K, batch = 96, 3, 6, 24, 500
    model = einet.Einet(einet.random_trees(D, depth, R), family, K)
    x = model.sample(4, seed=0)[torch.arange(batch) % 4]
    if missing:
        x[::3, ::5] = torch.nan
    L = R * 2 ** (depth - 1)
    products, leaves = 4 * batch * L * K * K, 4 * batch * D * K * R
    nodes = 4 * batch * K * (model.circuit.num_body + 1)
    assert nodes < min(products, leaves) / 5
    queries = {
        "log_prob": lambda: model.log_prob(x),
        "gradient": lambda: tracked(model).log_prob(x).sum().backward(),
        "without gradient": lambda: model.given(x).log_evidence,
        "e_step": lambda: model.e_step(x),
        "mean": lambda: model.given(x).mean(),
    }
    for name, query in queries.items():
        with Largest() as largest:
            query()
        assert largest.nbytes < min(products, leaves) / 4, name
