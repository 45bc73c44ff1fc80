"""Matrix Market files: written and read again, others' files, and damaged ones, which are an error in one sentence."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import morpho as mo
from morpho.base.errors import MorphoError, ValueFault


@pytest.mark.parametrize("dtype", ["int64", "float64", "complex128", "float32"])
def test_what_is_written_is_read(dtype: str, tmp_path: Path, rng: np.random.Generator) -> None:
    dense = (rng.normal(0, 100, (7, 5)) * (rng.random((7, 5)) < 0.5)).astype(dtype)
    for a in (mo.sparse.from_dense(dense), mo.asarray(dense)):
        mo.sparse.write_mm(tmp_path / "a.mtx", a, comment="a matrix\nof two lines")
        found: Any = mo.sparse.read_mm(tmp_path / "a.mtx")
        back = found.to_dense().numpy() if mo.sparse.is_sparse(found) else found.numpy()
        np.testing.assert_array_equal(back, dense)
    assert not list(tmp_path.glob(".*")), "nothing is left beside the file"


FILES = [
    ("coordinate real symmetric", "2 2 2\n1 1 3\n2 1 4\n", [[3, 4], [4, 0]]),
    ("coordinate integer skew-symmetric", "2 2 1\n2 1 4\n", [[0, -4], [4, 0]]),
    ("coordinate complex hermitian", "2 2 2\n1 1 3 0\n2 1 1 2\n", [[3, 1 - 2j], [1 + 2j, 0]]),
    ("coordinate pattern general", "2 3 2\n% comment\n\n1 3\n2 1\n", [[0, 0, 1], [1, 0, 0]]),
    ("coordinate real general", "1 2 2\n1 1 0.5\n1 1 0.25\n", [[0.75, 0]]),
    ("array real general", "2 2\n1\n2\n3\n4\n", [[1, 3], [2, 4]]),
    ("array integer symmetric", "2 2\n1\n2\n3\n", [[1, 2], [2, 3]]),
    ("array real skew-symmetric", "2 2\n5\n", [[0, -5], [5, 0]]),
]


@pytest.mark.parametrize(("kind", "text", "want"), FILES)
def test_files_of_the_format(kind: str, text: str, want: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.mtx"
    path.write_text(f"%%MatrixMarket matrix {kind}\n{text}")
    found: Any = mo.sparse.read_mm(path)
    np.testing.assert_array_equal(found.to_dense().numpy() if mo.sparse.is_sparse(found) else found.numpy(), want)


HEAD = "%%MatrixMarket matrix coordinate real general\n"


@pytest.mark.parametrize(("text", "said"), [
    ("", "line 0: the first line"), ("%%MatrixMarket vector coordinate real general\n", "the first line"),
    ("%%MatrixMarket matrix blocks real general\n", "format 'blocks'"),
    ("%%MatrixMarket matrix coordinate quaternion general\n", "field 'quaternion'"),
    ("%%MatrixMarket matrix array pattern general\n", "field 'pattern'"),
    ("%%MatrixMarket matrix coordinate real hermitian\n", "symmetry 'hermitian'"),
    ("%%MatrixMarket matrix coordinate real symmetric\n2 3 0\n", "not square"),
    ("%%MatrixMarket matrix coordinate real symmetric\n2 2 1\n1 2 5\n", "lies above"),
    ("%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n1 1 5\n", "no diagonal"),
    (HEAD + "2 2\n", "3 whole numbers"), (HEAD + "2 -2 1\n", "3 whole numbers"), (HEAD + "2 2 5\n", "5 elements in a"),
    (HEAD + "1000000 1000000 900000000\n", "in a file of"), (HEAD + "99999999999999 1 0\n", "beyond"),
    (HEAD + "1000000000000 1 1\n1 1 5\n", "beyond the memory"),
    (HEAD + "2 2 1\n", "in a file|ends after"), (HEAD + "2 2 2\n1 1 5\n", "ends after 1 of 2"),
    (HEAD + "2 2 1\n3 1 5\n", "row 3 is not between 1 and 2"), (HEAD + "2 2 1\n1 0 5\n", "column 0"),
    (HEAD + "2 2 1\n1 1\n", "2 numbers instead of 3"), (HEAD + "2 2 1\n1 1 five\n", "'five' is not real"),
    (HEAD + "2 2 1\n1 1 5\n1 2 5\n", "more lines"), (HEAD + "2 2 1\n1 1 " + "5" * 5000, "longer than"),
    ("%%MatrixMarket matrix array real general\n100000 100000\n1\n", "in a file of"),
    ("%%MatrixMarket matrix array real general\n1 2\n1\n", "ends before"),
    ("%%MatrixMarket matrix coordinate integer general\n1 1 1\n1 1 99999999999999999999\n", "is not integer"),
    ("%%MatrixMarket matrix array unsigned-integer skew-symmetric\n2 2\n1\n", "does not go with"),
    ("%%MatrixMarket matrix array integer skew-symmetric\n2 2\n-9223372036854775808\n", "is not integer"),
    (HEAD + "1 1 1\n1 1 1_000\n", "'1_000' is not real"), (HEAD + "1 1 1\n1 1 \u0663\n", "is not real"),
    (HEAD + "1 1 1\n1 1\x1f5\n", "2 numbers instead of 3"), (HEAD + "1\u00a01 1\n1 1 5\n", "3 whole numbers"),
])
def test_damaged_files_are_told(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.mtx"
    path.write_text(text)
    with pytest.raises(ValueFault, match=said):
        mo.sparse.read_mm(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MorphoError, match="cannot be read"):
        mo.sparse.read_mm(tmp_path / "none.mtx")
    with pytest.raises(MorphoError, match="cannot be written"):
        mo.sparse.write_mm(tmp_path / "none" / "a.mtx", mo.sparse.eye(2))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_a_changed_byte_is_a_matrix_or_an_error_in_words(tmp_path: Path, data: Any) -> None:
    kind, text, _ = data.draw(st.sampled_from(FILES))
    content = bytearray(f"%%MatrixMarket matrix {kind}\n{text}".encode())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place:place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
        if not content:
            break
    path = tmp_path / "changed.mtx"
    path.write_bytes(bytes(content))
    try:
        found = mo.sparse.read_mm(path)
        assert len(found.shape) == 2
    except MorphoError as error:
        assert "changed.mtx" in str(error)


def test_packed_files_and_numbers_without_a_sign(tmp_path: Path) -> None:
    whole = mo.asarray(np.array([[0, 2**63 + 5], [7, 0]], np.uint64))
    for a in (mo.sparse.from_dense(whole), whole):
        mo.sparse.write_mm(tmp_path / "a.mtx", a)
        (tmp_path / "a.mtx.gz").write_bytes(gzip.compress((tmp_path / "a.mtx").read_bytes()))
        for name in ("a.mtx", "a.mtx.gz"):
            found: Any = mo.sparse.read_mm(tmp_path / name)
            assert found.dtype is mo.uint64
            back = found.to_dense().numpy() if mo.sparse.is_sparse(found) else found.numpy()
            np.testing.assert_array_equal(back, whole.numpy())
    packed = (tmp_path / "a.mtx.gz").read_bytes()
    for damaged in (packed[:-9], packed[:4], b"no such thing", packed[:20] + b"\xff" * 8 + packed[28:]):
        (tmp_path / "b.mtx.gz").write_bytes(damaged)
        with pytest.raises(MorphoError, match=r"\[read_mm\]"):
            mo.sparse.read_mm(tmp_path / "b.mtx.gz")


def test_infinite_parts_of_complex_numbers_stay_what_they_are(tmp_path: Path) -> None:
    head = "%%MatrixMarket matrix coordinate complex general\n"
    (tmp_path / "a.mtx").write_text(f"{head}2 2 4\n2 1 1 inf\n1 2 -inf 2\n1 1 3 nan\n2 1 1 1\n")
    found = mo.sparse.read_mm(tmp_path / "a.mtx")
    want = np.array([[complex(3, np.nan), complex(-np.inf, 2)], [complex(2, np.inf), 0]])
    np.testing.assert_array_equal(found.to_dense().numpy().view(np.float64), want.view(np.float64))


def _scipys(io: Any, path: Path) -> Any:
    try:
        found = io.mmread(path)
    except (ValueError, OverflowError):
        return None
    return found.toarray() if hasattr(found, "toarray") else found


WORDS = [b"-1", b"0", b"1e400", b"nan", b"abc", b"1.5", b"+3", b"0x10", b"1_000", b"", b"\t", b"1 1", b"%", b"1d5",
         b"\xff", b"\x00", b"\r", b"18446744073709551616", b"1e", b".5", b"infinity", b"1,5", b"99999999999", b"\x1f",
         b"9" * 25]


def _mutated(raw: bytes, rng: np.random.Generator) -> bytes:
    """Truncated, or with a word, a line or a count that is another one, twice or not there."""
    lines = [line.split(b" ") for line in raw.split(b"\n")]
    at = int(rng.integers(len(lines)))
    how, word, spot = int(rng.integers(5)), WORDS[rng.integers(len(WORDS))], int(rng.integers(len(lines[at])))
    if how == 0:
        return raw[:rng.integers(len(raw))]
    if how == 1:
        lines.insert(at, lines[rng.integers(len(lines))])
    elif how == 2:
        del lines[at]
    else:
        line = lines[at] if how == 3 else lines[min(2, len(lines) - 1)]
        line[min(spot, len(line) - 1)] = word
    return b"\n".join(b" ".join(line) for line in lines)


@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric", "hermitian"])
def test_mutated_files_are_errors_in_words_or_what_scipy_reads(symmetry: str, tmp_path: Path,
                                                               rng: np.random.Generator) -> None:
    """Where both accept a file, both read the same numbers."""
    io = pytest.importorskip("scipy.io", reason="compares with SciPy where it is installed")
    sparse = pytest.importorskip("scipy.sparse", reason="compares with SciPy where it is installed")
    whole = rng.integers(-4, 5, (4, 4)) + (1j * rng.integers(-3, 4, (4, 4)) if symmetry == "hermitian" else 0)
    whole = {"symmetric": whole + whole.T, "skew-symmetric": whole - whole.T,
             "hermitian": whole + whole.conj().T}.get(symmetry, whole)
    path = tmp_path / "a.mtx"
    for a in (whole, whole * 1.5, sparse.coo_array(whole), sparse.coo_array(whole * 0.5)):
        io.mmwrite(path, a, comment="said", symmetry=symmetry)
        good = path.read_bytes()
        for _ in range(40):
            raw = _mutated(good, rng)
            path.write_bytes(raw)
            try:
                found: Any = mo.sparse.read_mm(path)
            except MorphoError as error:
                assert "a.mtx" in str(error)
                continue
            if math.prod(found.shape) > 10_000:  # of a size that was mutated
                continue
            mine = (found.to_dense() if mo.sparse.is_sparse(found) else found).numpy()
            its = _scipys(io, path)
            assert its is None or (mine.shape == its.shape and np.array_equal(mine, its, equal_nan=True)), raw


def test_files_that_scipy_writes(tmp_path: Path, rng: np.random.Generator) -> None:
    """Every field and symmetry, sparse and dense."""
    io = pytest.importorskip("scipy.io", reason="compares with SciPy where it is installed")
    sparse = pytest.importorskip("scipy.sparse", reason="compares with SciPy where it is installed")
    real = rng.normal(size=(6, 6)) * (rng.random((6, 6)) < 0.5)
    both, whole = real + 1j * rng.normal(size=(6, 6)) * (real != 0), np.round(real * 9).astype(np.int64)
    turned = {"symmetry": "skew-symmetric"}
    for a, options in ((real, {}), (real + real.T, {"symmetry": "symmetric"}), (real - real.T, turned), (both, {}),
                       (both + both.conj().T, {"symmetry": "hermitian"}), (both - both.T, turned), (whole, {}),
                       (np.abs(whole).astype(np.uint32), {}),
                       (whole + whole.T, {"symmetry": "symmetric"}), ((real != 0) * 1.0, {"field": "pattern"})):
        for matrix in (sparse.coo_array(a), *([] if "field" in options else [a])):
            io.mmwrite(tmp_path / "a.mtx", matrix, **options)
            found: Any = mo.sparse.read_mm(tmp_path / "a.mtx")
            back = found.to_dense().numpy() if mo.sparse.is_sparse(found) else found.numpy()
            np.testing.assert_allclose(back, a, rtol=1e-12)
            mo.sparse.write_mm(tmp_path / "b.mtx", found)
            again = io.mmread(tmp_path / "b.mtx")
            np.testing.assert_array_equal(again.toarray() if sparse.issparse(again) else again, back)
