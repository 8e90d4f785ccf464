"""What the pages say about a CPU: a table of all points, and how far two runs agree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from comparison_tables import TITLES, markdown, number

__all__ = ["agreement", "scaling_summary", "table"]

NAMES = ("einet", "libspn", "libspn-xla", "spflow-adam", "spflow-em")

Row = dict


def table(rows: Sequence[Row]) -> str:
    """Every point on a CPU, and how many times less it costs here."""
    points: dict[tuple, dict[str, Row]] = {}
    for row in rows:
        point = row["K"], row["batch"], row["threads"]
        points.setdefault(point, {})[row["implementation"]] = row
    lines = []
    for point, measured in points.items():
        cells = [_cell(measured.get(name)) for name in NAMES]
        lines.append((*point, *cells, *_ratios(measured)))
    rounds = sorted({row["rounds"] for row in rows if row["train_ms"] is not None})
    span = f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
    header = ("K", "batch", "threads", *(TITLES[name] for name in NAMES))
    note = f"Medians over {span} round{'s' * (rounds[-1] > 1)}.{_failures(rows)}"
    return note + "\n\n" + markdown((*header, "train", "forward", "memory"), lines)


def scaling_summary(rows: Sequence[Row]) -> str:
    """What a sample costs over the batch size, on one thread."""
    single = [row for row in rows if row["threads"] == 1]
    costs = [row["train_ms_per_sample"] for row in single]
    batches = [row["batch"] for row in single]
    return (
        f"At K {single[0]['K']} a training step costs {min(costs):.3f} to {max(costs):.3f} ms for "
        f"each sample on one thread, whatever the batch from {min(batches)} to {max(batches)}."
    )


def agreement(comparison: Sequence[Row], scaling: Sequence[Row]) -> str:
    """The points that were measured twice: training milliseconds in both files."""
    ours = {_key(row): row for row in comparison if row["implementation"] == "einet"}
    header = ("K", "batch", "threads", "`cpu.json`", "`cpu-scaling.json`", "ratio")
    lines = []
    for row in scaling:
        other = ours.get(_key(row))
        if other is not None and other["train_ms"] and row["train_ms"]:
            ratio = row["train_ms"] / other["train_ms"]
            lines.append((*_key(row), _with_rounds(other), _with_rounds(row), f"{ratio:.2f}"))
    return markdown(header, lines)


def _cell(row: Row | None) -> str:
    if row is None:
        return "not measured"
    if row["train_ms"] is None:
        return row["note"]
    return " / ".join(number(row[field]) for field in ("train_ms", "forward_ms", "peak_mib"))


def _ratios(measured: dict[str, Row]) -> tuple[str, str, str]:
    """The fastest peer's training and forward pass and the smallest peer's memory over ours."""
    ours = measured.get("einet")
    peers = {k: row for k, row in measured.items() if k != "einet" and row["train_ms"] is not None}
    documented = {name: row for name, row in peers.items() if name != "libspn-xla"}
    if ours is None or ours["train_ms"] is None or not documented:
        return "", "", ""

    def ratio(rows: dict[str, Row], field: str) -> str:
        return f"{min(row[field] for row in rows.values()) / ours[field]:.1f}×"

    forward = f"{ratio(documented, 'forward_ms')} ({ratio(peers, 'forward_ms')})"
    return ratio(peers, "train_ms"), forward, ratio(peers, "peak_mib")


def _failures(rows: Iterable[Row]) -> str:
    """Which implementations ran out of memory, and where."""
    points: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.get("note", "").startswith("out of memory"):
            shown = f"K {row['K']}, batch {row['batch']}"
            points.setdefault(TITLES[row["implementation"]], {})[shown] = None
    return "".join(f" {name} runs out of memory at {'; '.join(of)}." for name, of in points.items())


def _key(row: Row) -> tuple[int, int, int]:
    return row["K"], row["batch"], row["threads"]


def _with_rounds(row: Row) -> str:
    return f"{number(row['train_ms'])} ms ({row['rounds']} round{'s' * (row['rounds'] > 1)})"
