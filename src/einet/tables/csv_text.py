"""Csv as text: that it is text, that its names are distinct, and that every line has all cells.

What is wrong is told with its line and column.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence

from einet._checks import shown

__all__ = ["check_lines", "check_names", "decode_text"]

_DELIMITERS = ",;\t|"
# More than anybody writes into one cell: a quote that does not end swallows all that follows.
_LONGEST_CELL = 1 << 20


def decode_text(content: bytes, name: str) -> str:
    """The text of a file: UTF-8, or UTF-16 with its mark.

    Args:
        content: All bytes of the file.
        name: What errors call it.

    Example:
        >>> decode_text(b"\\xef\\xbb\\xbfage\\n31\\n", "a.csv")
        'age\\n31\\n'
    """
    encoding = "utf-8-sig"
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    elif 0 in content:
        line = content.count(b"\n", 0, content.index(0)) + 1
        raise ValueError(f"{name} is no text: line {line} has a zero byte")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{name} is not {encoding.removesuffix('-sig').upper()} text: line {line} has the byte "
            f"0x{content[error.start]:02x}; save it as UTF-8"
        ) from None
    if not text.strip():
        raise ValueError(f"{name} is empty; a table begins with a line of names")
    # A line end of old Macs, which would make one line of all.
    return text if "\n" in text else text.replace("\r", "\n")


def check_lines(text: str, name: str) -> tuple[str, tuple[int, int], bool]:
    """What separates cells, how many rows and columns there are, and if the first has no name.

    Args:
        text: The whole file.
        name: What errors call it.

    Example:
        >>> check_lines("age;sex\\n31;f\\n", "a.csv")
        (';', (1, 2), False)
    """
    # Lines before the header that hold nothing.
    body = text.lstrip("\r\n")
    skipped = text.count("\n", 0, len(text) - len(body))
    delimiter = _delimiter(body)
    rows = _rows(body, delimiter, name, skipped)
    _, names = next(rows)
    unnamed = len(names) > 1 and not names[0].strip()
    check_names(names[1:] if unnamed else names, name, "line 1" if not skipped else "the header")
    count, lines = len(names), 0
    for line, cells in rows:
        if not cells:
            # An empty line, which is an empty cell where there is one column only.
            lines += count == 1
            continue
        lines += 1
        if len(cells) != count:
            what = "the header has" if len(cells) < count else "the header only has"
            raise ValueError(
                f"{name}: line {line} has {len(cells)} cells, but {what} {count} names"
            )
    if not lines:
        raise ValueError(f"{name} has the names of {count} columns but no rows")
    return delimiter, (lines, count), unnamed


def _rows(text: str, delimiter: str, name: str, skipped: int) -> Iterator[tuple[int, list[str]]]:
    """Each line's number and cells, which may hold line ends within quotes."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    before = csv.field_size_limit(_LONGEST_CELL)
    try:
        while True:
            start = reader.line_num + 1 + skipped
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                reason = _reason(str(error))
                raise ValueError(f"{name}: {reason} that line {start} begins") from None
            yield start, cells
    finally:
        csv.field_size_limit(before)


def _reason(error: str) -> str:
    """What is wrong with a cell, in words that need no knowledge of Python's reader."""
    if "unexpected end of data" in error:
        return "no quote ends the cell in quotes"
    if "field larger" in error:
        return f"more than {_LONGEST_CELL:,} characters are in one cell of the lines"
    return f"a cell cannot be read ({error}) in the lines"


def _delimiter(text: str) -> str:
    """What the header has most of outside quotes; a comma where there is nothing to separate."""
    counts: Counter[str] = Counter()
    quoted = False
    for char in text:
        if char == '"':
            quoted = not quoted
        elif char == "\n" and not quoted:
            break
        elif char in _DELIMITERS and not quoted:
            counts[char] += 1
    return max(_DELIMITERS, key=lambda char: counts[char])


def check_names(names: Sequence[str], name: str, where: str) -> None:
    """Raise unless every column has a name, and each one of its own.

    Args:
        names: The names.
        name: What errors call the file.
        where: The place in it that has them.
    """
    for place, column in enumerate(names, start=1):
        if not column.strip():
            raise ValueError(f"{name}: {where} has no name for column {place} of {len(names)}")
    twice = [column for column, count in Counter(names).items() if count > 1]
    if twice:
        places = [place for place, column in enumerate(names, start=1) if column == twice[0]]
        raise ValueError(
            f"{name}: {where} has the name {shown(twice[0])} more than once, for columns "
            f"{places[0]} and {places[1]}"
        )
