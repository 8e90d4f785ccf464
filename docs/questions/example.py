"""The rows that the pages of questions learn from: made up, and the same each time."""

import torch

__all__ = ["NAMES", "people"]

NAMES = ("age", "height", "weight")


def people(count: int = 2000, missing: float = 0.1, seed: int = 0) -> torch.Tensor:
    """Rows of age (years), height (cm) and weight (kg), with some of the cells missing.

    Children grow until they are about 17; weight goes with the square of height. Nobody was
    measured for this.

    Args:
        count: How many rows.
        missing: The probability with which a cell is missing (NaN).
        seed: Other seeds give other people.
    """
    generator = torch.Generator().manual_seed(seed)

    def noise() -> torch.Tensor:
        return torch.randn(count, generator=generator)

    age = 2 + 68 * torch.rand(count, generator=generator) ** 1.5
    grown = 1 - torch.exp(-((age / 9.5) ** 1.4))
    height = 72 + 100 * grown + (3 + 5 * grown) * noise()
    index = 15.5 + 9 * (1 - torch.exp(-age / 22)) + (0.8 + 2.2 * grown) * noise()
    rows = torch.stack([age, height, index * (height / 100) ** 2], 1)
    rows[torch.rand(rows.shape, generator=generator) < missing] = torch.nan
    return rows
