"""Markdown tables of the measured rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["TITLES", "comparison", "markdown", "number", "scaling"]

Row = dict

# What readers know the implementations by.
TITLES = {
    "einet": "`einet`",
    "libspn": "LibSPN",
    "libspn-xla": "LibSPN + XLA",
    "pyjuice": "PyJuice",
    "spflow-adam": "SPFlow (Adam)",
    "spflow-em": "SPFlow (EM)",
    "baseline": "log-domain baseline",
}


def comparison(rows: Sequence[Row]) -> str:
    """Every row, then `einet` against the fastest peer at every point."""
    measured = markdown(
        ("implementation", "K", "batch", "threads", "train ms", "forward ms", "peak MiB"),
        (
            (
                row["implementation"],
                row["K"],
                row["batch"],
                row["threads"],
                number(row["train_ms"]) or row.get("note", ""),
                number(row["forward_ms"]),
                number(row["peak_mib"]),
            )
            for row in rows
        ),
    )
    parts = [measured]
    header = ("K", "batch", "threads", "train", "forward", "memory")
    for title, left_out in (
        ("Fastest peer divided by `einet` (memory: that of the fastest peer in training):", ()),
        ("The same with peers as they document themselves, without XLA:", ("libspn-xla",)),
    ):
        ratios = list(_ratios([row for row in rows if row["implementation"] not in left_out]))
        if ratios:
            parts += [title, markdown(header, ratios)]
    return "\n\n".join(parts)


def scaling(rows: Sequence[Row]) -> str:
    """Cost per sample of a training step over the batch size."""
    return markdown(
        ("K", "batch", "threads", "train ms", "train ms per sample", "peak MiB"),
        (
            (
                row["K"],
                row["batch"],
                row["threads"],
                number(row["train_ms"]) or row.get("note", ""),
                number(row["train_ms_per_sample"]),
                number(row["peak_mib"]),
            )
            for row in rows
        ),
    )


def _ratios(rows: Iterable[Row]) -> Iterable[tuple]:
    points: dict[tuple[int, int, int], list[Row]] = {}
    for row in rows:
        if row["train_ms"] is not None:
            points.setdefault((row["K"], row["batch"], row["threads"]), []).append(row)
    for point, candidates in points.items():
        ours = [row for row in candidates if row["implementation"] == "einet"]
        peers = [row for row in candidates if row["implementation"] != "einet"]
        if not ours or not peers:
            continue
        trainer = min(peers, key=lambda row: row["train_ms"])
        runner = min(peers, key=lambda row: row["forward_ms"])
        yield (
            *point,
            _ratio(trainer, ours[0], "train_ms"),
            _ratio(runner, ours[0], "forward_ms"),
            _ratio(trainer, ours[0], "peak_mib"),
        )


def _ratio(peer: Row, ours: Row, field: str) -> str:
    return f"{peer[field] / ours[field]:.1f}× ({peer['implementation']})"


def number(value: float | None) -> str:
    """Three digits or all of the integer part, whichever is more; empty for None."""
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def markdown(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    cells = [tuple(header), *(tuple(str(cell) for cell in row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(header))]
    padded = [
        [cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in cells
    ]
    lines = ["| " + " | ".join(line) + " |" for line in padded]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join((lines[0], rule, *lines[1:]))
