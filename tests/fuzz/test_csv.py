"""Hostile csv: quotes, unicode, huge numbers, ragged rows, thousands of columns, names twice.

A file is either read, and then every cell is where Python's own reader has it, or it is refused
in one line that names the file. What was read makes a table or is refused by the column's name.
"""

from __future__ import annotations

import csv
import io
import math
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from einet import Table
from einet.tables.reading import MISSING_WORDS, read_table
from tests.fuzz.bounds import bounded_memory
from tests.fuzz.campaign import Campaign

MEMORY = 2 << 30
NUMBERS = (
    "0", "-0", "1", "17", "3.5", "1e3", "-2.25", "007", "+4", "1e308", "-1e308", "1e309", "1e-400",
    "9" * 17, "9" * 25, "9" * 400, "0." + "3" * 300, "0x10", "1_000", "1,5", "١٢", "½", "1e", "--1",
)  # fmt: skip
WORDS = (
    "a", "b", "yes", "no", "", " ", "NA", "nan", "null", "None", "inf", "-Infinity", "true",
    "False",
    "naïve", "Ωmega", "日本", "e\u0301", "\u202eabc", "\ufeff", "\u200b", "😀", "a b", "it's",
    'say "x"',
    '"', '""', "a,b", "a;b", "a\tb", "a|b", "two\nlines", "old\rmac", "dos\r\nend", "\\", "'", "#",
    "=1+1", "@cmd", "2020-01-31", "2020-02-30", "2020-01-31 12:00", "9999-12-31", "12:30",
    "x" * 300,
)  # fmt: skip
NAMES = ("age", "job", "naïve", "日本", "a b", 'q"q', "a,b", "two\nlines", "income", "x" * 200, "1")
# What is done to a file. The first two leave a table that must be read.
DAMAGE = (
    "none", "other signs", "ragged row", "name twice", "no name", "lost quote", "odd bytes",
    "zero byte", "cut off", "many columns", "no rows", "nothing",
)  # fmt: skip


def made(random: np.random.Generator, damage: str) -> tuple[list[str], list[list[str]]]:
    """Names and rows; columns mostly hold cells of one kind."""
    columns = int(random.integers(2, 6))
    count = int(random.integers(1, 12))
    names = [f"{name}{place}" for place, name in enumerate(random.choice(NAMES, columns))]
    cells = []
    for _ in range(columns):
        pool = NUMBERS if random.random() < 0.5 else WORDS
        some = random.choice(len(pool), size=int(random.integers(1, 5)))
        cells.append([pool[some[random.integers(len(some))]] for _ in range(count)])
    rows = [list(row) for row in zip(*cells, strict=True)]
    if damage == "ragged row":
        row = rows[random.integers(count)]
        row.append("more") if random.random() < 0.5 else row.pop()
    elif damage == "name twice":
        names[-1] = names[0]
    elif damage == "no name":
        names[-1] = " " if random.random() < 0.5 else ""
    elif damage == "many columns":
        names = [f"c{place}" for place in range(10_000)]
        rows = [[str(place % 7) for place in range(10_000)] for _ in range(3)]
    elif damage == "no rows":
        rows = []
    return names, rows


def content_of(
    random: np.random.Generator, names: list[str], rows: list[list[str]], damage: str
) -> bytes:
    """The file, as somebody may have written it."""
    text = io.StringIO()
    mark, end = ",", "\n"
    if damage == "other signs":
        mark, end = str(random.choice(list(",;\t|"))), str(random.choice(["\n", "\r\n"]))
    # A name with a comma, between tabs and without quotes, can be taken in two ways.
    everywhere = damage == "other signs" or random.random() < 0.3
    quoting = csv.QUOTE_ALL if everywhere else csv.QUOTE_MINIMAL
    csv.writer(text, delimiter=mark, lineterminator=end, quoting=quoting).writerows([names, *rows])
    encoding = "utf-8"
    if damage == "other signs":
        encoding = str(random.choice(["utf-8", "utf-8-sig", "utf-16"]))
    content = text.getvalue().encode(encoding)
    place = int(random.integers(len(content)))
    if damage == "lost quote":
        content = content[:place] + b'"' + content[place:]
    elif damage == "odd bytes":
        content = (
            content[:place] + bytes(random.integers(128, 256, 3, dtype=np.uint8)) + content[place:]
        )
    elif damage == "zero byte":
        content = content[:place] + b"\0" + content[place:]
    elif damage == "cut off":
        content = content[:place]
    elif damage == "nothing":
        content = (b"", b"\n\n", b"  \r\n", b"\xef\xbb\xbf")[random.integers(4)]
    return content


def is_same(cell: object, text: str) -> bool:
    """Whether a cell is what was written."""
    if text in ("", *MISSING_WORDS):
        return bool(pd.isna(cell))
    if isinstance(cell, str):
        return cell == text
    if isinstance(cell, bool | np.bool_):
        return text.lower() == str(bool(cell)).lower()
    if isinstance(cell, pd.Timestamp):
        return cell == pd.Timestamp(text)
    if isinstance(cell, int):
        return cell == int(text)
    return math.isclose(float(cell), float(text), rel_tol=1e-12, abs_tol=1e-300)  # type: ignore[arg-type]


def check_line(error: Exception, begin: str) -> None:
    message = str(error)
    assert message.startswith(begin), message
    assert len(message) < 1000, message


def check_reason(names: list[str], rows: list[list[str]], damage: str) -> None:
    """Whether there was any: numbers without end, or line ends that two readers take as two."""
    cells = {cell for row in [names, *rows] for cell in row}
    endless = cells & {"1e309", "9" * 400, "inf", "-Infinity"}
    assert damage not in DAMAGE[:2] or endless or any("\r" in cell for cell in cells)


def test_hostile_csv(campaign: Campaign):
    def case(random: np.random.Generator, folder: Path) -> str:
        damage = DAMAGE[random.integers(len(DAMAGE))]
        if damage == "many columns" and random.random() < 0.9:
            # They take their time.
            damage = "none"
        names, rows = made(random, damage)
        path = folder / "a.csv"
        path.write_bytes(content_of(random, names, rows, damage))
        try:
            with bounded_memory(MEMORY):
                frame = read_table(path)
        except ValueError as error:
            check_line(error, str(path))
            check_reason(names, rows, damage)
            return f"{damage}: refused"
        if damage in DAMAGE[:2] or damage == "many columns":
            assert list(frame.columns) == names
            assert len(frame) == len(rows)
            for place in range(min(len(names), 10)):
                column = frame.iloc[:, place].tolist()
                for cell, row in zip(column, rows, strict=True):
                    assert is_same(cell, row[place]), (cell, row[place])
        assert damage not in ("ragged row", "name twice", "no rows", "zero byte", "nothing")
        if damage == "many columns":
            return "many columns: read"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                table = Table.of(frame)
                z = table.encode(frame)
            except (TypeError, ValueError) as error:
                check_line(error, "column ")
                return f"{damage}: column refused"
            assert z.shape == (len(frame), table.num_variables)
            table.decode(z)
        return f"{damage}: read"

    report = campaign.run("hostile_csv", case, cases=60)
    if report.tried >= 60:
        assert report.answers["none: read"] > 3
