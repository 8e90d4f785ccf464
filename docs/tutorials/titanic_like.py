"""A csv of passengers like those of the Titanic, for the tutorial: the rows are made up.

How many people of each class, sex and age group survived is as published (Dawson, "The 'Unusual
Episode' Data Revisited", Journal of Statistics Education 3(3), 1995). Ages in years, fares, ports,
relatives and holes are drawn from simple distributions: no row is of a real person.
"""

from __future__ import annotations

from os import PathLike

import numpy as np
import pandas as pd

__all__ = ["titanic_like", "write_csv"]

# (class, sex, child): survived, died. The crew is left out.
_COUNTS = {
    (1, "male", True): (5, 0),
    (1, "male", False): (57, 118),
    (1, "female", True): (1, 0),
    (1, "female", False): (140, 4),
    (2, "male", True): (11, 0),
    (2, "male", False): (14, 154),
    (2, "female", True): (13, 0),
    (2, "female", False): (80, 13),
    (3, "male", True): (13, 35),
    (3, "male", False): (75, 387),
    (3, "female", True): (14, 17),
    (3, "female", False): (76, 89),
}
# What follows is made up, by class.
_ADULT_AGE = {1: (40, 13), 2: (32, 12), 3: (28, 10)}  # mean and standard deviation in years
_FARE = {1: (60.0, 0.7), 2: (16.0, 0.4), 3: (10.0, 0.4)}  # median, and spread of its logarithm
_USUAL_FARE = {1: 26.55, 2: 13.00, 3: 8.05}  # paid by one in five
_PORTS = {1: (0.59, 0.40, 0.01), 2: (0.89, 0.09, 0.02), 3: (0.72, 0.13, 0.15)}
_NO_AGE = {1: 0.14, 2: 0.06, 3: 0.28}  # shares of holes


def titanic_like(seed: int = 0) -> pd.DataFrame:
    """Passengers of the Titanic, made up.

    Args:
        seed: Seed of all that is drawn.

    Returns:
        1,316 rows with ``survived``, ``pclass``, ``sex``, ``age``, ``fare``, ``embarked`` and
        ``relatives``; some ages and a few ports are missing.
    """
    generator = np.random.default_rng(seed)
    rows = []
    for (pclass, sex, child), (survived, died) in _COUNTS.items():
        for lives in [1] * survived + [0] * died:
            age = _age(generator, pclass, child)
            relatives = 1 + generator.poisson(1.5) if child else generator.poisson(0.5)
            median, spread = _FARE[pclass]
            usual = generator.random() < 0.2
            alone = _USUAL_FARE[pclass] if usual else median * generator.lognormal(0, spread)
            rows.append(
                {
                    "survived": lives,
                    "pclass": pclass,
                    "sex": sex,
                    "age": np.nan if generator.random() < _NO_AGE[pclass] else age,
                    "fare": round(float(alone * (1 + 0.6 * relatives)), 2),
                    "embarked": generator.choice(["S", "C", "Q"], p=_PORTS[pclass]),
                    "relatives": int(relatives),
                }
            )
    frame = pd.DataFrame(rows)
    frame.loc[generator.random(len(frame)) < 0.01, "embarked"] = None
    return frame.sample(frac=1, random_state=seed).reset_index(drop=True)


def _age(generator: np.random.Generator, pclass: int, child: bool) -> float:
    """A whole number of years, of a child below 15 and of others above."""
    if child:
        return float(generator.integers(1, 15))
    mean, deviation = _ADULT_AGE[pclass]
    while True:
        age = round(generator.normal(mean, deviation))
        if 15 <= age <= 80:
            return float(age)


def write_csv(path: str | PathLike[str], seed: int = 0) -> None:
    """Write such passengers to a csv file, whose missing cells are empty."""
    titanic_like(seed).to_csv(path, index=False)
