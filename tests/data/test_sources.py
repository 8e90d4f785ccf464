"""Training from files, memory maps and datasets, of which not all rows are in memory."""

from __future__ import annotations

import threading
from itertools import pairwise

import numpy as np
import pyarrow
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import einet
from einet._memory import BUDGETS, Budget
from einet.data.batch import Batch
from einet.data.file_rows import FileRows
from einet.data.read_ahead import read_ahead
from einet.data.shuffling import cut_into, shuffled_into

CPU = torch.device("cpu")
NAMES = ["a", "b", "c", "d"]


def rows_of(count: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    hidden = generator.integers(0, 2, (count, 1))
    return (generator.random((count, 4)) < 0.2 + 0.6 * hidden).astype(np.uint8)


def table_of(x: np.ndarray, **more) -> pyarrow.Table:
    columns = {name: x[:, number] for number, name in enumerate(NAMES)}
    return pyarrow.table({**columns, **more})


@pytest.fixture
def file(tmp_path):
    x = rows_of(1000)
    pyarrow.parquet.write_table(table_of(x), tmp_path / "rows.parquet", row_group_size=130)
    return tmp_path / "rows.parquet", x


def model_of(sums: int = 3, classes: int = 1) -> einet.Einet:
    graph = einet.random_trees(4, depth=2, replicas=2)
    return einet.Einet(graph, einet.Bernoulli(), sums, num_classes=classes).double()


def numbers(model) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def numbered(count: int) -> Batch:
    return Batch(torch.arange(float(count)).view(count, 1))


# -- shuffling -------------------------------------------------------------------------------------


@given(
    parts=st.lists(st.integers(0, 30), min_size=1, max_size=12),
    most=st.integers(1, 20),
    room=st.integers(1, 60),
    seed=st.integers(0, 100),
)
@settings(max_examples=30, deadline=None)
def test_every_row_comes_once_in_batches_of_the_sizes_asked_for(parts, most, room, seed):
    rows = sum(parts)
    sizes = [most] * (rows // most) + ([rows % most] if rows % most else [])
    ends = np.cumsum([0, *parts])
    held = [numbered(rows)[int(a) : int(b)] for a, b in pairwise(ends)]
    ordered = list(cut_into(iter(held), sizes))
    assert [len(batch) for batch in ordered] == sizes
    assert [v for batch in ordered for v in batch.x.flatten().tolist()] == list(range(rows))
    for _ in range(2):
        generator = torch.Generator().manual_seed(seed)
        drawn = list(shuffled_into(iter(held), sizes, room, generator))
        assert [len(batch) for batch in drawn] == sizes
        values = [v for batch in drawn for v in batch.x.flatten().tolist()]
        assert sorted(values) == list(range(rows))


def test_a_buffer_holds_no_more_rows_than_it_may():
    taken, handed_out = 0, 0
    most_held = 0

    def parts():
        nonlocal taken, most_held
        for _ in range(200):
            taken += 10
            most_held = max(most_held, taken - handed_out)
            yield numbered(10)

    for batch in shuffled_into(parts(), [25] * 80, 200, torch.Generator().manual_seed(0)):
        handed_out += len(batch)
    assert handed_out == 2000
    assert most_held <= 200 + 10 + 25


def test_rows_travel_far_in_a_buffer():
    parts = (numbered(1000)[start : start + 10] for start in range(0, 1000, 10))
    drawn = shuffled_into(parts, [10] * 100, 400, torch.Generator().manual_seed(1))
    values = torch.cat([batch.x.flatten() for batch in drawn])
    # Chance alone would give 333.
    assert (values - torch.arange(1000)).abs().mean() > 60
    assert not torch.equal(values[:10].sort().values, torch.arange(10.0))


def test_a_source_with_fewer_rows_than_it_said_is_refused():
    with pytest.raises(ValueError, match="2 rows fewer"):
        list(cut_into([numbered(3)], [5]))


def test_reading_ahead_keeps_the_order_and_tells_of_errors_in_their_turn():
    def parts():
        yield from range(5)
        raise RuntimeError("the disk is gone")

    ahead = read_ahead(parts())
    assert [next(ahead) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="the disk is gone"):
        next(ahead)


def test_nobody_goes_on_reading_for_a_reader_that_has_gone():
    before, ended = threading.active_count(), threading.Event()

    def parts():
        try:
            number = 0
            while True:
                yield number
                number += 1
        finally:
            ended.set()

    ahead = read_ahead(parts())
    assert next(ahead) == 0
    ahead.close()
    assert ended.wait(5)
    assert threading.active_count() == before


# -- Parquet and Arrow -----------------------------------------------------------------------------


def test_full_batch_em_from_a_file_equals_that_from_memory(file):
    path, x = file
    one, other = model_of(), model_of()
    other.load_state_dict(one.state_dict())
    options = {"epochs": 4, "optimizer": einet.EM(), "initialize": False, "progress": False}
    einet.fit(one, torch.from_numpy(x), batch_size=1000, **options)
    einet.fit(other, path, batch_size=128, **options)
    for a, b in zip(numbers(one), numbers(other), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    assert other.columns == tuple(NAMES)


def test_stochastic_em_from_a_file_learns_as_from_memory_and_repeats(file):
    path, x = file
    results = []
    for source in (path, path, torch.from_numpy(x)):
        model = model_of()
        einet.fit(model, source, path, epochs=5, batch_size=100, seed=3, progress=False)
        results.append(float(model.log_prob(x).mean()))
    assert results[0] == results[1]
    assert results[0] == pytest.approx(results[2], abs=0.02)


@pytest.mark.parametrize("kind", ["folder", "feather", "npy", "memory map", "dataset"])
def test_all_rows_come_from_every_kind_of_source(tmp_path, kind):
    x = rows_of(300)
    if kind == "folder":
        source = tmp_path / "folder"
        (source / "more").mkdir(parents=True)
        pyarrow.parquet.write_table(table_of(x[:100]), source / "0.parquet")
        pyarrow.parquet.write_table(table_of(x[100:]), source / "more" / "1.parquet")
        (source / "_SUCCESS").touch()
    elif kind == "feather":
        source = tmp_path / "rows.feather"
        pyarrow.feather.write_feather(table_of(x), source)
    elif kind == "dataset":
        source = TensorDataset(torch.from_numpy(x))
    else:
        np.save(tmp_path / "rows.npy", x)
        source = tmp_path / "rows.npy"
        if kind == "memory map":
            source = np.load(source, mmap_mode="r")
    one, other = model_of(), model_of()
    other.load_state_dict(one.state_dict())
    options = {"epochs": 2, "optimizer": einet.EM(), "initialize": False, "progress": False}
    einet.fit(one, x, batch_size=300, **options)
    einet.fit(other, source, batch_size=64, **options)
    for a, b in zip(numbers(one), numbers(other), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_an_iterable_dataset_yields_batches_of_the_size_asked_for():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(torch.from_numpy(rows_of(200)))

    history = einet.fit(model_of(), Stream(), epochs=2, batch_size=50, progress=False)
    assert len(history) == 2


def test_nulls_labels_and_weights_come_from_columns(tmp_path):
    x = rows_of(400).astype(float)
    x[::7, 1] = np.nan
    labels, weights = (x[:, 0] > 0).astype(np.int64), np.arange(400) % 3
    columns = {
        name: pyarrow.array(x[:, number], from_pandas=True) for number, name in enumerate(NAMES)
    }
    table = pyarrow.table({"class": labels, **columns, "count": weights})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet", row_group_size=64)
    one, other = model_of(classes=2), model_of(classes=2)
    other.load_state_dict(one.state_dict())
    options = {"epochs": 2, "optimizer": einet.EM(), "initialize": False, "progress": False}
    einet.fit(one, x, labels=labels, weights=weights, **options)
    path = tmp_path / "t.parquet"
    einet.fit(other, path, labels="class", weights="count", batch_size=50, **options)
    for a, b in zip(numbers(one), numbers(other), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_a_bounded_part_of_a_file_is_in_memory(tmp_path, monkeypatch):
    monkeypatch.setitem(BUDGETS, "shuffled rows", Budget(16 * 100, 16 * 100))
    monkeypatch.setitem(BUDGETS, "read rows", Budget(32 * 20, 32 * 20))
    most = {}
    for count in (2000, 20_000):
        path = tmp_path / f"{count}.parquet"
        pyarrow.parquet.write_table(table_of(rows_of(count)), path, row_group_size=count // 2)
        rows = FileRows(path, 4, 1, CPU)
        read = out = 0
        held = []
        original = rows._batch

        def batch(given, columns, original=original):
            nonlocal read
            read += given.num_rows
            return original(given, columns)

        monkeypatch.setattr(rows, "_batch", batch)
        for part in rows.mini_batches(10, torch.Generator().manual_seed(0)):
            out += len(part)
            held.append(read - out)
        assert out == count
        most[count] = max(held)
    assert most[20_000] <= most[2000] + 40
    assert most[20_000] < 400


def test_a_sample_of_a_file_reads_little_more_than_it_holds(tmp_path, monkeypatch):
    """However large the file is: first leaves and structures come from such samples."""
    path = tmp_path / "many.parquet"
    pyarrow.parquet.write_table(table_of(rows_of(5000)), path, row_group_size=50)
    rows, read = FileRows(path, 4, 1, CPU), []
    whole = type(rows._files).read

    def counted(self, unit):
        for batch in whole(self, unit):
            read.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(type(rows._files), "read", counted)
    assert len(rows.some(200, torch.Generator().manual_seed(0))) == 200
    # Four row groups, and those that a thread may have read ahead meanwhile.
    assert sum(read) <= 200 + 4 * 50


@pytest.mark.parametrize("room", [300, 5000])
def test_rows_for_first_leaves_are_read_once_for_the_first_epoch(file, monkeypatch, room):
    monkeypatch.setitem(BUDGETS, "shuffled rows", Budget(16 * room, 16 * room))
    path, x = file
    rows, read = FileRows(path, 4, 1, CPU), []
    monkeypatch.setattr(rows, "_batch", lambda *given: read.append(given[0]) or whole(*given))
    whole = type(rows)._batch.__get__(rows)
    generators = [torch.Generator().manual_seed(seed) for seed in (1, 2, 2, 2)]
    first = rows.first(100, generators[0], generators[1])
    # From all rows of the buffer, not from its first ones alone.
    assert len(first) == 100
    assert sum(part.num_rows for part in read) < room + 130
    begun, anew = (list(rows.mini_batches(70, generator)) for generator in generators[2:])
    assert sum(part.num_rows for part in read) == 2 * len(x)
    for one, other in zip(begun, anew, strict=True):
        assert torch.equal(one.x, other.x)


def test_rows_for_first_leaves_are_given_up_where_the_epoch_has_another_order(file):
    path, x = file
    rows = FileRows(path, 4, 1, CPU)
    rows.first(100, torch.Generator(), torch.Generator().manual_seed(0))
    drawn = torch.cat([b.x for b in rows.mini_batches(70, torch.Generator().manual_seed(5))])
    assert rows._begun is None
    assert np.array_equal(drawn.sum(0).numpy(), x.sum(0))


def test_shards_of_a_file_make_up_all_of_it(file):
    path, x = file
    rows = FileRows(path, 4, 1, CPU)
    parts = [rows.part(number, 3) for number in range(3)]
    seen = [torch.cat([batch.x for batch in part]) for part in parts]
    assert sorted(map(len, seen)) == [333, 333, 334]
    assert torch.equal(torch.cat(seen), torch.from_numpy(x))
    # 100 rows of all three together.
    assert [part.steps(100) for part in parts] == [10, 10, 10]
    drawn = [list(part.mini_batches(100, torch.Generator().manual_seed(0))) for part in parts]
    assert sum(len(batch) for batches in drawn for batch in batches) == 1000


def test_structures_come_from_a_sample_of_a_file(file):
    path, x = file
    assert einet.chow_liu(path).to_arrays().keys() == einet.chow_liu(x).to_arrays().keys()
    for name, array in einet.chow_liu(x).to_arrays().items():
        assert np.array_equal(array, einet.chow_liu(path).to_arrays()[name])


def test_a_run_from_a_file_goes_on_where_it_was(file, tmp_path):
    path, _ = file
    options = {"epochs": 4, "batch_size": 100, "seed": 1, "progress": False}
    whole = model_of()
    start = {name: value.clone() for name, value in whole.state_dict().items()}
    einet.fit(whole, path, **options)
    part = model_of()
    part.load_state_dict(start)
    checkpoint = tmp_path / "run"
    stop = lambda report: report.stop() if report.epoch == 1 else None  # noqa: E731
    einet.fit(part, path, checkpoint=checkpoint, callbacks=stop, **options)
    again = model_of()
    again.load_state_dict(start)
    einet.fit(again, path, checkpoint=checkpoint, resume=True, **options)
    for a, b in zip(numbers(whole), numbers(again), strict=True):
        assert torch.equal(a, b)


# -- what is refused -------------------------------------------------------------------------------


def test_other_files_are_another_run(file, tmp_path):
    path, x = file
    run = tmp_path / "run"
    einet.fit(model_of(), path, epochs=1, checkpoint=run, progress=False)
    pyarrow.parquet.write_table(table_of(1 - x), path, row_group_size=130)
    with pytest.raises(ValueError, match="data"):
        einet.fit(model_of(), path, epochs=1, checkpoint=run, resume=True, progress=False)


def test_wrong_paths_and_columns_are_refused_by_name(file, tmp_path):
    path, x = file
    model = model_of()
    fit = lambda source, **more: einet.fit(model, source, progress=False, **more)  # noqa: E731
    with pytest.raises(FileNotFoundError, match="train: there is no file or folder"):
        fit(tmp_path / "none.parquet")
    with pytest.raises(FileNotFoundError, match=r"train: there is no file .*none\.npy"):
        fit(tmp_path / "none.npy")
    (tmp_path / "text.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"train must be a path to \.parquet.*text\.csv"):
        fit(tmp_path / "text.csv")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(ValueError, match="train cannot be read as parquet"):
        fit(tmp_path / "broken.parquet")
    (tmp_path / "broken.npy").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="train cannot be read"):
        fit(tmp_path / "broken.npy")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="has no files"):
        fit(tmp_path / "empty")
    with pytest.raises(ValueError, match="observed is given, but train is a path"):
        fit(path, observed=np.ones((1000, 4), bool))
    with pytest.raises(TypeError, match="labels must be the name of a column"):
        fit(path, labels=np.zeros(1000, int))
    with pytest.raises(ValueError, match="weights must name a column of train, got 'w'"):
        fit(path, weights="w")
    pyarrow.parquet.write_table(table_of(x, e=x[:, 0]), tmp_path / "five.parquet")
    with pytest.raises(ValueError, match=r"train must have 4 columns.*got 5"):
        fit(tmp_path / "five.parquet")
    words = table_of(x[:2]).set_column(1, "b", pyarrow.array(["x", "y"]))
    pyarrow.parquet.write_table(words, tmp_path / "words.parquet")
    with pytest.raises((TypeError, ValueError), match="'b'"):
        fit(tmp_path / "words.parquet")
    nothing = table_of(x[:0])
    pyarrow.parquet.write_table(nothing, tmp_path / "nothing.parquet")
    with pytest.raises(ValueError, match="at least one row, got none"):
        fit(tmp_path / "nothing.parquet")


def test_files_of_a_folder_that_differ_are_refused(tmp_path):
    x = rows_of(50)
    pyarrow.parquet.write_table(table_of(x), tmp_path / "0.parquet")
    pyarrow.parquet.write_table(table_of(x).rename_columns(["a", "b", "c", "z"]), tmp_path / "1.pq")
    with pytest.raises(ValueError, match=r"columns of '1\.pq' differ in 'd', 'z'"):
        einet.fit(model_of(), tmp_path, progress=False)
    wider = {name: x[:, number].astype(float) for number, name in enumerate(NAMES)}
    pyarrow.parquet.write_table(pyarrow.table(wider), tmp_path / "1.pq")
    with pytest.raises(ValueError, match=r"column 'a' of '1\.pq' is of double"):
        einet.fit(model_of(), tmp_path, progress=False)


def test_a_file_that_changes_while_it_is_learnt_from_ends_the_training(file):
    path, x = file

    def change(report):
        pyarrow.parquet.write_table(table_of(x[:500]), path)

    with pytest.raises(ValueError, match=r"train: the file 'rows\.parquet' has changed"):
        einet.fit(model_of(), path, epochs=3, callbacks=change, progress=False)


def test_a_source_that_fails_midway_leaves_the_last_checkpoint(tmp_path):
    class Failing(Dataset):
        def __init__(self):
            self.left = 10**9

        def __len__(self):
            return 200

        def __getitem__(self, number):
            self.left -= 1
            if self.left < 0:
                raise OSError("the disk is gone")
            return torch.from_numpy(rows_of(200)[number])

    data, run = Failing(), tmp_path / "run"

    def fail_later(report):
        data.left = 100 if report.epoch == 1 else data.left

    options = {"epochs": 4, "batch_size": 50, "progress": False, "checkpoint": run}
    with pytest.raises(OSError, match="the disk is gone"):
        einet.fit(model_of(), data, callbacks=fail_later, **options)
    data.left = 10**9
    model = model_of()
    history = einet.fit(model, data, resume=True, **options)
    assert len(history) == 4


def test_values_that_a_family_does_not_have_are_named(tmp_path):
    x = rows_of(200).astype(np.int64)
    x[150, 2] = 7
    pyarrow.parquet.write_table(table_of(x), tmp_path / "t.parquet", row_group_size=50)
    with pytest.raises(ValueError, match="7"):
        einet.fit(model_of(), tmp_path / "t.parquet", epochs=1, progress=False)


def test_a_dataset_without_rows_or_length_is_refused():
    class Endless(Dataset):
        def __getitem__(self, number):
            return torch.zeros(4)

    with pytest.raises(TypeError, match="a dataset with a length"):
        einet.fit(model_of(), Endless(), progress=False)
    with pytest.raises(ValueError, match="at least one row"):
        einet.fit(model_of(), TensorDataset(torch.zeros(0, 4)), progress=False)
