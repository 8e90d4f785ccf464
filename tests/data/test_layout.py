"""The layout is that of safetensors, and whatever does not account for every byte is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from einet.data.files import FormatError, read_tensors, write_tensors
from einet.data.layout import arrange, octets, parse

TENSORS = {
    "wide": torch.arange(6, dtype=torch.float64).reshape(2, 3),
    "float": torch.tensor([[1.5], [float("nan")]]),
    "half": torch.tensor([0.1, -2.0]).half(),
    "brain": torch.tensor([0.1, -2.0]).bfloat16(),
    "scalar": torch.tensor(7, dtype=torch.int32),
    "none": torch.empty(0, 4, dtype=torch.int16),
    "truth": torch.tensor([True, False, True]),
    "bytes": torch.arange(5, dtype=torch.uint8),
    'names with "signs" and ä': torch.tensor([-1, 2**62]),
}


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    alike = (one.dtype, one.shape) == (other.dtype, other.shape)
    return alike and octets(one.contiguous()) == octets(other.contiguous())


def test_the_package_reads_what_is_written(tmp_path: Path):
    write_tensors(tmp_path / "a", TENSORS, "mine", {"x": "ä"})
    read = load_file(tmp_path / "a")
    assert read.keys() == TENSORS.keys()
    assert all(same(read[name], TENSORS[name]) for name in TENSORS)
    with safe_open(tmp_path / "a", "pt") as file:
        assert json.loads(file.metadata()["mine"])["x"] == "ä"
    header, again = read_tensors(tmp_path / "a", "mine")
    assert header["x"] == "ä"
    assert again.keys() == TENSORS.keys()
    assert all(same(again[name], TENSORS[name]) for name in TENSORS)


def test_types_that_no_file_holds():
    with pytest.raises(ValueError, match=r"strange is of torch.complex64, which no file can hold"):
        arrange({"strange": torch.zeros(2, dtype=torch.complex64)}, {})


def table(**changes: Any) -> dict[str, Any]:
    entry = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24], **changes}
    return {"a": entry, "b": {"dtype": "U8", "shape": [], "data_offsets": [24, 25]}}


BROKEN: list[tuple[Any, str]] = [
    (table(shape=[2, 4]), "24 bytes in the file"),
    (table(shape=[2, -3]), "no tensor here has"),
    (table(shape=[2.0, 3]), "no tensor here has"),
    (table(shape=[True, 6]), "no tensor here has"),
    (table(shape=[1] * 17), "no tensor here has"),
    (table(shape=[2**64, 3]), "no tensor here has"),
    (table(shape=6), "no tensor here has"),
    (table(shape=[1000] * 10), "24 bytes in the file"),
    (table(dtype="F33"), "has the type 'F33'"),
    (table(dtype=["F32"]), "has the type"),
    (table(data_offsets=[0, 2**63]), "not in the file"),
    (table(data_offsets=[24, 0]), "-24 bytes"),
    (table(data_offsets=[0, 24, 25]), "not in the file"),
    (table(data_offsets=[1, 25]), "must begin where the tensor before ends"),
    (table(shape=[6], data_offsets=[0, 24], more=1), "must have a dtype, a shape and data_offsets"),
    ({**table(), "b": None}, "must have a dtype"),
    ({"a": table()["a"]}, "must hold 24 bytes of tensors, got 25"),
    ({**table(), "c": {"dtype": "U8", "shape": [], "data_offsets": [23, 24]}}, "must begin where"),
    ({**table(), "__metadata__": {"x": 1}}, "metadata must be texts"),
    ({**table(), "__metadata__": []}, "metadata must be texts"),
    ([table()], "no safetensors file"),
]


@pytest.mark.parametrize(("content", "message"), BROKEN, ids=str)
def test_headers_that_do_not_account_for_the_file(content: Any, message: str):
    assert parse(json.dumps(table()).encode(), 25)[1].keys() == {"a", "b"}
    with pytest.raises(FormatError, match=message):
        parse(json.dumps(content).encode(), 25)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{" + b'"a":{' * 100_000, "no JSON"),
        (b'{"a":' + b"[" * 100_000, "no JSON"),
        (b'{"a":' + b"9" * 10_000 + b"}", "no JSON"),
        (b'{"a":1,"a":1}', "'a' more than once"),
        (b'{"a":{"dtype":"U8","dtype":"U8"}}', "'dtype' more than once"),
        (b'{"\xff":1}', "no JSON"),
        ("{}".encode("utf-16-le"), "no JSON"),
        (b'{"a":[' + b"0," * 2_000_000 + b"0]}", "1,500,000 values at most"),
        (b'{"a":"' + b"x" * 101_000_000 + b'"}', "100,000,000 bytes"),
        (b"", "no safetensors file"),
    ],
    ids=["objects", "lists", "digits", "twice", "twice inside", "UTF-8", "UTF-16", "values",
         "bytes", "nothing"],
)  # fmt: skip
def test_texts_that_are_no_header(text: bytes, message: str):
    with pytest.raises(FormatError, match=message):
        parse(text, 25)
