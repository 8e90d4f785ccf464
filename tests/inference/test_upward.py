"""Copies of what an upward pass finds: everything in it, and nothing in common."""

from __future__ import annotations

import pytest
import torch

import einet
from einet.inference.upward import UpwardPass
from tests.kernels.triton.leaf_check import interpreted
from tests.layers.test_tree import SMALL
from tests.twins import engine


@interpreted
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("num_sums", [2, 65])
def test_copies_have_everything_in_memory_of_their_own(num_sums: int):
    """What trees keep for their way back too: products, or planes of them."""
    model = einet.Einet(SMALL, einet.Bernoulli(), num_sums, sums="linear")
    rows = [model.as_batch([[1.0, float("nan"), 0.0, 1.0, each]]) for each in (0.0, 1.0)]
    with engine("cpu"):
        one, two = (UpwardPass.over(model, batch) for batch in rows)
        copied = one.clone()
        places = {tensor.data_ptr() for tensor in one.tensors()}
        assert places.isdisjoint(tensor.data_ptr() for tensor in copied.tensors())
        assert copied.nbytes == one.nbytes
        assert copied.values.fused
        assert any(tree in copied.values.kept for tree in model.circuit.trees)
        seed = torch.ones_like(one.joint)
        flow = model.downward(one.values, seed)
        assert model.downward(copied.values, seed).equal(flow)
        copied.copy_(two)
        assert copied.joint.equal(two.joint)
        assert model.downward(copied.values, seed).equal(model.downward(two.values, seed))
        assert not copied.joint.equal(one.joint)
