"""Rows in slots come out once each, with all that belongs to them."""

import pytest
import torch

from einet.data.batch import Batch
from einet.data.joining import joined
from einet.data.slots import Slots


def part_of(start: int, count: int, **more) -> Batch:
    return Batch(torch.arange(start, start + count).view(count, 1), **more)


def test_the_order_is_that_of_rows_that_are_moved_about():
    """Shuffled by their numbers, rows come as if they were joined and shuffled themselves."""
    generator = torch.Generator().manual_seed(0)
    plain: list[Batch] = []
    slots, drawn = Slots(40), torch.Generator().manual_seed(0)
    for number in range(20):
        known = torch.rand(9, 1) < 0.5 if number % 3 == 2 else None
        weights = torch.rand(9, dtype=torch.float64) if number == 4 else None
        part = part_of(9 * number, 9, observed=known, weights=weights)
        slots.add(part)
        slots.shuffle(drawn)
        plain = [joined([*plain, part])]
        plain = [plain[0][torch.randperm(len(plain[0]), generator=generator)]]
        if number > 3:
            out, wanted = slots.take(8), plain[0][:8]
            plain = [plain[0][8:]]
            for one, other in zip(vars(out).values(), vars(wanted).values(), strict=True):
                assert (one is None) == (other is None)
                assert one is None or torch.equal(one, other)
    assert slots.rows == len(plain[0]) == 20 * 9 - 16 * 8


def test_memory_is_used_again():
    slots, generator = Slots(30), torch.Generator().manual_seed(0)
    for number in range(50):
        slots.add(part_of(10 * number, 10))
        slots.shuffle(generator)
        if slots.rows > 30:
            slots.take(10)
    assert len(slots._tensors["x"]) == 40


def test_types_that_differ_become_one_that_holds_both():
    slots = Slots(4)
    slots.add(part_of(0, 2))
    slots.add(Batch(torch.tensor([[0.5], [1.5]])))
    slots.shuffle(torch.Generator().manual_seed(0))
    assert sorted(slots.take(4).x.flatten().tolist()) == [0.0, 0.5, 1.0, 1.5]


def test_more_rows_than_there_are():
    slots = Slots(4)
    slots.add(part_of(0, 3))
    slots.shuffle(torch.Generator())
    with pytest.raises(ValueError, match="2 rows fewer"):
        slots.take(5)
