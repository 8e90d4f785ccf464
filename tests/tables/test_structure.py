"""Trees of columns: information of mixed pairs, spikes beside their numbers, classes as roots."""

import numpy as np
import pandas as pd
import pytest

from einet.tables import Table
from einet.tables.structure import column_information, column_tree
from tests.tables.frames import mixed_frame


def test_columns_of_all_kinds_tell_about_one_another():
    generator = np.random.default_rng(0)
    x = generator.normal(size=3000)
    frame = pd.DataFrame(
        {
            "x": x,
            "twin": x + 0.01 * generator.normal(size=3000),
            "sign": np.where(x > 0, "plus", "minus"),
            "other": generator.normal(size=3000),
        }
    )
    table = Table.of(frame)
    information = column_information(table, table.encode(frame))
    assert np.allclose(information, information.T)
    assert (np.diag(information) == 0).all()
    # Levels alone could not show more than their number's logarithm.
    assert information[0, 1] > 3
    assert information[0, 2] == pytest.approx(np.log(2), abs=0.1)
    # Chance alone would tell something in counts of pairs of levels.
    assert abs(information[3, :3]).max() < 0.01


def test_a_spike_and_its_number_have_one_latent_variable():
    frame = mixed_frame()
    table = Table.of(frame)
    graph = column_tree(table, table.encode(frame))
    which, value = table.variables("gain")
    leaves = {graph.variables(leaf): leaf for leaf in graph.leaves}
    together = [
        partition.children
        for partition in graph.partitions
        if leaves[(which,)] in partition.children
    ]
    assert len(together) == 1
    assert leaves[(value,)] in together[0]
    assert len(graph.leaves) == table.num_variables


@pytest.mark.parametrize("columns", [["gain"], ["sex"], ["sex", "gain"], ["age", "sex", "gain"]])
@pytest.mark.parametrize("classes", [False, True])
def test_few_columns_and_classes(columns: list[str], classes: bool):
    frame = mixed_frame()[columns]
    table = Table.of(frame)
    labels = np.arange(len(frame)) % 2 if classes else None
    graph = column_tree(table, table.encode(frame), labels)
    assert graph.num_variables == table.num_variables
    assert sorted(graph.variables(leaf)[0] for leaf in graph.leaves) == [
        *range(graph.num_variables)
    ]
