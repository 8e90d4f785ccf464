"""What the pages say of hidden trees on a GPU, from `results/trees-cuda.json`."""

from __future__ import annotations

from typing import Any

__all__ = ["queries", "table"]

Row = dict[str, Any]


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def _lines(head: list[str], body: list[list[str]]) -> str:
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *body))


def table(rows: list[Row]) -> str:
    """A step of EM, the forward pass and peak memory of each implementation, leaves and K."""
    head = [
        "leaves, variables", "sums", "K", "`einet` `highest`", "`einet` `high`", "PyJuice",
        "floor, `highest`",
    ]  # fmt: skip
    body = []
    points = sorted({(row["leaves"], row["variables"], row["K"]) for row in rows})
    for leaves, variables, num_sums in points:
        here = [
            r
            for r in rows
            if (r["leaves"], r["variables"], r["K"]) == (leaves, variables, num_sums)
        ]
        # Those of the present kernels come last, and so are shown where there are both.
        here.sort(key=lambda row: not row.get("earlier", False))
        ours = {row["precision"]: row for row in here if row["implementation"] == "einet"}
        peer = next((row for row in here if row["implementation"] == "pyjuice"), None)
        exact = ours["highest"]
        cells = [_cell(row) for row in (exact, ours.get("high"), peer)]
        body.append(
            [f"{leaves}, {variables:,}", f"{exact['sums']:,}", str(num_sums), *cells,
             _number(exact["floor_ms"])]
        )  # fmt: skip
    return _lines(head, body)


def _cell(row: Row | None) -> str:
    if row is None:
        return "not measured"
    if "train_ms" not in row:
        return row["error"]
    mark = "†" if row.get("earlier") else ""
    times = f"{_number(row['train_ms'])} ({_number(row['forward_ms'])})"
    return f"{times} · {_number(row['peak_mib'])}{mark}"


def queries(rows: list[Row]) -> str:
    """Milliseconds of questions to the model of MNIST-sized images."""
    head = [
        "K",
        "`sample(1000)`",
        "`given(100 rows).sample(1)`",
        "mean and variance given 100 rows",
    ]
    names = ("sample_1000_ms", "given_100_sample_ms", "given_100_mean_ms")
    chosen = [
        row for row in rows
        if row["leaves"] == "categorical" and row["precision"] == "highest" and names[0] in row
    ]  # fmt: skip
    chosen.sort(key=lambda row: not row.get("earlier", False))
    by_size = {row["K"]: row for row in chosen}
    return _lines(head, [_answers(by_size[size], names) for size in sorted(by_size)])


def _answers(row: Row, names: tuple[str, ...]) -> list[str]:
    mark = "†" if row.get("earlier") else ""
    return [f"{row['K']}{mark}", *(_number(row[name]) for name in names)]
