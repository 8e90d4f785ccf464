"""What learns, and its steps."""

import pytest
import torch

import einet
from einet.data.batch import Batch
from einet.learning.steps import filled, generator_of, progress_in


def test_generators_of_their_own():
    keys = [(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 1, 2), (0, 2, 1)]
    drawn = [tuple(torch.rand(4, generator=generator_of(*key)).tolist()) for key in keys]
    assert len(set(drawn)) == len(keys)
    again = torch.rand(4, generator=generator_of(0, 1, 2))
    assert tuple(again.tolist()) == drawn[5]


@pytest.mark.parametrize(
    ("rows", "size"),
    [(500, 500), (251, 500), (250, 250), (126, 250), (125, 125), (40, 62), (15, 31), (1, 31)],
)
def test_few_numbers_of_rows(rows: int, size: int):
    batch = filled(Batch(torch.ones(rows, 2)), 500)
    assert len(batch) == size
    assert batch.weights is not None
    assert batch.weights.tolist() == [1.0] * rows + [0.0] * (size - rows)


def test_filled_rows_count_nothing():
    graph = einet.random_trees(3, depth=1, replicas=2)
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    observed = torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) > 0.2
    weights = torch.linspace(0.1, 2.0, 20, dtype=torch.float64)
    for family, data in ((einet.Gaussian(), x), (einet.Gamma(), x.exp())):
        for batch in (
            Batch(data),
            Batch(data, observed),
            Batch(data, observed, None, weights),
        ):
            one, two = (
                einet.Einet(graph, family, 3, dtype=torch.float64).initialize(data)
                for _ in range(2)
            )
            mean = one.em_step(batch, step_size=0.5)
            torch.testing.assert_close(two.em_step(filled(batch, 32), step_size=0.5), mean)
            for mine, theirs in zip(one.parameters(), two.parameters(), strict=True):
                torch.testing.assert_close(mine, theirs)


def test_bytes_stay_bytes():
    batch = filled(Batch(torch.ones(20, 2, dtype=torch.uint8)), 32)
    assert batch.x.dtype == torch.uint8


def test_progress_goes_from_0_to_1():
    values = [progress_in(epoch, 3, 4)(step) for epoch in range(3) for step in range(4)]
    assert values == pytest.approx([n / 11 for n in range(12)])
    assert progress_in(0, 1, 1)(0) == 0.0
    # Where nobody knows how many steps there are, epochs count.
    assert [progress_in(epoch, 3, None)(7) for epoch in range(3)] == [0.0, 0.5, 1.0]
