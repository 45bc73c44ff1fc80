"""Facts from files, and `morpho logic`."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import MorphoError

PATHS = "path(X, Y) :- edge(X, Y).\npath(X, Z) :- path(X, Y), edge(Y, Z).\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program, and its facts in every kind of file that needs no extra."""
    (tmp_path / "program.dl").write_text(PATHS)
    (tmp_path / "edges.csv").write_text("a,b\nb,c\n\nc, d \n")
    (tmp_path / "roads.tsv").write_text("from\tto\tkm\n1\t2\t3.5\n2\t3\t1\n")
    with sqlite3.connect(tmp_path / "graph.db") as database:
        database.execute("create table links (a text, b text)")
        database.executemany("insert into links values (?, ?)", [("a", "b"), ("b", "c")])
        database.execute("create table other (x integer)")
    database.close()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_columns_are_what_they_look_like_unless_the_program_says(folder: Path) -> None:
    """Numbers of a CSV file are integers, floats, or symbols where the program has symbols."""
    roads = mo.logic.read_facts("roads.tsv", header=True)
    assert roads.kinds == ["int?", "int?", "float?"] and roads.count == 2
    program = mo.logic.Program("far(X) :- road(_, X, K), K > 2.0.")
    program.read("road", "roads.tsv", header=True)
    assert list(program.run()["far"]) == [(2,)]
    named = mo.logic.Program('end(X) :- road(X, _), X != "7". road(seven, eight).')
    named.read("road", "roads.tsv", header=True, weights=True)
    assert list(named.run()["end"]) == [("1",), ("2",), ("seven",)]
    assert named.run("min_plus")["road"].weight("1", "2") == 3.5


def test_sqlite(folder: Path) -> None:
    """A table by its name; the only one without."""
    program = mo.logic.Program(PATHS)
    program.read("edge", "graph.db", table="links")
    assert ("a", "c") in program.run()["path"]
    with pytest.raises(ValueError, match=r"2 tables \(links, other\)"):
        program.read("edge", "graph.db")
    with pytest.raises(FileNotFoundError, match="no table gone"):
        program.read("edge", "graph.db", table="gone")


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_arrow_and_parquet(folder: Path, ending: str) -> None:
    """Where pyarrow is installed; where it is not, the error says so."""
    try:
        import pyarrow
    except ImportError:
        (folder / f"edges.{ending}").write_bytes(b"PAR1")
        with pytest.raises(ValueError, match="pip install pyarrow"):
            mo.logic.read_facts(f"edges.{ending}")
        pytest.skip("pyarrow is not installed")
    from pyarrow import feather, parquet

    table = pyarrow.table({"a": ["a", "b"], "n": [1, 2]})
    parquet.write_table(table, "edges.parquet") if ending == "parquet" else feather.write_feather(table, "edges.arrow")
    found = mo.logic.read_facts(f"edges.{ending}")
    assert found.kinds == ["symbol", "int"] and found.count == 2


@pytest.mark.parametrize(("name", "content", "message"), [
    ("x.csv", b"a,b\nc\n", "line 2 of x.csv has 1 columns, and the first has 2"),
    ("x.csv", b"\xff\xfe\x00", "no table of text"),
    ("x.db", b"not a database at all" * 10, "no SQLite database"),
    ("x.json", b"[]", "the ending .json is not known"),
    ("x.csv", b"a,b\n\n\"c\nd\"\n", "line 4 of x.csv has 1 columns, and the first has 2"),
])
def test_files_that_are_not_what_they_say(folder: Path, name: str, content: bytes, message: str) -> None:
    """One sentence each."""
    (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        mo.logic.read_facts(name)


@pytest.mark.parametrize(("content", "kinds", "first"), [
    ("1_0,10\n", ["symbol?", "int?"], ("1_0", 10)), ("\u0661,1\n", ["symbol?", "int?"], ("\u0661", 1)),
    ("inf,nan\n", ["symbol?", "symbol?"], ("inf", "nan")), ("+1,-0\n", ["int?", "int?"], (1, 0)),
    ("1e3,.5\n", ["float?", "float?"], (1000.0, 0.5)), ("1.,-2E-3\n", ["float?", "float?"], (1.0, -0.002)),
    ("0x10,1.e\n", ["symbol?", "symbol?"], ("0x10", "1.e")), ("\ufeff1,a\n", ["int?", "symbol?"], (1, "a")),
    ("  \n\n1,2\n \t \n", ["int?", "int?"], (1, 2))])
def test_numbers_of_a_file_are_those_of_a_program(folder: Path, content: str, kinds: list[str],
                                                  first: tuple[object, ...]) -> None:
    """Digits are 0 to 9, `inf` is a name, a mark of the byte order is none of the text, empty lines are skipped."""
    Path("x.csv").write_text(content, encoding="utf-8")
    assert mo.logic.read_facts("x.csv").kinds == kinds
    program = mo.logic.Program("all(X, Y) :- x(X, Y).")
    program.read("x", "x.csv")
    assert program.run()["all"].rows == [first]


def test_numbers_that_are_too_large_or_no_numbers_are_told(folder: Path) -> None:
    Path("x.csv").write_text("9223372036854775808,1\n")
    Path("y.csv").write_text("a,b,1_0\n")
    for text, name, message in (("all(X) :- x(X, _).", "x.csv", "9223372036854775808 is more than 64 bits hold"),
                                ("predicate x(int, int, int).", "y.csv", "'a' is no int")):
        with pytest.raises(MorphoError, match=message):
            program = mo.logic.Program(text)
            program.read("x", name)
            program.run()
    with pytest.raises(MorphoError, match="weights, and has what is no number"):
        mo.logic.read_facts("y.csv", weights=True)
    named = mo.logic.Program("predicate x(symbol, int).")  # as text it has its place
    named.read("x", "x.csv")
    assert named.run()["x"].rows == [("9223372036854775808", 1)]
    with pytest.raises(MorphoError, match="18446744073709551615 is more than 64 bits hold"):
        mo.logic.Program("q(X) :- p(X).").add("p", np.array([[2**64 - 1]], np.uint64))


def test_a_header_is_the_first_line_that_is_not_empty(folder: Path) -> None:
    for content, header in (("\n# x,y\n1,2\n", None), (" \nx,y\n1,2\n", True), ("\ufeff# x,y\n1,2\n", None)):
        Path("x.csv").write_text(content, encoding="utf-8")
        assert mo.logic.read_facts("x.csv", header=header).columns == [["1"], ["2"]]


@pytest.mark.parametrize("name", ["a#b.db", "50%41.db", "who?x.db", "a b.db", "a:b.db"])
def test_databases_of_any_name(folder: Path, name: str) -> None:
    """Which an address of a file would read otherwise; a table that begins as SQLite's own begin is one."""
    with sqlite3.connect(name) as database:
        database.execute("create table sqlite3data (a text, b text)")
        database.execute("insert into sqlite3data values ('a', 'b')")
    database.close()
    assert mo.logic.read_facts(name).columns == [["a"], ["b"]]


def test_text_that_is_none_in_databases_and_tables(folder: Path) -> None:
    with sqlite3.connect("x.db") as database:
        database.execute("create table t (a text)")
        database.execute("insert into t values (cast(x'ff41' as text))")
    database.close()
    with pytest.raises(ValueError, match=r"x.db .*UTF-8"):
        mo.logic.read_facts("x.db")
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    parts = [None, pyarrow.py_buffer(bytes([0, 0, 0, 0, 2, 0, 0, 0])), pyarrow.py_buffer(b"\xff\xfe")]
    parquet.write_table(pyarrow.table({"a": pyarrow.Array.from_buffers(pyarrow.string(), 1, parts)}), "x.parquet")
    with pytest.raises(ValueError, match=r"x\.parquet cannot be read"):
        mo.logic.read_facts("x.parquet")
    places = np.array([0, 3, 5], np.int32).tobytes()
    feather.write_feather(pyarrow.table({"a": ["abc", "de"]}), "x.arrow", compression="uncompressed")
    for wrong in ([0, -3, 5], [0, 3, 1 << 30], [7, 3, 5]):
        changed = Path("x.arrow").read_bytes().replace(places, np.array(wrong, np.int32).tobytes())
        Path("y.arrow").write_bytes(changed)
        with pytest.raises(ValueError, match=r"y\.arrow cannot be read"):
            mo.logic.read_facts("y.arrow")


def test_numbers_are_printed_whole(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two that differ look different, sums of tenths do not show their rounding."""
    from morpho.cli import logic

    Path("roads.csv").write_text("a,b,1234567\nb,c,0.5\nd,e,0.1\ne,f,0.2\n")
    for goal, shown in (("path(a, X)", ["b", "1234567", "c", "1234567.5"]), ("path(d, X)", ["e", "0.1", "f", "0.3"])):
        logic.run(Path("program.dl"), ["edge=roads.csv"], [goal], semantics="(min, +)", weights=True)
        assert capsys.readouterr().out.split()[4:8] == shown
    Path("values.csv").write_text("0.1,0.30000000000000004\n1234567.5,3.0\n")
    logic.run(Path("program.dl"), ["edge=values.csv"], ["edge(X, Y)"])
    assert capsys.readouterr().out.split()[4:8] == ["0.1", "0.30000000000000004", "1234567.5", "3.0"]


def test_a_program_with_a_mark_of_the_byte_order(folder: Path) -> None:
    Path("marked.dl").write_bytes(b"\xef\xbb\xbf" + PATHS.encode())
    assert len(mo.logic.Program.load("marked.dl").parsed.rules) == 2


def test_facts_of_another_width_are_told_to_be_the_facts() -> None:
    program = mo.logic.Program("near(X, Y) :- road(X, Y).")
    with pytest.raises(mo.logic.LogicError, match="road has 2 terms here and 3 terms in its facts"):
        program.add("road", [("a", "b", 3)])


def test_facts_that_are_no_facts() -> None:
    """Rows of different lengths, of mixed or unknown types, NaN, wrong arrays."""
    program = mo.logic.Program()
    for rows, message in (([(1, 2), (1,)], "different lengths"), ([(1,), ("a",)], "int and symbol"),
                          ([(None,)], "NoneType"), ([(float("nan"),)], "NaN"), (np.zeros(3), "1 dimensions"),
                          ([(True,)], "bool")):
        with pytest.raises((ValueError, TypeError), match=message):
            program.add("p", rows)
            program.run()
        program = mo.logic.Program()


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "morpho", "logic", *arguments], capture_output=True, text=True,
                          check=False)


def test_the_command_prints_a_table(folder: Path) -> None:
    """As the issue writes it; facts find their predicate by the file's name."""
    found = command("program.dl", "--facts", "edges.csv", "--query", "path(a, X)")
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == ["X", "-", "b", "c", "d", "(3", "rows)"]


def test_the_command_without_a_process(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CSV, JSON, weights, proofs, explanations, queries of the program, all that rules derive."""
    from morpho.cli import logic

    program = Path("program.dl")
    logic.run(program, ["edges.csv"], ["path(a, X)"], output="csv")
    assert capsys.readouterr().out == "X\nb\nc\nd\n"
    logic.run(program, ["edge=graph.db:links"], ["path(a, X)"], output="json")
    assert capsys.readouterr().out == '[{"X": "b"}, {"X": "c"}]\n'
    Path("roads.csv").write_text("a,b,1\nb,c,2\na,c,9\n")
    logic.run(program, ["edge=roads.csv"], ["path(a, c)"], semantics="(min, +)", weights=True)
    assert capsys.readouterr().out == "true  3\n"
    logic.run(program, ["edges.csv"], ["path(c, X)"], proof=True)
    assert "path(c, d)    by path(X, Y) :- edge(X, Y)." in capsys.readouterr().out
    logic.run(program, ["edges.csv"], [], explain=True)
    assert "scan Δpath(X, Y)" in capsys.readouterr().out
    logic.run(program, ["edges.csv"], [])
    assert capsys.readouterr().out.startswith("path: 6\n")
    program.write_text(PATHS + "?- path(a, d).\n?- path(d, a).\n")
    logic.run(program, ["edges.csv"], [])
    assert capsys.readouterr().out == "?- path(a, d).\ntrue\n?- path(d, a).\nfalse\n"


@pytest.mark.parametrize(("arguments", "messages"), [
    (["program.dl", "--query", "path(a, X)"], ["predicate edge has no fact", "edge(X, Y)", "^^^^"]),
    (["program.dl", "--facts", "edges.csv", "--query", "path(a X)"], ["expected `)`", "  path(a X)", "         ^"]),
    (["gone.dl"], ["there is no file gone.dl"]),
    (["program.dl", "--facts", "gone.csv"], ["there is no file gone.csv"]),
    (["program.dl", "--facts", "edges.csv", "--semantics", "odd"], ["semantics 'odd' is not known"]),
    (["program.dl", "--facts", "edges.csv", "--format", "xml"], ["--format xml is not known"]),
])
def test_mistakes_at_the_command_line(folder: Path, arguments: list[str], messages: list[str]) -> None:
    """A sentence on standard error, with the caret; exit code 2; no traceback."""
    found = command(*arguments)
    assert found.returncode == 2
    for message in messages:
        assert message in found.stderr, found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize(("content", "noted"), [
    ("source,target\na,b\nb,c\n", True), ("from,to\n1,2\n2,3\n", True), ("Id,Name\n7,ann\n", True),
    ("who,age\nann,70\n", True), ("a,b\nb,c\n", False), ("1,2\n2,3\n", False), ("source,target\n", False),
    ("source,target\ntarget,sink\n", False),  # nodes of these names
    ("ann,bob\nann,3\n", False), ("ann,5\nbob,6\n", False), ("", False)])
def test_a_first_line_that_looks_like_names_is_told(folder: Path, capsys: pytest.CaptureFixture[str], content: str,
                                                    noted: bool) -> None:
    """It is a fact, as ever; who said whether it is one is told nothing."""
    import warnings

    from morpho.cli import logic

    Path("pairs.csv").write_text(content)
    for header, skipped in ((None, 0), (False, 0), (True, 1)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = mo.logic.read_facts("pairs.csv", header=header)
        assert found.count == max(0, len(content.splitlines()) - skipped)
        told = ["looks like names of columns" in str(one.message) for one in said]
        assert told == [True] * (noted and header is None)
    if noted and content.startswith("source"):
        for header, lines in ((None, 1), (False, 0), (True, 0)):
            logic.run(Path("program.dl"), ["edge=pairs.csv"], ["path(a, X)"], header=header)
            printed = capsys.readouterr()
            assert printed.err.count("note: the first line of pairs.csv (source, target)") == lines
            assert printed.out.endswith("(2 rows)\n")
