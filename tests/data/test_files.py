"""What is read is what was written, or is refused at once."""

import errno
import hashlib
import json
import os
import socket
import threading
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from einet.data.files import FormatError, read_header, read_tensors, write_tensors
from einet.data.layout import parse

TENSORS = {"a": torch.tensor([1.0, 2.0, 3.0]), "b": torch.arange(4).reshape(2, 2)}
HEADER = {"told": {"units": "mm", "zeros": "0" * 64}, "x": [1.5, None]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_tensors(tmp_path / "a.file", TENSORS, "mine", HEADER)
    return tmp_path / "a.file"


def test_the_checksum_as_it_is_written_down(path: Path):
    header, _ = read_tensors(path, "mine")
    checksum = header.pop("checksum")
    assert header == HEADER
    digest = hashlib.sha256()
    digest.update(b'["a", "F32", [3]]\n' + TENSORS["a"].numpy().tobytes())
    digest.update(b'["b", "I64", [2, 2]]\n' + TENSORS["b"].numpy().tobytes())
    assert checksum["tensors"] == digest.hexdigest()
    text = json.dumps({**HEADER, "checksum": {**checksum, "header": "0" * 64}})
    assert checksum["header"] == hashlib.sha256(text.encode()).hexdigest()


def test_the_order_of_tensors_changes_nothing(path: Path):
    before = path.read_bytes()
    write_tensors(path, dict(reversed(TENSORS.items())), "mine", HEADER)
    assert path.read_bytes() == before
    # Nor does a checksum that a header brings along from another file.
    write_tensors(path, TENSORS, "mine", read_header(path, "mine"))
    assert path.read_bytes() == before


@given(st.data())
def test_no_flipped_bits_get_through(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    path = tmp_path_factory.mktemp("flips") / "a.file"
    write_tensors(path, TENSORS, "mine", HEADER)
    content = bytearray(path.read_bytes())
    places = st.integers(0, 8 * len(content) - 1)
    for bit in data.draw(st.lists(places, min_size=1, max_size=3, unique=True)):
        content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    try:
        header, tensors = read_tensors(path, "mine")
    except FormatError:
        return
    if "checksum" not in header:
        # Its own name was hit: to this reader it is a file of an earlier release. Those who know
        # what fields such files had, as the reader of models does, refuse it.
        assert header.keys() - HEADER.keys()
        return
    # Only what is not read may have changed: the spaces at the header's end.
    assert all(header[name] == HEADER[name] for name in HEADER)
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_a_header_is_checked_without_the_tensors(path: Path):
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert read_header(path, "mine")["told"] == HEADER["told"]
    with pytest.raises(FormatError, match="its tensors are damaged"):
        read_tensors(path, "mine")
    path.write_bytes(content.replace(b"mm", b"cm"))
    for read in (read_header, read_tensors):
        with pytest.raises(FormatError, match="its metadata are damaged"):
            read(path, "mine")


@pytest.mark.parametrize("checksum", [None, 1, [], {}, {"header": "", "tensors": ""}], ids=str)
def test_checksums_of_the_wrong_kind(checksum: object, path: Path):
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    table = json.loads(content[8 : 8 + size])
    table["__metadata__"]["mine"] = json.dumps({**HEADER, "checksum": checksum})
    text = json.dumps(table).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])
    with pytest.raises(FormatError, match="checksum is"):
        read_header(path, "mine")


def test_other_kinds_of_files(path: Path):
    with pytest.raises(FormatError, match="einet did not write it"):
        read_tensors(path, "yours")
    for content in (b"", b"1234567", (2**63).to_bytes(8, "little") + b"{}", bytes(100)):
        path.write_bytes(content)
        with pytest.raises(FormatError, match="no safetensors file"):
            read_tensors(path, "mine")
    with pytest.raises(FileNotFoundError):
        read_tensors(path.with_name("none"), "mine")
    with pytest.raises(IsADirectoryError, match="one file"):
        read_header(path.parent, "mine")


@pytest.mark.skipif(os.name != "posix", reason="files as POSIX has them")
def test_what_would_have_to_be_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    with socket.socket(socket.AF_UNIX) as server:
        # The names of sockets are short.
        where = os.getcwd()
        os.chdir(tmp_path)
        try:
            server.bind("socket")
        finally:
            os.chdir(where)
        for name in ("pipe", "link", "socket", "/dev/null", "/dev/zero"):
            for read in (read_header, read_tensors):
                with pytest.raises(FormatError, match="no plain file"):
                    read(tmp_path / name, "mine")


def test_a_file_that_shrinks_while_it_is_read(path: Path, monkeypatch: pytest.MonkeyPatch):
    write_tensors(path, {"long": torch.zeros(100_000)}, "mine", {})

    def parse_and_shrink(*arguments):
        os.truncate(path, 1000)
        return parse(*arguments)

    monkeypatch.setattr("einet.data.files.parse", parse_and_shrink)
    with pytest.raises(FormatError, match="became shorter while it was read"):
        read_tensors(path, "mine")


def test_the_same_file_from_many_threads(path: Path):
    failures = []

    def work(number: int) -> None:
        try:
            for _ in range(10):
                write_tensors(path, {"x": torch.full((50,), number)}, "mine", {"n": number})
                header, tensors = read_tensors(path, "mine")
                assert (tensors["x"] == header["n"]).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_what_is_neither_true_nor_false(path: Path):
    text = b'{"__metadata__":{"mine":"{}"},"x":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}}'
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\x01\x00")
    assert read_tensors(path, "mine")[1]["x"].tolist() == [True, False]
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\x01\x02")
    with pytest.raises(FormatError, match="'x' must hold 0 and 1"):
        read_tensors(path, "mine")


def test_empty_tensors_of_any_shape(path: Path):
    def write(*shape: int) -> None:
        table = {"x": {"dtype": "F64", "shape": shape, "data_offsets": [0, 0]}}
        text = json.dumps({"__metadata__": {"mine": "{}"}, **table}).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text)

    for shape in ((0, 4), (0, 2**40)):
        write(*shape)
        assert read_tensors(path, "mine")[1]["x"].shape == shape
    # Strides that no number can hold.
    write(0, *[2**40] * 8)
    with pytest.raises(FormatError, match="has the shape"):
        read_tensors(path, "mine")


def test_a_full_disk_is_called_so(path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(tensor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = path.read_bytes()
    monkeypatch.setattr("einet.data.files.octets", full)
    with pytest.raises(OSError, match="No space left on device: .*a.file") as raised:
        write_tensors(path, TENSORS, "mine", HEADER)
    assert raised.value.errno == errno.ENOSPC
    assert raised.value.filename == str(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]
