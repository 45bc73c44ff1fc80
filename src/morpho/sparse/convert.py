"""Making sparse matrices, and other formats of them: dense, SciPy, COO, BSR."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, DTypeError, IndexFault, ShapeError, fail
from morpho.base.shapes import as_integer
from morpho.sparse.arrays import BSR, COO, CSC, CSR, Compressed, Matrix, Tensor
from morpho.sparse.checks import CONVERT, compressed, op, places, rows_of
from morpho.sparse.products import spgemm, turned
from morpho.tensor.core import uses_parameters
from morpho.tensor.sync import realised_array


# -- checked parts -----------------------------------------------------------------------------------------------------
def csr(data: Any, indices: Any, indptr: Any, shape: Any, *, copy: bool | None = None) -> CSR:
    """A CSR matrix from its parts, checked: starts rise from 0 to the number of elements, columns lie inside. Columns
    out of order are put in order, and equal places added up.

    `copy=False` borrows NumPy arrays, which are read when the graph runs. Inside `mo.compile` values cannot be looked
    at: kernels check every index they read there, and columns must be in order, each once.

    >>> mo.sparse.csr([1.0, 2.0], [1, 0], [0, 1, 2], (2, 2)).to_dense().tolist()
    [[0.0, 1.0], [2.0, 0.0]]
    """
    parts = _parts("csr", data, indices, indptr, _shape("csr", shape), copy)
    return _checked("csr", CSR(*parts))  # type: ignore[return-value]


def csc(data: Any, indices: Any, indptr: Any, shape: Any, *, copy: bool | None = None) -> CSC:
    """A CSC matrix from its parts, checked as those of `csr` are.

    >>> mo.sparse.csc([1.0, 2.0], [1, 0], [0, 1, 2], (2, 2)).to_dense().tolist()
    [[0.0, 2.0], [1.0, 0.0]]
    """
    parts = _parts("csc", data, indices, indptr, _shape("csc", shape), copy)
    return _checked("csc", CSC(*parts))  # type: ignore[return-value]


def coo(data: Any, places: Any, shape: Any) -> COO:
    """Coordinates: numbers, (rows, columns), and a shape.

    >>> mo.sparse.coo([5.0], ([1], [0]), (2, 2)).to_dense().tolist()
    [[0.0, 0.0], [5.0, 0.0]]
    """
    size = _shape("coo", shape)
    if not isinstance(places, tuple | list) or len(places) != 2:
        raise fail(ArgumentError, "coo", "the places are not rows and columns", "coo(data, (rows, columns), shape)")
    numbers = _tensor(data, None)
    row, col = (_whole("coo", what, x, None) for what, x in zip(("rows", "columns"), places, strict=True))
    if not numbers.shape == row.shape == col.shape or numbers.ndim != 1:
        raise fail(ShapeError, "coo", f"{numbers.shape} numbers, {row.shape} rows and {col.shape} columns are not "
                                      "vectors of one length")
    for what, index, limit in (("row", row, size[0]), ("column", col, size[1])):
        _inside("coo", what, index, limit)
    return COO(numbers, row, col, size)


def _tensor(x: Any, copy: bool | None) -> Tensor:
    return x if isinstance(x, Tensor) else mo.asarray(x, copy=copy)


def _shape(name: str, shape: Any) -> tuple[int, int]:
    if not isinstance(shape, tuple | list) or len(shape) != 2:
        raise fail(ShapeError, name, f"shape {shape!r} is not that of a matrix", "give (rows, columns)")
    rows, columns = (as_integer(n, name, "size") for n in shape)
    if rows < 0 or columns < 0:
        raise fail(ShapeError, name, f"shape {(rows, columns)} has a negative size")
    return rows, columns


def _whole(name: str, what: str, x: Any, copy: bool | None) -> Tensor:
    """Indices as int32 or int64."""
    found = _tensor(x, copy)
    if found.ndim == 1 and found.shape[0] == 0 and not found.dtype.is_integer:
        return mo.zeros(0, dtype="int64")
    if not found.dtype.is_integer:
        raise fail(DTypeError, name, f"{what} are {found.dtype}, not integers")
    return found if found.dtype in (mo.int32, mo.int64) else mo.astype(found, mo.int64)


def _parts(name: str, data: Any, indices: Any, indptr: Any, shape: tuple[int, int],
           copy: bool | None) -> tuple[Tensor, Tensor, Tensor, tuple[int, int]]:
    numbers = _tensor(data, copy)
    index, starts = _whole(name, "indices", indices, copy), _whole(name, "indptr", indptr, copy)
    if numbers.ndim != 1 or numbers.shape != index.shape:
        raise fail(ShapeError, name, f"{numbers.shape} numbers for {index.shape} indices")
    lines = shape[0] if name == "csr" else shape[1]
    if starts.shape != (lines + 1,):
        raise fail(ShapeError, name, f"indptr has shape {starts.shape} for {lines} {_lines(name)}s; it takes one more")
    return numbers, index, starts, shape


def _lines(name: str) -> str:
    return "row" if name == "csr" else "column"


def _checked(name: str, a: Compressed) -> Compressed:
    if not uses_parameters([a.indptr.node]):
        starts = realised_array(a.indptr, name, "row starts are checked")
        if starts[0] != 0 or starts[-1] != a.nnz or np.any(np.diff(starts) < 0):
            raise fail(IndexFault, name, f"indptr does not rise from 0 to the {a.nnz} elements there are")
    _inside(name, "column" if name == "csr" else "row", a.indices, a.shape[1] if name == "csr" else a.shape[0])
    return _in_order(name, a)


def _in_order(name: str, a: Compressed) -> Compressed:
    """The matrix itself where each line's indices rise; otherwise put in order, with equal places added up: elements
    are looked for by halving, and what is stored twice would be seen once."""
    if uses_parameters([a.indptr.node, a.indices.node]) or a.nnz < 2:
        return a
    index, starts = (realised_array(part, name, "places are put in order") for part in (a.indices, a.indptr))
    falls = np.flatnonzero(np.diff(index) <= 0) + 1
    if np.isin(falls, starts).all():
        return a
    return sum_duplicates(a) if isinstance(a, CSR) else sum_duplicates(a.T).T


def _inside(name: str, what: str, index: Tensor, size: int) -> None:
    """Refuse an index that leaves the matrix, where it is known yet."""
    if uses_parameters([index.node]) or index.shape[0] == 0:
        return
    values = realised_array(index, name, f"{what} numbers are checked")
    low, high = int(values.min()), int(values.max())
    if low < 0 or high >= size:
        raise fail(IndexFault, name, f"{what} {low if low < 0 else high} is out of range for {size} {what}s")


# -- from others -------------------------------------------------------------------------------------------------------
def from_dense(x: Any, /, *, index_dtype: Any = "int32") -> CSR:
    """The elements of a dense matrix that are not zero. Their number is known at once, so not inside `compile`.

    >>> mo.sparse.from_dense(mo.asarray([[0, 7], [8, 0]]))
    CSR(2 x 2, 2 stored, int64)
    """
    dense = _tensor(x, None)
    if dense.ndim != 2:
        raise fail(ShapeError, "from_dense", f"shape {dense.shape} is not that of a matrix")
    row, col = mo.nonzero(dense)
    starts = mo.searchsorted(row, mo.arange(dense.shape[0] + 1, dtype=row.dtype))
    data = mo.take(mo.reshape(dense, (-1,)), row * dense.shape[1] + col)
    return CSR(data, mo.astype(col, index_dtype), mo.astype(starts, index_dtype),
               (int(dense.shape[0]), int(dense.shape[1])))


def from_scipy(a: Any, /, *, copy: bool | None = None) -> Matrix:
    """A SciPy matrix in its own format (CSR, CSC, COO or BSR; others become CSR).

    `copy=False` borrows its memory: nothing is copied, and it is read when the graph runs. Only rows out of order or
    with equal places are put in order, as `csr` does.

    >>> import scipy.sparse                                                    # doctest: +SKIP
    >>> mo.sparse.from_scipy(scipy.sparse.eye_array(3, format="csr"))          # doctest: +SKIP
    CSR(3 x 3, 3 stored, float64)
    """
    kind = getattr(a, "format", None)
    if kind is None or len(getattr(a, "shape", ())) != 2:
        raise fail(ArgumentError, "from_scipy", f"{type(a).__name__} is not a sparse matrix of SciPy")
    if kind not in ("csr", "csc", "coo", "bsr"):
        a, kind = a.tocsr(), "csr"
    shape = (int(a.shape[0]), int(a.shape[1]))
    names = {"coo": ("data", "row", "col")}.get(kind, ("data", "indices", "indptr"))
    parts = [mo.asarray(getattr(a, name), copy=copy) for name in names]
    kinds: dict[str, Any] = {"csr": CSR, "csc": CSC, "coo": COO, "bsr": BSR}
    made: Matrix = kinds[kind](*parts, shape)
    return _in_order("from_scipy", made) if isinstance(made, CSR | CSC) else made


def to_scipy(a: Matrix, /) -> Any:
    """SciPy's matrix of the same format and the same memory, which is read-only. Needs SciPy.

    >>> mo.sparse.eye(2).to_scipy().nnz                                        # doctest: +SKIP
    2
    """
    try:
        scipy = importlib.import_module("scipy.sparse")
    except ImportError:
        raise fail(ArgumentError, "to_scipy", "SciPy is not installed", "pip install scipy") from None
    *tensors, _ = a
    parts = tuple(part.numpy() for part in tensors)
    if isinstance(a, COO):
        return scipy.coo_array((parts[0], parts[1:]), shape=a.shape)
    kind = {CSR: scipy.csr_array, CSC: scipy.csc_array, BSR: scipy.bsr_array}[type(a)]
    return kind(parts, shape=a.shape, copy=False)


def eye(rows: int, columns: int | None = None, /, *, dtype: Any = None, index_dtype: Any = "int32") -> CSR:
    """The identity.

    >>> mo.sparse.eye(2).to_dense().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    shape = _shape("eye", (rows, rows if columns is None else columns))
    count = min(shape)
    starts = mo.minimum(mo.arange(shape[0] + 1, dtype=index_dtype), mo.full((), count, dtype=index_dtype))
    return CSR(mo.ones(count, dtype=dtype), mo.arange(count, dtype=index_dtype), starts, shape)


def diags(diagonals: Any, offsets: Any = (0,), /, *, shape: Any = None, index_dtype: Any = "int32") -> CSR:
    """A banded matrix: `diagonals[i]` is a vector, or a number, on the diagonal number `offsets[i]`, above if positive.

    >>> mo.sparse.diags([[1.0, 1.0], -2.0, 1.0], [1, 0, -1], shape=(3, 3)).to_dense().tolist()
    [[-2.0, 1.0, 0.0], [1.0, -2.0, 1.0], [0.0, 1.0, -2.0]]
    """
    lines = [np.asarray(one.numpy() if isinstance(one, Tensor) else one) for one in diagonals]
    steps = [as_integer(one, "diags", "offset") for one in offsets]
    if len(lines) != len(steps):
        raise fail(ArgumentError, "diags", f"{len(lines)} diagonals for {len(steps)} offsets")
    if shape is None:
        if not lines or lines[0].ndim == 0:
            raise fail(ArgumentError, "diags", "numbers alone give no shape", "give shape=(rows, columns)")
        side = lines[0].size + abs(steps[0])
        shape = (side, side)
    rows, columns = _shape("diags", shape)
    row, col, values = [], [], []
    for line, step in zip(lines, steps, strict=True):
        first = np.arange(max(0, -step), max(0, min(rows, columns - step)))
        if line.ndim and line.size != first.size:
            raise fail(ShapeError, "diags", f"diagonal {step} has {first.size} places, not {line.size}")
        row.append(first)
        col.append(first + step)
        values.append(np.broadcast_to(line, first.shape))
    joined = [np.concatenate(parts) if parts else np.zeros(0, np.int64) for parts in (values, row, col)]
    data = joined[0].astype(np.float32) if joined[0].dtype == np.float64 and not any(
        isinstance(one, np.ndarray | Tensor) for one in diagonals) else joined[0]
    return tocsr(coo(data, tuple(x.astype(mo.zeros(0, dtype=index_dtype).numpy().dtype) for x in joined[1:]),
                     (rows, columns)))


def random(rows: int, columns: int, /, *, density: float, key: Any, dtype: Any = None) -> CSR:
    """A matrix whose elements are stored with probability `density`, and then normal.

    >>> a = mo.sparse.random(100, 50, density=0.1, key=mo.random.key(0))
    >>> a.shape, 300 < a.nnz < 700
    ((100, 50), True)
    """
    if not 0 <= density <= 1:
        raise fail(ArgumentError, "random", f"density {density} is not between 0 and 1")
    shape = _shape("random", (rows, columns))
    seeds = mo.random.split(key, 2)
    generator = np.random.default_rng(np.asarray(realised_array(mo.asarray(seeds[0]), "random", "places")).astype(
        np.uint64).reshape(-1))
    counts = generator.binomial(shape[1], density, shape[0])
    starts = np.concatenate([[0], np.cumsum(counts)])
    index = np.concatenate([np.sort(generator.choice(shape[1], n, replace=False)) for n in counts]
                           or [np.zeros(0)]).astype(np.int32)
    data = mo.random.normal(seeds[1], (int(starts[-1]),), dtype=dtype)
    return CSR(data, mo.asarray(index), mo.asarray(starts.astype(np.int32)), shape)


# -- formats -----------------------------------------------------------------------------------------------------------
def to_dense(a: Matrix) -> Tensor:
    """Every element in its place; equal places add up."""
    if isinstance(a, BSR):
        a = _expanded(a)
    row, col = (a.row, a.col) if isinstance(a, COO) else places(a)
    size = a.shape[0] * a.shape[1]
    at = mo.astype(row, mo.int64) * a.shape[1] + mo.astype(col, mo.int64)
    flat = mo.scatter_add(mo.zeros(size, dtype=a.dtype), at, a.data)
    return mo.reshape(flat, a.shape)


def tocsr(a: Matrix) -> CSR:
    """In rows. Coordinates are sorted, and equal places added up."""
    if isinstance(a, CSR):
        return a
    if isinstance(a, CSC):
        return turned(a)  # type: ignore[no-any-return]
    if isinstance(a, BSR):
        return _expanded(a)
    order = mo.argsort(a.row, stable=True)
    starts = mo.searchsorted(mo.take(a.row, order), mo.arange(a.shape[0] + 1, dtype=a.row.dtype))
    loose = CSR(mo.take(a.data, order), mo.take(a.col, order), mo.astype(starts, a.row.dtype), a.shape)
    return sum_duplicates(loose)


def sum_duplicates(a: CSR, /) -> CSR:
    """Columns in order, and equal places added up: a product with the identity.

    >>> mo.sparse.sum_duplicates(mo.sparse.CSR(mo.asarray([1.0, 2.0]), mo.asarray([0, 0]), mo.asarray([0, 2]), (1, 1)))
    CSR(1 x 1, 1 stored, float32)
    """
    if a.dtype.kind == "c":  # in parts: an infinite part times 1 + 0j makes the other NaN
        real, imaginary = (sum_duplicates(a.with_data(part(a.data))) for part in (mo.real, mo.imag))
        return real.with_data(op("complex", real.data, imaginary.data))
    narrow = a.dtype.kind == "b"
    numbers = a.with_data(mo.astype(a.data, mo.int8)) if narrow else a
    found = spgemm(numbers, eye(a.shape[1], dtype=numbers.dtype, index_dtype=a.indices.dtype))
    assert isinstance(found, CSR)
    return found.with_data(found.data != 0) if narrow else found


def tocsc(a: Matrix) -> CSC:
    """In columns."""
    return a if isinstance(a, CSC) else turned(tocsr(a))


def tocoo(a: Compressed) -> COO:
    """In coordinates, of the same numbers."""
    return COO(a.data, *places(a), a.shape)


def tobsr(a: Compressed, blocksize: tuple[int, int]) -> BSR:
    """In dense blocks; those without an element are not stored."""
    height, width = (as_integer(n, "tobsr", "block size") for n in blocksize)
    if height < 1 or width < 1 or a.shape[0] % height or a.shape[1] % width:
        raise fail(ShapeError, "tobsr", f"shape {a.shape} is not made of blocks of {height} x {width}")
    rows = tocsr(a)
    row, col = places(rows)
    high, wide = mo.full((), height, dtype=row.dtype), mo.full((), width, dtype=row.dtype)
    small = (a.shape[0] // height, a.shape[1] // width)
    pattern = tocsr(COO(mo.ones(a.nnz, dtype=mo.int8), row // high, col // wide, small))
    keys = _keys(pattern)
    wanted = mo.astype(row // high, mo.int64) * small[1] + mo.astype(col // wide, mo.int64)
    block = mo.searchsorted(keys, wanted)
    at = (block * height + mo.astype(row % high, mo.int64)) * width + mo.astype(col % wide, mo.int64)
    flat = mo.scatter_add(mo.zeros(pattern.nnz * height * width, dtype=a.dtype), at, rows.data)
    return BSR(mo.reshape(flat, (pattern.nnz, height, width)), pattern.indices, pattern.indptr, a.shape)


def _keys(a: CSR) -> Tensor:
    """One number for every place, rising where columns are in order."""
    return mo.astype(rows_of(a), mo.int64) * a.shape[1] + mo.astype(a.indices, mo.int64)


keys_of = _keys


def _expanded(a: BSR) -> CSR:
    """Every element of every block, row by row."""
    height, width = a.blocksize
    dtype = a.indices.dtype
    blocks = a.indptr[1:] - a.indptr[:-1]
    lengths = mo.repeat(blocks, height) * mo.full((), width, dtype=blocks.dtype)
    starts = mo.astype(mo.cumulative_sum(lengths, include_initial=True), a.indptr.dtype)
    within = mo.reshape(mo.arange(width, dtype=dtype), (1, width))
    columns = mo.reshape(mo.reshape(a.indices, (-1, 1)) * mo.full((), width, dtype=dtype) + within, (-1,))
    # element (block, y, x) lies at row start + (number of the block in its row) * width + x
    of_block = mo.astype(op("searchsorted", a.indptr, mo.arange(a.data.shape[0], dtype=a.indptr.dtype), side="right")
                         - 1, mo.int64)
    number = mo.arange(a.data.shape[0], dtype=mo.int64) - mo.take(mo.astype(a.indptr, mo.int64), of_block)
    line = of_block[:, None] * height + mo.arange(height, dtype=mo.int64)[None, :]
    at = mo.take(mo.astype(starts, mo.int64), mo.reshape(line, (-1,)))
    at = mo.reshape(at, (-1, height)) + number[:, None] * width
    flat = mo.reshape(at[:, :, None] + mo.arange(width, dtype=mo.int64)[None, None, :], (-1,))
    data = mo.scatter(mo.zeros(a.nnz, dtype=a.dtype), flat, mo.reshape(a.data, (-1,)))
    wide = mo.broadcast_to(mo.reshape(columns, (-1, 1, width)), (a.data.shape[0], height, width))
    indices = mo.scatter(mo.zeros(a.nnz, dtype=dtype), flat, mo.reshape(wide, (-1,)))
    return CSR(data, indices, starts, a.shape)


CONVERT.update({COO: tocsr, BSR: tocsr})
__all__ = ["compressed"]
