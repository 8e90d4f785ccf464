"""What the pages say about a CPU, for rows whose ratios are known."""

from benchmarks import cpu_text


def _row(name: str, train: float | None, forward: float = 0, memory: float = 0, **fields) -> dict:
    row = {"implementation": name, "K": 10, "batch": 500, "threads": 2, "rounds": 3}
    row |= {"train_ms": train, "forward_ms": forward, "peak_mib": memory}
    return row | {"train_ms_per_sample": train and train / 500} | fields


ROWS = [
    _row("einet", 10.0, 4.0, 50.0),
    _row("libspn", 40.0, 20.0, 200.0),
    _row("libspn-xla", 30.0, 8.0, 300.0),
    _row("spflow-em", None, note="out of memory (more than 100 MiB)", rounds=1),
]


def test_table():
    note, _, table = cpu_text.table(ROWS).partition("\n\n")
    assert note == "Medians over 3 rounds. SPFlow (EM) runs out of memory at K 10, batch 500."
    cells = [cell.strip() for cell in table.splitlines()[-1].strip("|").split("|")]
    assert cells[:5] == ["10", "500", "2", "10 / 4 / 50", "40 / 20 / 200"]
    assert cells[6:8] == ["not measured", "out of memory (more than 100 MiB)"]
    # The forward pass without XLA and, in brackets, with it; the memory of the smallest.
    assert cells[8:] == ["3.0×", "5.0× (2.0×)", "4.0×"]


def test_rounds_that_differ_are_said():
    note = cpu_text.table([*ROWS, _row("spflow-adam", 50.0, 9.0, 9.0, rounds=1)])
    assert note.startswith("Medians over 1 to 3 rounds.")


def test_scaling():
    rows = [_row("einet", 50.0, threads=1), _row("einet", 80.0, threads=1, batch=1000)]
    rows[1]["train_ms_per_sample"] = 0.08
    rows.append(_row("einet", 500.0, threads=2))
    assert cpu_text.scaling_summary(rows) == (
        "At K 10 a training step costs 0.080 to 0.100 ms for each sample on one thread, whatever "
        "the batch from 500 to 1000."
    )


def test_agreement_of_points_in_both_files():
    scaling = [_row("einet", 15.0, rounds=1), _row("einet", 99.0, batch=2000)]
    *_, line = cpu_text.agreement(ROWS, scaling).splitlines()
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == ["10", "500", "2", "10 ms (3 rounds)", "15 ms (1 round)", "1.50"]
