"""Tables in files, those of ill will too."""

from __future__ import annotations

import gzip
import io
import math
import sys

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einet.tables import reading
from einet.tables.reading import read_table, table_format, write_table


def piped(text: str | bytes, **options) -> pandas.DataFrame:
    content = text if isinstance(text, bytes) else text.encode()
    return read_table("-", stream=io.BytesIO(content), **options)


def test_cells_of_all_kinds():
    text = 'age,name,tall,day,share\n31,Zoë,True,2020-01-31,0.5\n,"a, ""b""\nc",False,,\n'
    frame = piped(text)
    assert frame["age"].isna().tolist() == [False, True]
    assert frame["age"].tolist()[0] == 31
    assert frame["name"].tolist() == ["Zoë", 'a, "b"\nc']
    assert frame["tall"].tolist() == [True, False]
    assert frame["day"].tolist()[0] == pandas.Timestamp("2020-01-31")
    assert frame["day"].isna().tolist() == [False, True]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_what_separates_cells_and_lines(mark, end):
    frame = piped(end.join([mark.join("ab"), mark.join("12"), ""]))
    assert frame.to_dict("list") == {"a": [1], "b": [2]}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_marks_of_encodings_are_no_part_of_names(encoding):
    assert list(piped("größe,b\n1,2\n".encode(encoding)).columns) == ["größe", "b"]


def test_words_for_missing_cells():
    words = ["", *reading.MISSING_WORDS]
    frame = piped("a,b\n" + "".join(f"{word},1\n" for word in [*words, "x"]))
    assert frame["a"].isna().tolist() == [True] * len(words) + [False]
    assert piped("a,b\n?,1\n2,1\n", missing=["?"])["a"].isna().tolist() == [True, False]
    assert piped("a,b\n?,1\n2,1\n")["a"].tolist() == ["?", "2"]
    assert piped("a\n1\n\n3\n")["a"].isna().tolist() == [False, True, False]


def test_row_numbers_without_a_name_are_left_out():
    assert list(piped(",a\n0,5\n1,6\n").columns) == ["a"]
    assert list(piped(",a\n1,5\n2,6\n").columns) == ["a"]
    with pytest.raises(ValueError, match="the first column has no name, and does not count"):
        piped(",a\n7,5\n3,6\n")


def test_what_looks_like_dates_and_is_none_stays_text():
    assert piped("a\n2020-02-30\n2020-01-01\n")["a"].tolist() == ["2020-02-30", "2020-01-01"]
    assert piped("a\n2020-01-01\nsoon\n")["a"].tolist() == ["2020-01-01", "soon"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "standard input is empty"),
        (b"\n \n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"a,b\n", "has the names of 2 columns but no rows"),
        (b"a,b\n\n\n", "has the names of 2 columns but no rows"),
        (b"a,b,a\n1,2,3\n", "line 1 has the name 'a' more than once, for columns 1 and 3"),
        (b"a,,c\n1,2,3\n", "line 1 has no name for column 2 of 3"),
        (b"a,b\n1,2\n1,2,3\n", "line 3 has 3 cells, but the header only has 2 names"),
        (b"a,b\n1,2\n\n1\n", "line 4 has 1 cells, but the header has 2 names"),
        (b'a,b\n"x\ny",2\n1\n', "line 4 has 1 cells"),
        (b'a,b\n1,2\n"x,2\n3,4\n', "no quote ends the cell in quotes that line 3 begins"),
        (b'a,b\n1,"x"y\n', "a cell cannot be read"),
        (b"a,b\n1,\xff\n", "is not UTF-8 text: line 2 has the byte 0xff"),
        (b"a,b\n1,\x00\n", "is no text: line 2 has a zero byte"),
        (b"a,b\n1,1e999\n", "row 1 has a number in column 'b' that is infinite"),
        (b"a,b\n1,2\n1,-inf\n", "row 2 has a number in column 'b' that is infinite"),
        (b"PAR1 and then something else", "cannot be read as Parquet"),
        (b"\x1f\x8b and then something else", "is damaged"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0)[:-4], "is damaged"),
        (b"a\n" + b"x" * ((1 << 20) + 1), "more than 1,048,576 characters are in one cell"),
    ],
)
def test_hostile_files_are_refused_with_their_place(content, said):
    with pytest.raises(ValueError, match=said) as caught:
        piped(content)
    assert "\n" not in str(caught.value)


def test_numbers_beyond_all_integers_stay_as_they_are_written():
    frame = piped("a,b\n123456789012345678901234567890,1\n2,1\n")
    assert [str(cell) for cell in frame["a"]] == ["123456789012345678901234567890", "2"]


def test_many_columns():
    names = [f"column {number}" for number in range(10_000)]
    line = ",".join("1" for _ in names)
    frame = piped(",".join(names) + "\n" + line + "\n" + line + "\n")
    assert frame.shape == (2, 10_000)
    with pytest.raises(ValueError, match="line 3 has 9999 cells, but the header has 10000 names"):
        piped(",".join(names) + "\n" + line + "\n" + line[2:] + "\n")


@pytest.mark.parametrize("name", ["t.csv", "t.CSV", "t.csv.gz", "t.tsv", "t.parquet", "t.pq"])
def test_what_is_written_comes_back(tmp_path, name):
    frame = pandas.DataFrame(
        {
            "age": [31.0, None, 0.1],
            'a, "name"': ["x;y", "Zoë\tz", None],
            "day": pandas.to_datetime(["2020-01-31", None, "2021-01-01"]),
            "count": [1, 2, 3],
        }
    )
    write_table(frame, tmp_path / name)
    back = read_table(tmp_path / name)
    pandas.testing.assert_frame_equal(back, frame, check_dtype=False)
    first = (tmp_path / name).read_bytes()
    write_table(frame, tmp_path / name)
    assert (tmp_path / name).read_bytes() == first


def test_standard_output(capfdbinary):
    write_table(pandas.DataFrame({"a": [1]}), "-", sys.stdout.buffer)
    assert capfdbinary.readouterr().out == b"a\n1\n"


def test_names_of_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no table .*nowhere.csv"):
        read_table(tmp_path / "nowhere.csv")
    with pytest.raises(ValueError, match="is no file; a folder"):
        read_table(tmp_path)
    for name in ("table.xlsx", "table", "table.parquet.gz"):
        with pytest.raises(ValueError, match=r"ends in \.csv, "):
            table_format(name)
    (tmp_path / "a.parquet").write_bytes(b"a,b\n1,2\n")
    with pytest.raises(ValueError, match="is no Parquet file, which begins with PAR1"):
        read_table(tmp_path / "a.parquet")
    # A wrong name does not matter where the content tells.
    pandas.DataFrame({"a": [1]}).to_parquet(tmp_path / "b.parquet")
    (tmp_path / "b.parquet").rename(tmp_path / "b.csv")
    assert read_table(tmp_path / "b.csv")["a"].tolist() == [1]


def test_parquet_is_checked_too(tmp_path):
    pandas.DataFrame({"a": [math.inf]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="row 1 has a number in column 'a' that is infinite"):
        read_table(tmp_path / "a.parquet")
    pandas.DataFrame({"a": []}).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(ValueError, match="but no rows"):
        read_table(tmp_path / "b.parquet")


def test_without_pandas_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'einet\[tables\]'"):
        piped("a\n1\n")


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=6)


@given(st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=4))
@settings(max_examples=30)
def test_any_text_keeps_its_place(rows):
    quoted = [[f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row] for row in rows]
    frame = piped("a,b\n" + "".join(",".join(row) + "\n" for row in quoted))
    assert frame.shape == (len(rows), 2)
    for column, place in (("a", 0), ("b", 1)):
        cells = frame[column].tolist()
        if all(isinstance(cell, str) for cell in cells):
            assert cells == [row[place] for row in rows]


@given(st.binary(max_size=60) | st.text(alphabet='a1,;"\n\r\t |', max_size=40).map(str.encode))
@settings(max_examples=100)
def test_any_bytes_are_a_table_or_refused_in_one_line(content):
    said = ""
    try:
        frame = piped(content)
    except ValueError as error:
        said = str(error)
    else:
        assert len(frame)
        assert len(set(frame.columns)) == frame.shape[1]
    assert "\n" not in said
