"""Facts that a program is given beside its text: rows from Python, and tables from CSV, SQLite, Parquet and Arrow
files.

A file's column is text or numbers; where the program does not say which, it is what all of its values look like.
"""

from __future__ import annotations

import csv
import os
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from morpho.base.errors import ArgumentError, DTypeError, MorphoError, fail
from morpho.logic.analysis.check import Type
from morpho.logic.tuples.codes import Codes, Symbols, encode

# Texts that are numbers.
FORMS = {"int": re.compile(r"[+-]?[0-9]+"),
         "float": re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?)", re.ASCII | re.IGNORECASE)}
# What columns of relations are called.
NAMES = frozenset((
    "child", "destination", "dst", "end", "entity", "from", "head", "id", "item", "key", "label", "name", "node",
    "object", "parent", "person", "predicate", "relation", "source", "src", "start", "subject", "tail", "target", "to",
    "type", "value", "weight"))


class MissingTable(MorphoError, FileNotFoundError):
    """A file of facts, or a table in it, that is not there.

    >>> mo.logic.read_facts("gone.csv")
    Traceback (most recent call last):
    ...
    morpho.logic.facts.MissingTable: [logic] there is no file gone.csv...
    """


@dataclass
class Facts:
    """Columns of values, the type of each (with `?` where it is a guess), and weights, if there are any."""

    columns: list[Any]
    kinds: list[str]
    count: int
    weights: NDArray[np.float64] | None = None
    origin: str = ""
    note: str = ""  # what may not be as it was meant

    def codes(self, types: Sequence[Type], symbols: Symbols, name: str) -> list[Codes]:
        """The columns as codes of the types that the program found."""
        found = []
        for number, (column, kind) in enumerate(zip(self.columns, types)):
            try:
                values = column if isinstance(column, np.ndarray) and kind.base != "symbol" else [
                    _converted(value, kind.base) for value in column]
                found.append(encode(values, kind, symbols))
            except (ValueError, OverflowError) as error:
                raise fail(DTypeError, "logic", f"column {number + 1} of the facts of {name}{self.origin} is "
                           f"{kind.base}: {error}") from None
        return found


def _converted(value: Any, base: str) -> Any:
    if base == "symbol":
        return str(value)
    if isinstance(value, str) and not FORMS[base].fullmatch(value):
        raise ValueError(f"{value!r} is no {base}")
    if base == "float":
        return float(value)
    return _within_64_bits(int(value))


def _within_64_bits(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{value} is more than 64 bits hold")
    return value


def from_rows(rows: Any, weights: Any = None, name: str = "") -> Facts:
    """Facts of a list of tuples, or of an array with a row for each."""
    if isinstance(rows, np.ndarray) or hasattr(rows, "__array__"):
        table = np.asarray(rows)
        if table.ndim != 2 or table.dtype.kind not in "iuf":
            raise fail(ArgumentError, "logic", f"facts of {name} are an array of {table.ndim} dimensions of "
                       f"{table.dtype}", "give numbers in two dimensions, or a list of tuples")
        if table.dtype.kind == "u" and table.size:
            try:
                _within_64_bits(int(table.max()))
            except ValueError as error:
                raise fail(DTypeError, "logic", f"in the facts of {name} {error}") from None
        kind, dtype = ("float", np.float64) if table.dtype.kind == "f" else ("int", np.int64)
        columns: list[Any] = [np.ascontiguousarray(table[:, number].astype(dtype)) for number in range(table.shape[1])]
        return Facts(columns, [kind] * len(columns), len(table), _weights(weights, len(table), name))
    listed = [row if isinstance(row, tuple | list) else (row,) for row in rows]
    if len({len(row) for row in listed}) > 1:
        raise fail(ArgumentError, "logic", f"facts of {name} have rows of different lengths")
    columns = [list(column) for column in zip(*listed)]
    kinds = [_kind(column, name, number) for number, column in enumerate(columns)]
    return Facts(columns, kinds, len(listed), _weights(weights, len(listed), name))


def _weights(weights: Any, count: int, name: str) -> NDArray[np.float64] | None:
    if weights is None:
        return None
    found = np.broadcast_to(np.asarray(weights, np.float64), (count,)).copy()
    if np.isnan(found).any():
        raise fail(ArgumentError, "logic", f"a weight of the facts of {name} is NaN")
    return found


def _kind(column: Sequence[Any], name: str, number: int) -> str:
    bases = {"symbol" if isinstance(value, str) else "int" if isinstance(value, int | np.integer) and
             not isinstance(value, bool) else "float" if isinstance(value,
                                                                    float | np.floating) else type(value).__name__
             for value in column}
    if bases <= {"int", "float"} and bases:
        return "float" if "float" in bases else "int"
    if bases != {"symbol"}:
        raise fail(DTypeError, "logic", f"column {number + 1} of the facts of {name} has {' and '.join(sorted(bases))}",
                   "a column is of strings, of integers or of floats")
    return "symbol"


def _guessed(column: Sequence[str]) -> str:
    """Type that all texts of a column look like; `inf` and `1_000` are names, as in the language."""
    for kind in ("int", "float"):
        if all(FORMS[kind].fullmatch(value) and value[-1] in "0123456789." for value in column):
            return kind + "?"
    return "symbol?"


def read_facts(path: str | os.PathLike[str], table: str | None = None, header: bool | None = None,
               weights: bool = False) -> Facts:
    """Facts from a file: `.csv` and `.tsv`, `.db`/`.sqlite` (a table of it), `.parquet`, `.arrow`/`.feather`.

    >>> _ = open("edges.csv", "w").write("a,b\\nb,c\\n")
    >>> mo.logic.read_facts("edges.csv").count
    2

    path: the file
    table: which table of a database; the only one if not given
    header: whether a CSV file's first line has names of columns; if not given, when it begins with `#`, and a line that
        looks like names is a warning
    weights: whether the last column has the weights of the facts
    """
    path = os.fspath(path)
    if not os.path.isfile(path):
        raise fail(MissingTable, "logic", f"there is no file {path}",
                   "facts come from .csv, .tsv, .db, .sqlite, .parquet "
                   "and .arrow files")
    ending = os.path.splitext(path)[1].lower()
    if ending in (".csv", ".tsv", ".txt", ".facts"):
        found = _from_csv(path, "," if ending == ".csv" else "\t", header)
    elif ending in (".db", ".sqlite", ".sqlite3"):
        found = _from_sqlite(path, table)
    elif ending in (".parquet", ".arrow", ".feather", ".ipc"):
        found = _from_arrow(path, ending)
    else:
        raise fail(ArgumentError, "logic", f"facts in {path}: the ending {ending or '(none)'} is not known",
                   "use .csv, .tsv, .db, .sqlite, .parquet or .arrow")
    found.origin = f" ({path})"
    if found.note:
        warnings.warn(found.note, stacklevel=2)
    return _with_weights(found, path) if weights else found


def _with_weights(found: Facts, path: str) -> Facts:
    if len(found.columns) < 2:
        raise fail(ArgumentError, "logic", f"{path} has {len(found.columns)} columns, so that none is left for weights")
    try:
        found.weights = _weights([_converted(value, "float") for value in found.columns[-1]], found.count, path)
    except (ValueError, TypeError):
        raise fail(DTypeError, "logic",
                   f"the last column of {path} is to be weights, and has what is no number",
                   "a first line with the names of columns needs --header, or header=True") from None
    return Facts(found.columns[:-1], found.kinds[:-1], found.count, found.weights, found.origin)


def _from_csv(path: str, delimiter: str, header: bool | None) -> Facts:
    rows: list[list[str]] = []
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file, delimiter=delimiter, strict=True)
            begun = False
            for row in lines:
                if len(row) < 2 and not "".join(row).strip():  # nothing on the line
                    continue
                first, begun = not begun, True
                if first and (header or (header is None and row[0].startswith("#"))):
                    continue
                rows.append([cell.strip() for cell in row])
                if len(row) != len(rows[0]):
                    raise fail(ArgumentError, "logic",
                               f"line {lines.line_num} of {path} has {len(row)} columns, and the first "
                               f"has {len(rows[0])}")
    except (csv.Error, UnicodeDecodeError) as error:
        raise fail(ArgumentError, "logic", f"{path} is no table of text: {error}") from None
    columns = [list(column) for column in zip(*rows)]
    kinds = [_guessed(column) for column in columns]
    found = Facts(columns, kinds, len(rows))
    if header is None and _like_names(columns):
        found.note = (f"the first line of {path} ({', '.join(rows[0])}) looks like names of columns, and is a fact: "
                      "--header (header=True) leaves it out, --no-header (header=False) says that it is one")
    return found


def _like_names(columns: Sequence[Sequence[str]]) -> bool:
    """Whether no cell of a table's first line stands below it, and they are words for columns, or one is no number and
    all below it are."""
    if not columns or len(columns[0]) < 2:
        return False
    words = [column[0].lower() for column in columns]
    below = {cell.lower() for column in columns for cell in column[1:]}
    if len(set(words)) < len(words) or not below.isdisjoint(words):
        return False
    named = all(_guessed(column[:1]) == "symbol?" for column in columns)
    return NAMES.issuperset(words) or (named and any(_guessed(column[1:]) != "symbol?" for column in columns))


def _from_sqlite(path: str, table: str | None) -> Facts:
    import sqlite3

    connection = None
    try:
        connection = sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)
        names = [name for name, in connection.execute(
            "select name from sqlite_master where type in ('table', 'view') and substr(name, 1, 7) <> 'sqlite_'")]
        if table is None and len(names) != 1:
            raise fail(ArgumentError, "logic", f"{path} has {len(names)} tables ({', '.join(sorted(names))})",
                       "name one: read_facts(path, table=...), or --facts predicate=file.db:table")
        chosen = table or names[0]
        if chosen not in names:
            raise fail(MissingTable, "logic", f"{path} has no table {chosen}", f"it has {', '.join(sorted(names))}")
        quoted = chosen.replace('"', '""')
        rows = connection.execute(f'select * from "{quoted}"').fetchall()
        width = len(connection.execute(f'select * from "{quoted}" limit 0').description)
    except sqlite3.Error as error:
        raise fail(ArgumentError, "logic", f"{path} is no SQLite database: {error}") from None
    finally:
        if connection is not None:
            connection.close()
    if any(value is None for row in rows for value in row):
        raise fail(ArgumentError, "logic", f"table {chosen} of {path} has NULL among its values")
    columns: list[list[Any]] = [list(column) for column in zip(*rows)] or [[] for _ in range(width)]
    return Facts(columns, [_kind(c, chosen, n) if c else "symbol?" for n, c in enumerate(columns)], len(rows))


def _from_arrow(path: str, ending: str) -> Facts:
    try:
        import pyarrow
        from pyarrow import feather, parquet
    except ImportError:
        raise fail(ArgumentError, "logic", f"{path} needs pyarrow", "pip install pyarrow") from None
    try:
        table = parquet.read_table(path) if ending == ".parquet" else feather.read_table(path)
        table.validate(full=True)  # its places of texts are read as they are otherwise
        columns: list[Any] = [column.to_pylist() for column in table.columns]
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:  # of text and times too
        raise fail(ArgumentError, "logic", f"{path} cannot be read: {error}") from None
    if any(column.null_count for column in table.columns):
        raise fail(ArgumentError, "logic", f"{path} has nulls among its values")
    return Facts(columns, [_kind(c, path, n) if c else "symbol?" for n, c in enumerate(columns)], table.num_rows)


def rows_of(values: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Rows as tuples."""
    return [tuple(row) if isinstance(row, tuple | list) else (row,) for row in values]
