"""MATLAB's files, compared with scipy's reading of them."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.io import loadmat, savemat

from einet.data.images import matlab

TYPES = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"]


@settings(max_examples=60)
@given(st.data(), st.booleans())
def test_arrays_are_those_that_scipy_reads(tmp_path_factory, data: st.DataObject, compress: bool):
    path = tmp_path_factory.mktemp("mat") / "a.mat"
    shapes = arrays.array_shapes(min_dims=2, max_dims=4, max_side=5)
    numbers = arrays.arrays(data.draw(st.sampled_from(TYPES)), data.draw(shapes))
    content = {name: data.draw(numbers) for name in ("X", "a_longer_name", "y")}
    savemat(path, content, do_compression=compress)
    found = matlab.variables(path, ["X", "y", "other"])
    assert found.keys() == {"X", "y"}
    expected = loadmat(path)
    for name, variable in found.items():
        assert variable.shape == expected[name].shape
        read = matlab.read(path, variable)
        assert read.dtype == expected[name].dtype
        np.testing.assert_array_equal(read, expected[name])


def test_the_other_byte_order(tmp_path: Path):
    little, big = tmp_path / "little.mat", tmp_path / "big.mat"
    savemat(little, {"X": np.arange(6, dtype="u1").reshape(2, 3)})
    content = little.read_bytes()
    # The flags, sizes, name and numbers of a single small matrix, word by word.
    words = np.frombuffer(content[128:], "<u4").astype(">u4").tobytes()
    place = content.index(b"X\0\0\0", 128) - 128
    numbers = content.index(bytes([0, 3, 1, 4, 2, 5]), 128) - 128
    for at, size in ((place, 4), (numbers, 8)):
        words = words[:at] + content[128 + at : 128 + at + size] + words[at + size :]
    big.write_bytes(content[:124] + b"\x01\x00MI" + words)
    variable = matlab.variables(big, ["X"])["X"]
    assert matlab.read(big, variable).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_what_is_no_array_of_numbers_is_known_as_such(tmp_path: Path):
    path = tmp_path / "a.mat"
    savemat(path, {"s": {"a": 1}, "t": "text", "z": np.array([[1j, 2]]), "b": np.eye(2)})
    found = matlab.variables(path, ["s", "t", "z", "b"])
    assert {name: variable.is_numeric for name, variable in found.items()} == {
        "s": False, "t": False, "z": True, "b": True,
    }  # fmt: skip
    for name in "stz":
        with pytest.raises(ValueError, match=r"a\.mat is no intact MATLAB file .*real numbers"):
            matlab.read(path, found[name])


@pytest.mark.parametrize("compress", [False, True])
def test_no_cut_is_accepted(tmp_path: Path, compress: bool):
    path = tmp_path / "a.mat"
    savemat(path, {"X": np.arange(20, dtype="u1").reshape(4, 5)}, do_compression=compress)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        try:
            found = matlab.variables(path, ["X"])
            if found:
                matlab.read(path, found["X"])
        except ValueError as error:
            said = str(error)
        else:
            said = ""
            # A file that ends between variables has fewer of them.
            assert length == 128
        assert length == 128 or "a.mat is no intact MATLAB file" in said


def test_a_changed_bit_in_compressed_numbers_is_noticed(tmp_path: Path):
    path = tmp_path / "a.mat"
    savemat(path, {"X": np.arange(200, dtype="u1").reshape(20, 10)}, do_compression=True)
    whole = path.read_bytes()
    for place in range(150, len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        try:
            found = matlab.variables(path, ["X"])
        except ValueError:
            continue
        # Its name alone may be another.
        if "X" in found:
            with pytest.raises(ValueError, match=r"a\.mat is no intact MATLAB file"):
                matlab.read(path, found["X"])
