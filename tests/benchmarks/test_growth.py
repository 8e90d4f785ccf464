import pytest

from benchmarks.growth import exponents, fit
from benchmarks.points import Point, growth_points
from benchmarks.store import merge, missing


def _row(point: Point, name: str = "einet", error: str | None = None) -> dict:
    cost = point.num_sums**3 * point.replicas * 2**point.depth * point.batch**0.5
    measured = {"train_ms": cost, "peak_mib": cost**0.5, "infer_ms": cost}
    row = {"implementation": name, "version": "0", "error": error, **point.as_row()}
    return row | (dict.fromkeys(measured) if error else measured)


def test_a_power_law_is_found():
    assert fit([1, 2, 4], [3, 12, 48]) == pytest.approx((2.0, 1.0))


def test_exponents_of_measured_rows():
    rows = [_row(point) for point in growth_points(500, ["highest"])]
    rows.append(_row(Point(256, batch=500), error="out of memory"))
    laws = {(law["parameter"], law["measure"]): law for law in exponents(rows) if law["x"]}
    expected = {"K": 3.0, "D": 1.0, "R": 1.0, "batch": 0.5}
    for name, exponent in expected.items():
        assert laws[name, "train_ms"]["exponent"] == pytest.approx(exponent)
        assert laws[name, "peak_mib"]["exponent_largest"] == pytest.approx(exponent / 2)
    assert laws["K", "train_ms"]["x"][-1] == 128


def test_a_new_row_replaces_that_of_its_point():
    rows = [_row(Point(2)), _row(Point(4))]
    rows = merge(rows, _row(Point(2)) | {"version": "1"})
    assert [row["version"] for row in rows] == ["1", "0"]
    rows = merge(rows, _row(Point(2), "pyjuice"))
    assert len(rows) == 3
    # A peer may report another precision than was asked for: the point is still the same.
    rows = merge(rows, _row(Point(2), "pyjuice") | {"precision": "bf16/tf32"})
    assert len(rows) == 3
    assert missing(rows, "pyjuice", [Point(2), Point(4)]) == [Point(4)]
    assert missing(rows, "einet", [Point(2), Point(2, precision="high")]) == [
        Point(2, precision="high")
    ]
