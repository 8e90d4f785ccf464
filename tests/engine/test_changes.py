"""Whether tensors are those that they were."""

import torch
from torch import nn

from einet.engine.changes import state_of


def test_a_state_lasts_until_something_changes():
    layer = nn.Linear(2, 1)
    before = state_of([layer._parameters])
    assert before == state_of([layer._parameters])
    with torch.no_grad():
        layer.weight += 1
    changed = state_of([layer._parameters])
    assert changed != before
    layer.weight = nn.Parameter(layer.weight.detach().clone())
    assert state_of([layer._parameters]) != changed


def test_what_nobody_counts():
    assert state_of([{}]) is None
    assert state_of([{"weight": None}]) is None
    with torch.inference_mode():
        made = torch.zeros(2)
    assert state_of([{"weight": made}]) is None
