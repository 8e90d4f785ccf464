"""What the pages say about a GPU, for rows whose ratios are known."""

from benchmarks import gpu_text
from benchmarks.points import GOALS, Point


def _row(name: str, K: int, train: float | None, scale: float = 1.0, **fields) -> dict:
    point = Point(K, batch=500).as_row()
    precision = "highest" if name == "einet" else "float32"
    error = None if train else "AssertionError"
    measured = {"train_ms": train, "peak_mib": train and 2 * scale * train, "infer_ms": train}
    return (
        {"implementation": name, "error": error}
        | point
        | {"precision": precision}
        | (measured | fields)
    )


ROWS = [
    *(_row("einet", K, 1.0) for K in (2, 10, 16, 40)),
    _row("pyjuice", 2, None),
    *(_row("pyjuice", K, train, 10) for K, train in ((10, 4.0), (40, 12.5))),
    _row("pyjuice", 16, 6.0, 10, precision="bf16/tf32"),
    *(_row("spflow-adam", K, 10.0) for K in (2, 10, 16, 40)),
    *(_row("spflow-em", K, 20.0) for K in (2, 10, 16, 40)),
    *(_row("baseline", K, 30.0) for K in (2, 10, 16, 40)),
]


def test_ratios_and_medians():
    said = gpu_text.summary(ROWS)
    # At K 40 SPFlow's Adam step is faster than PyJuice's.
    assert "in the least time at 2 of its 3 points (it fails at K 2)" in said
    assert "A training step takes 4.0 to 12 times (median 6) less" in said
    assert "with 40 to 125 times (median 60) less memory" in said
    assert "a step is 10 to 10 times (median 10) faster" in said
    assert "stores its products 30 to 30 times" in said


def test_precision_and_blocks():
    said = gpu_text.peer_precision(ROWS, [_row("pyjuice", 64, 1.0, precision="bf16/tf32")])
    assert "at all points but K 16 (and 64 in the larger table)" in said
    assert "K 10 and 40 are no powers of two: they leave PyJuice blocks of 2 and 8 nodes" in said
    assert "2 of the 4 points have such a K" in said


def test_table():
    rows = [
        _row("einet", 40, 1.25),
        _row("einet", 40, 9.0, precision="high"),
        _row("spflow-em", 40, None, error="out of memory"),
        _row("baseline", 40, None, error="unsupported: random trees only"),
    ]
    lines = gpu_text.table(rows).splitlines()
    assert len(lines) == 2 + sum(goal.point.precision == "highest" for goal in GOALS)
    (line,) = (line for line in lines if line.startswith("| K 40, batch 500"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1:] == ["**1.25 · 2.5**", "not measured", "not measured", "out of memory", "–"]


def test_peers_that_are_faster_than_pyjuice():
    said = gpu_text.faster_than_pyjuice(ROWS)
    assert said.endswith("at K 40, batch 500 SPFlow (Adam) (10 ms) train faster.")
    rest = [row for row in ROWS if row["K"] != 40]
    assert "PyJuice has the fastest training step" in gpu_text.faster_than_pyjuice(rest)
