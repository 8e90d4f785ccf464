"""Small tables with columns of all kinds, for the tests of this room."""

import datetime as dt

import numpy as np
import pandas as pd

__all__ = ["mixed_frame"]


def mixed_frame(rows: int = 300, seed: int = 0, missing: float = 0.15) -> pd.DataFrame:
    """One column of each kind, that depend on one another, with holes."""
    generator = np.random.default_rng(seed)
    sex = generator.integers(0, 2, rows)
    age = np.clip(np.round(generator.normal(35 + 8 * sex, 12)), 17, 90)
    gain = np.where(generator.random(rows) < 0.7, 0.0, np.round(generator.lognormal(6, 1, rows), 2))
    size = np.digitize(age + generator.normal(0, 10, rows), [28, 40, 55])
    start = dt.datetime(2020, 1, 1)
    frame = pd.DataFrame(
        {
            "age": age,
            "sex": np.array(["Female", "Male"])[sex],
            "gain": gain,
            "height": generator.normal(165 + 12 * sex, 7),
            "size": pd.Categorical.from_codes(size, ["S", "M", "L", "XL"], ordered=True),
            "member": generator.random(rows) < 0.2 + 0.5 * sex,
            "since": [
                start + dt.timedelta(days=int(day)) for day in generator.integers(0, 900, rows)
            ],
            "children": generator.poisson(1.5, rows),
            "country": "NL",
        }
    )
    holes = generator.random((rows, 5)) < missing
    for number, name in enumerate(["age", "sex", "gain", "height", "size"]):
        frame.loc[holes[:, number], name] = None
    return frame
