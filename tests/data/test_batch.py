"""What may be given as data, and what is said of anything else."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from einet.data.batch import Batch, as_batch

NAN = math.nan

TABLE = [[0, 1], [1, 1], [1, 0]]

NUMBERS = {
    "list": TABLE,
    "tuple of rows": tuple(map(tuple, TABLE)),
    "float64": np.array(TABLE, dtype=np.float64),
    "big-endian": np.array(TABLE, dtype=">f4"),
    "int8": np.array(TABLE, dtype=np.int8),
    "uint8": np.array(TABLE, dtype=np.uint8),
    "uint16": np.array(TABLE, dtype=np.uint16),
    "uint64": np.array(TABLE, dtype=np.uint64),
    "bool": np.array(TABLE, dtype=bool),
    "objects": np.array(TABLE, dtype=object),
    "reversed view": np.array(TABLE)[:, ::-1][:, ::-1],
    "read-only": np.broadcast_to(np.array(TABLE), (3, 2)),
    "frame": pd.DataFrame(TABLE),
    "frame of several types": pd.DataFrame({"a": [False, True, True], "b": [1.0, 1, 0]}),
    "nullable frame": pd.DataFrame(TABLE, dtype="Int64"),
    "nullable booleans": pd.DataFrame(TABLE).astype("boolean"),
    "tensor": torch.tensor(TABLE, dtype=torch.float32),
    "half": torch.tensor(TABLE, dtype=torch.float16),
    "integer tensor": torch.tensor(TABLE),
    "byte tensor": torch.tensor(TABLE, dtype=torch.uint8),
    "wide unsigned tensor": torch.tensor(TABLE, dtype=torch.uint16),
    "boolean tensor": torch.tensor(TABLE, dtype=torch.bool),
    "transposed tensor": torch.tensor(TABLE).T.contiguous().T,
    "tensor with a gradient": torch.tensor(TABLE, dtype=torch.float32, requires_grad=True),
}


@pytest.mark.parametrize("x", NUMBERS.values(), ids=NUMBERS.keys())
def test_any_array_of_numbers_is_data(x):
    batch = as_batch(x, 2)
    assert batch.x.double().tolist() == TABLE
    assert batch.observed is None
    assert batch.mask.all()
    assert len(batch) == 3
    assert not batch.x.requires_grad


def test_integers_keep_their_size():
    assert as_batch(np.zeros((2, 3), dtype=np.uint8), 3).x.dtype == torch.uint8
    assert as_batch(np.zeros((2, 3), dtype=np.int16), 3).x.dtype == torch.int16


@pytest.mark.parametrize(
    "x",
    [
        [[1.0, NAN], [NAN, 0.0]],
        [[1, None], [None, 0]],
        np.array([[1, NAN], [NAN, 0]]),
        torch.tensor([[1, NAN], [NAN, 0]]),
        pd.DataFrame({"a": [1.0, None], "b": [None, 0.0]}),
        pd.DataFrame({"a": [1, None], "b": [None, 0]}, dtype="Int64"),
        pd.DataFrame({"a": [1, None], "b": [None, False]}, dtype="object"),
    ],
    ids=["list", "None", "array", "tensor", "frame", "nullable frame", "frame of objects"],
)
def test_missing_is_found(x):
    batch = as_batch(x, 2)
    assert batch.mask.tolist() == [[True, False], [False, True]]
    assert batch.x[0, 0] == 1
    assert batch.x[1, 1] == 0


def test_mask_and_nan_add_up():
    mask = [[True, True], [False, True]]
    assert as_batch([[1.0, NAN], [1.0, 0.0]], 2, mask).mask.tolist() == [[1, 0], [0, 1]]
    assert as_batch([[1, 5], [1, 0]], 2, np.array(mask)).mask.tolist() == mask
    assert as_batch([[1, 5]], 2, torch.tensor([[True, True]])).observed is None


def test_slices_rows_and_conversion():
    batch = as_batch([[1.0, NAN], [2.0, 3.0], [4.0, 5.0]], 2)
    assert batch[1:].x.tolist() == [[2, 3], [4, 5]]
    assert batch[torch.tensor([1, 1])].mask.tolist() == [[True, True], [True, True]]
    assert batch.double().x.dtype == torch.float64
    moved = batch.to(torch.device("cpu"))
    assert isinstance(moved, Batch)
    assert moved.mask.equal(batch.mask)


def full_batch() -> Batch:
    x = [[1.0, NAN], [2.0, 3.0], [4.0, 5.0]]
    return as_batch(x, 2, labels=[0, -1, 1], weights=[1, 0, 2.5], num_classes=2)


def test_labels_and_weights_belong_to_the_rows():
    batch = full_batch()
    assert batch.labels is not None
    assert batch.weights is not None
    assert (batch.labels.dtype, batch.weights.dtype) == (torch.int64, torch.float64)
    for rows, expected in (
        (slice(1, None), ([-1, 1], [0, 2.5])),
        (torch.tensor([2, 0]), ([1, 0], [2.5, 1])),
        (torch.tensor([True, False, True]), ([0, 1], [1, 2.5])),
    ):
        some = batch[rows].to(torch.device("cpu")).double()
        assert some.x.dtype == torch.float64
        assert some.labels is not None
        assert some.weights is not None
        assert (some.labels.tolist(), some.weights.tolist()) == expected
    twice = batch.map(lambda tensor: torch.cat([tensor, tensor]))
    assert len(twice) == 6
    assert twice.labels is not None
    assert twice.labels.tolist() == [0, -1, 1] * 2
    assert batch.cells.labels is batch.cells.weights is None
    assert batch.cells.x is batch.x
    assert batch.nbytes == 3 * 2 * (8 + 1) + 3 * 8 + 3 * 8
    assert Batch(torch.zeros(3, 2)).nbytes == 24


def test_a_batch_has_been_checked_before():
    batch = full_batch()
    same = as_batch(batch, 2, device=torch.device("cpu"), allow_empty=False)
    for name in ("x", "observed", "labels", "weights"):
        assert getattr(same, name) is getattr(batch, name)
    # What it holds is not looked at again.
    nan = Batch(torch.full((1, 2), NAN))
    assert as_batch(nan, 2).observed is None
    with pytest.raises(ValueError, match=r"x must have shape \[rows, 3\].*got \[3, 2\]"):
        as_batch(batch, 3)
    with pytest.raises(ValueError, match="x must have at least one row"):
        as_batch(batch[:0], 2, allow_empty=False)


@pytest.mark.parametrize("name", ["observed", "labels", "weights"])
def test_a_batch_holds_its_own(name):
    batch = full_batch()
    with pytest.raises(ValueError, match=f"{name} is given, but data is a Batch with its own"):
        as_batch(batch, 2, name="data", **{name: getattr(batch, name)})


def test_labels_and_weights_are_checked_with_the_data():
    x = [[1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(ValueError, match="^valid_labels must lie between 0 and 0"):
        as_batch(x, 2, labels=[0, 1], prefix="valid_")
    with pytest.raises(ValueError, match=r"^weights must have shape \[2\]"):
        as_batch(x, 2, weights=[1.0])
    with pytest.raises(TypeError, match="^valid_observed must be boolean"):
        as_batch(x, 2, x, name="valid", prefix="valid_")


@pytest.mark.gpu
def test_data_on_a_gpu_are_not_waited_for():
    x = torch.tensor([[1.0, NAN], [2.0, 3.0]], device="cuda")
    mask = torch.tensor([[True, True], [True, False]], device="cuda")
    batch = Batch(x, mask, mask[:, 0].long(), x[:, 0].double())
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = [as_batch(x, 2), as_batch(x[1:], 2), as_batch(x.to(torch.uint8), 2, mask)]
        assert as_batch(batch, 2, device=x.device).weights is batch.weights
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert [part.mask.tolist() for part in found] == [[[1, 0], [1, 1]], [[1, 1]], [[1, 1], [1, 0]]]


def test_data_are_not_copied_or_changed():
    x = torch.tensor([[1.0, NAN]])
    before = x.clone()
    assert as_batch(x, 2).x.data_ptr() == x.data_ptr()
    torch.testing.assert_close(x, before, equal_nan=True)


def test_empty_data():
    assert len(as_batch(torch.empty(0, 2), 2)) == 0
    with pytest.raises(ValueError, match="data must have at least one row"):
        as_batch(torch.empty(0, 2), 2, name="data", allow_empty=False)


@pytest.mark.parametrize(
    ("x", "kind", "message"),
    [
        ([["a", "b"]], TypeError, "x must be an array of numbers.*got list"),
        (np.array([["a", "b"]]), TypeError, "x must be an array of numbers.*ndarray of <U1"),
        (pd.DataFrame({"a": ["u"], "b": [1]}), TypeError, "x must be an array of numbers"),
        ("data.csv", TypeError, "x must be an array of numbers.*got str"),
        ([[1, 2], [3]], TypeError, "x must be an array of numbers"),
        (np.array([[1j, 2]]), TypeError, "x must be an array of numbers.*complex128"),
        (torch.tensor([[1j, 2]]), TypeError, "x must hold real numbers"),
        (np.array([["2020-01-01"] * 2], dtype="datetime64[D]"), TypeError, "x must be an array"),
        ({"a": 1}, TypeError, "x must be an array of numbers.*dict"),
        ([[1.0, 2.0, 3.0]], ValueError, r"x must have shape \[rows, 2\].*got \[1, 3\]"),
        ([1.0, 2.0], ValueError, r"x must have shape.*got \[2\]"),
        (torch.zeros(1, 1, 2), ValueError, r"x must have shape.*got \[1, 1, 2\]"),
        ([], ValueError, r"x must have shape.*got \[0\]"),
        (3.0, ValueError, r"x must have shape.*got \["),
    ],
)
def test_bad_data_are_named(x, kind, message):
    with pytest.raises(kind, match=message):
        as_batch(x, 2)


@pytest.mark.parametrize(
    ("mask", "kind", "message"),
    [
        ([[1, 0]], TypeError, "observed must be boolean, got torch.int64"),
        ([[1.0, 0.0]], TypeError, "observed must be boolean"),
        ([["yes", "no"]], TypeError, "observed must be an array"),
        ([True, False], ValueError, r"observed must have the shape of x, \[1, 2\], got \[2\]"),
        ([[True]], ValueError, "observed must have the shape of x"),
        ([[True, True]] * 2, ValueError, "observed must have the shape of x"),
    ],
)
def test_bad_masks_are_named(mask, kind, message):
    with pytest.raises(kind, match=message):
        as_batch([[1.0, 2.0]], 2, mask)


def test_masks_hide_cells_whoever_holds_them():
    hidden = np.ma.masked_greater(np.array([[1, 999], [999, 0]]), 9)
    for x in (hidden, hidden.astype(np.float32)):
        batch = as_batch(x, 2, [[True, True], [True, False]])
        assert batch.mask.tolist() == [[True, False], [False, False]]
    with pytest.raises(ValueError, match="observed must be True or False in every cell"):
        as_batch([[1.0, 2.0]], 2, np.ma.array([[True, True]], mask=[[False, True]]))
    nullable = pd.DataFrame({"a": [True, None]}, dtype="boolean")
    with pytest.raises(ValueError, match="observed must be True or False in every cell"):
        as_batch([[1.0], [2.0]], 1, nullable)
    assert as_batch([[1.0], [2.0]], 1, nullable[:1].reindex([0, 0])).observed is None


class TestColumns:
    """Tables are put in the order of the names that are wanted; arrays go by position."""

    FRAME = pd.DataFrame({"b": [1, 2], "a": [3, 4]})

    def test_by_name(self):
        batch = as_batch(self.FRAME, 2, columns=("a", "b"))
        assert batch.x.tolist() == [[3, 1], [4, 2]]
        assert batch.columns == ("a", "b")
        assert as_batch(self.FRAME, 2).columns == ("b", "a")
        assert as_batch(self.FRAME.to_numpy(), 2, columns=("a", "b")).x.tolist() == [[1, 3], [2, 4]]
        assert as_batch(pd.DataFrame([[1, 2]]), 2, columns=("a", "b")).x.tolist() == [[1, 2]]

    def test_a_mask_is_matched_too(self):
        mask = pd.DataFrame({"a": [True, False], "b": [True, True]})
        batch = as_batch(self.FRAME, 2, mask)
        assert batch.mask.tolist() == [[True, True], [True, False]]
        batch = as_batch([[3, 1], [4, 2]], 2, mask[["b", "a"]], columns=("a", "b"))
        assert batch.mask.tolist() == [[True, True], [False, True]]
        with pytest.raises(ValueError, match="^observed must have the 2 columns.*'c' unknown"):
            as_batch(self.FRAME, 2, mask.rename(columns={"a": "c"}))

    def test_a_batch_remembers_whose_columns_it_has(self):
        batch = as_batch(self.FRAME, 2, [[True, False], [True, True]])
        again = as_batch(batch[1:], 2, columns=("a", "b"))
        assert again.x.tolist() == [[4, 2]]
        again = as_batch(batch, 2, columns=("a", "b"))
        assert again.mask.tolist() == [[False, True], [True, True]]
        assert again.columns == ("a", "b")
        with pytest.raises(ValueError, match="x must have the 2 columns of the model"):
            as_batch(batch, 2, columns=("a", "c"))

    def test_faults_are_named(self):
        wide = self.FRAME.assign(c=0)
        with pytest.raises(ValueError, match="^data must have the 2 columns.*got 'c' unknown$"):
            as_batch(wide, 2, columns=("a", "b"), name="data")
        with pytest.raises(ValueError, match="got 'd' missing and 'c' unknown"):
            as_batch(wide, 3, columns=("d", "a", "b"))
        with pytest.raises(
            ValueError, match="x must have distinct columns, got 'a' more than once"
        ):
            as_batch(self.FRAME[["a", "a"]], 2)


def test_any_number_of_columns():
    assert as_batch([[1, 2, 3]], None).x.shape == (1, 3)
    for x in ([1.0], np.empty((3, 0))):
        with pytest.raises(ValueError, match=r"x must have shape \[rows, variables\], got"):
            as_batch(x, None)


def test_some_row_must_count():
    assert len(as_batch([[1.0]], 1, weights=[0.0])) == 1
    with pytest.raises(ValueError, match="valid_weights must not be 0 throughout"):
        as_batch([[1.0]], 1, weights=[0.0], allow_empty=False, prefix="valid_")


def overwrite(source) -> None:
    """Change what was given, as its owner may."""
    for tensor in (source.x, source.observed, source.labels) if isinstance(source, Batch) else ():
        if tensor is not None:
            tensor.zero_()
    if isinstance(source, torch.Tensor):
        source.zero_()
    if isinstance(source, np.ndarray):
        source[:] = 0
    if isinstance(source, pd.DataFrame):
        source.iloc[:, :] = 0


class TestOwnership:
    """With ``own`` no tensor lies in memory that was given; fresh ones are not copied again."""

    @pytest.mark.parametrize(
        "x",
        [
            torch.ones(3, 2),
            torch.ones(3, 2, dtype=torch.int32),
            torch.ones(3, 4)[:, ::2],
            torch.ones(2, 3).T,
            torch.ones(3, 2, dtype=torch.uint16),
            torch.ones(3, 2, dtype=torch.bool),
            np.ones((3, 2)),
            np.ones((3, 2), dtype=np.uint16),
            np.ones((6, 2))[::2],
            pd.DataFrame(np.ones((3, 2))),
            Batch(torch.ones(3, 2)),
        ],
        ids=repr,
    )
    def test_the_owner_changes_the_data(self, x):
        batch = as_batch(x, 2, own=True)
        overwrite(x)
        assert (batch.x == 1).all()

    def test_masks_and_labels(self):
        mask, labels = torch.tensor([[True, False]]), torch.tensor([1])
        integers = torch.ones(1, 2, dtype=torch.long)
        batch = as_batch(integers, 2, mask, labels=labels, num_classes=2, own=True)
        given = as_batch(Batch(integers, mask, labels), 2, own=True)
        overwrite(Batch(integers, mask, labels))
        for own in (batch, given):
            assert own.observed is not None
            assert own.labels is not None
            assert own.observed.tolist() == [[True, False]]
            assert own.labels.tolist() == [1]

    @pytest.mark.parametrize(
        "x",
        [
            [[1.0, 2.0]],
            torch.ones(3, 2, dtype=torch.bool),
            np.ones((3, 2), dtype=np.uint16),
            pd.DataFrame(np.ones((3, 2)), dtype=object),
        ],
        ids=repr,
    )
    def test_fresh_tensors_are_not_copied(self, x, monkeypatch):
        def fail(tensor):
            raise AssertionError("copied again")

        monkeypatch.setattr(torch.Tensor, "clone", fail)
        as_batch(x, 2, own=True)
