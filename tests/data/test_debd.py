"""The loader of the 20 binary data sets, on small files of its own."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

import einet
from einet.data import debd

SPLITS = ("train", "valid", "test")


def table(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, (rows, columns), dtype=np.uint8)


def write(path: Path, rows: np.ndarray, end: str = "\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(",".join(map(str, row)) + end for row in rows.tolist()).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def test_names_are_those_of_the_paper():
    assert len(debd.names()) == 20
    assert debd.names()[:4] == ("nltcs", "msnbc", "kdd-2k", "plants")
    aliases = {
        "kdd": "kdd-2k",
        "baudio": "audio",
        "bnetflix": "netflix",
        "tretail": "retail",
        "pumsb_star": "pumsb-star",
        "tmovie": "each-movie",
        "cwebkb": "web-kb",
        "cr52": "reuters-52",
        "c20ng": "20ng",
    }
    for alias, name in aliases.items():
        assert debd.canonical(alias) == debd.canonical(name) == name
        assert debd.file_name(alias) == debd.file_name(name) == alias
    assert einet.data.debd is debd


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("asked", ["kdd", "kdd-2k"])
@pytest.mark.parametrize("spelling", ["kdd", "kdd-2k"])
def test_reads_every_layout(tmp_path: Path, suffix: str, flat: bool, asked: str, spelling: str):
    folder = tmp_path if flat else tmp_path / spelling
    for number, split in enumerate(SPLITS):
        write(folder / f"{spelling}.{split}.data{suffix}", table(number + 2, 64, number))
    data = debd.load(asked, tmp_path)
    for number, split in enumerate(SPLITS):
        read = getattr(data, split)
        assert read.dtype == torch.uint8
        assert np.array_equal(read.numpy(), table(number + 2, 64, number))
    assert repr(data) == "Debd('kdd-2k', num_variables=64, train=2, valid=3, test=4)"


@pytest.mark.parametrize(
    ("old", "new"), [("\n", "\r\n"), (",", ", "), ("\n", "\n\n"), ("\n", " \n")]
)
def test_reads_other_line_ends_and_spaces(tmp_path: Path, old: str, new: str):
    rows = table(5, 16)
    text = "\n".join(",".join(map(str, row)) for row in rows.tolist())
    for content in (text, text + "\n"):
        (tmp_path / "nltcs.valid.data").write_bytes(content.replace(old, new).encode())
        assert np.array_equal(debd.read("nltcs", "valid", str(tmp_path)).numpy(), rows)


def test_one_split_does_not_need_the_others(tmp_path: Path):
    write(tmp_path / "nltcs.train.data", table(3, 16))
    assert debd.read("nltcs", "train", tmp_path).shape == (3, 16)
    with pytest.raises(FileNotFoundError, match="the valid rows of nltcs"):
        debd.load("nltcs", tmp_path)


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path):
    with pytest.raises(ValueError, match=r"name must be one of nltcs, .*audio \(baudio\).*'mnist'"):
        debd.load("mnist", tmp_path)
    with pytest.raises(ValueError, match="split must be one of train, valid, test, got 'all'"):
        debd.read("nltcs", "all", tmp_path)


def test_missing_files_and_folders_are_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="absent is no folder"):
        debd.load("nltcs", tmp_path / "absent")
    with pytest.raises(FileNotFoundError) as caught:
        debd.load("audio", tmp_path)
    for looked_for in ("baudio/baudio.train.data", "audio.train.data.gz", str(tmp_path)):
        assert looked_for in str(caught.value)


def test_faults_name_the_file_and_the_line(tmp_path: Path):
    path = tmp_path / "nltcs.train.data"

    def fails(content: str, match: str) -> None:
        path.write_text(content)
        with pytest.raises(ValueError, match=match) as caught:
            debd.read("nltcs", "train", tmp_path)
        assert str(path) in str(caught.value)

    good = ",".join("0" * 16) + "\n"
    fails(good + ",".join("1" * 15) + "\n", "line 2 has 15 columns; nltcs has 16")
    fails(",".join("1" * 17) + "\n", "line 1 has 17 columns; nltcs has 16")
    fails(good.replace(",", ";"), "line 1 has 1 columns")
    # As many characters as two rows: the shape alone does not show it.
    fails(",".join("1" * 15) + "\n" + ",".join("1" * 17) + "\n", "line 1 has 15 columns")
    fails(good * 3 + ",".join("0" * 15 + "2") + "\n", "line 4 holds '2'; .* 0 or 1")
    fails(good + good.replace("0", "?", 1), "line 2 holds '\\?'")
    fails(good + good.replace("0,0", "0", 1), "line 2 has 15 columns")
    fails("", "holds no rows")


def test_a_broken_gzip_file_is_named(tmp_path: Path):
    path = tmp_path / "nltcs.train.data.gz"
    write(path, table(50, 16))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match="train.data.gz is no intact gzip file"):
        debd.read("nltcs", "train", tmp_path)
    path.write_text("0,1")
    with pytest.raises(ValueError, match="train.data.gz is no intact gzip file"):
        debd.read("nltcs", "train", tmp_path)


def test_the_public_files(data_dir: Path):
    if not (data_dir / "debd").is_dir():
        pytest.skip("no folder debd among the real data")
    data = debd.load("nltcs", data_dir / "debd")
    assert (len(data.train), len(data.valid), len(data.test)) == (16181, 2157, 3236)
