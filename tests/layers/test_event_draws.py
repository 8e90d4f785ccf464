"""Values read off leaves under events."""

import torch

import einet
from einet.data.batch_events import as_events
from einet.layers.event_draws import answer_events_

CPU = torch.device("cpu")


def test_only_variables_with_events_are_touched():
    graph = einet.random_trees(3, depth=0, replicas=1)
    model = einet.Einet(graph, einet.Gaussian(), num_sums=1, num_leaves=2, dtype=torch.float64)
    where = {2: einet.between([5.0, -7.0], [6.0, -6.0]), 0: einet.between(1, 2)}
    events = as_events(where, 3, None, 2, CPU)
    block = model.leaf.leaf_blocks[0]
    leaf, entry, row = torch.zeros(4).long(), torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1])
    for answer in ("sample", "mean", "mode"):
        values = torch.full((4, 3), 9.0, dtype=torch.float64)
        answer_events_(values, block, leaf, entry, row, events, answer)
        place = {int(variable): at for at, variable in enumerate(block.columns[0])}
        assert (values[:, place[1]] == 9).all()
        assert ((values[:, place[0]] >= 1) & (values[:, place[0]] <= 2)).all()
        assert ((values[:2, place[2]] >= 5) & (values[:2, place[2]] <= 6)).all()
        assert ((values[2:, place[2]] >= -7) & (values[2:, place[2]] <= -6)).all()
