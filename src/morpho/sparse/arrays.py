"""The formats: compressed sparse rows (CSR) and columns (CSC), coordinates (COO), block rows (BSR).

Each is a named tuple of tensors and a shape, hence a tree: it goes into and out of `mo.compile`, loops, `mo.vmap` and
`mo.grad` like any tuple of tensors. Names of the parts are SciPy's. Operators are those of a matrix: `operators.py`
fills the table that they look into.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import morpho as mo
from morpho.base.errors import ArgumentError, fail

Tensor = mo.Tensor
METHODS: dict[str, Callable[..., Any]] = {}  # name of a method -> the function; filled by `operators.py`


class _Compressed(NamedTuple):
    data: Any  # tensors; anything while a tree of another kind is built
    indices: Any
    indptr: Any
    shape: tuple[int, int]


class _Coordinates(NamedTuple):
    data: Any
    row: Any
    col: Any
    shape: tuple[int, int]


class _Matrix:
    """Base of all formats."""

    __slots__ = ()
    __array_ufunc__ = None  # NumPy's operators, and a tensor's, leave sparse operands to these classes
    data: Any
    shape: tuple[int, int]

    @property
    def dtype(self) -> Any:
        """That of the numbers."""
        return self.data.dtype

    @property
    def device(self) -> str:
        """Where its parts lie."""
        return str(self.data.device)

    def to(self, device: str) -> Self:
        """With all parts on a device.

        >>> mo.sparse.eye(3).to("cpu").device
        'cpu'
        """
        parts: Any = self
        *tensors, shape = parts
        return type(self)(*(part.to(device) for part in tensors), shape)  # type: ignore[call-arg]

    @property
    def nnz(self) -> int:
        """Stored elements."""
        return int(self.data.shape[0])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape[0]} x {self.shape[1]}, {self.nnz} stored, {self.dtype})"

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """NumPy would make an array of objects of it, or a dense one nobody asked for: neither."""
        raise fail(ArgumentError, "sparse", f"a {type(self).__name__} does not become a NumPy array by itself",
                   "use .to_dense().numpy(), or its parts .data and .indices")

    def __getattr__(self, name: str) -> Any:
        """Names that SciPy's and PyTorch's matrices have, and these have not."""
        hint = {"todense": "to_dense()", "toarray": "to_dense().numpy()", "A": "to_dense().numpy()", "values": "data",
                "crow_indices": "indptr", "col_indices": "indices", "dot": "a @ b", "getnnz": "nnz",
                "numpy": "to_dense().numpy()"}.get(name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}"
                             + (f". Hint: use {hint}." if hint else ""), name=name, obj=None if hint else self)

    def to_dense(self) -> Tensor:
        """A dense tensor; equal places add up."""
        return METHODS["to_dense"](self)  # type: ignore[no-any-return]

    def tocsr(self) -> CSR:
        """In compressed rows."""
        return METHODS["tocsr"](self)  # type: ignore[no-any-return]

    def tocsc(self) -> CSC:
        """In compressed columns."""
        return METHODS["tocsc"](self)  # type: ignore[no-any-return]

    def to_scipy(self) -> Any:
        """SciPy's matrix of the same memory."""
        return METHODS["to_scipy"](self)


class _Operators(_Matrix):
    """Operators of the compressed formats."""

    __slots__ = ()

    def __matmul__(self, other: Any) -> Any:
        return METHODS["matmul"](self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return METHODS["matmul"](other, self)

    def __add__(self, other: Any) -> Any:
        return METHODS["add"](self, other)

    def __radd__(self, other: Any) -> Any:
        return METHODS["add"](other, self)

    def __sub__(self, other: Any) -> Any:
        return METHODS["subtract"](self, other)

    def __rsub__(self, other: Any) -> Any:
        return METHODS["subtract"](other, self)

    def __mul__(self, other: Any) -> Any:
        return METHODS["multiply"](self, other)

    def __rmul__(self, other: Any) -> Any:
        return METHODS["multiply"](other, self)

    def __truediv__(self, other: Any) -> Any:
        return METHODS["divide"](self, other)

    def __eq__(self, other: Any) -> Any:
        return METHODS["equal"](self, other)

    def __ne__(self, other: Any) -> Any:
        return METHODS["not_equal"](self, other)

    def __lt__(self, other: Any) -> Any:
        return METHODS["less"](self, other)

    def __le__(self, other: Any) -> Any:
        return METHODS["less_equal"](self, other)

    def __gt__(self, other: Any) -> Any:
        return METHODS["greater"](self, other)

    def __ge__(self, other: Any) -> Any:
        return METHODS["greater_equal"](self, other)

    def __getitem__(self, key: Any) -> Any:
        return METHODS["getitem"](self, key)

    def __neg__(self) -> Self:
        return self.with_data(-self.data)

    def __abs__(self) -> Self:
        return self.with_data(mo.abs(self.data))

    def with_data(self, data: Any) -> Self:
        """Other numbers at the same places."""
        parts: Any = self
        _, *rest = parts
        return type(self)(data, *rest)  # type: ignore[call-arg]

    def sum(self, *, axis: int | None = None) -> Tensor:
        """The sum of all elements, or along an axis."""
        return METHODS["sum"](self, axis=axis)  # type: ignore[no-any-return]

    def mean(self, *, axis: int | None = None) -> Tensor:
        """The mean of all elements, or along an axis."""
        return METHODS["mean"](self, axis=axis)  # type: ignore[no-any-return]

    def max(self, *, axis: int | None = None) -> Tensor:
        """The largest element, or those along an axis; zeros that are not stored count."""
        return METHODS["max"](self, axis=axis)  # type: ignore[no-any-return]

    def min(self, *, axis: int | None = None) -> Tensor:
        """The smallest element, or those along an axis; zeros that are not stored count."""
        return METHODS["min"](self, axis=axis)  # type: ignore[no-any-return]

    def diagonal(self) -> Tensor:
        """The elements whose row and column are the same."""
        return METHODS["diagonal"](self)  # type: ignore[no-any-return]

    def tocoo(self) -> COO:
        """In coordinates."""
        return METHODS["tocoo"](self)  # type: ignore[no-any-return]

    def tobsr(self, blocksize: tuple[int, int]) -> BSR:
        """In blocks of this size."""
        return METHODS["tobsr"](self, blocksize)  # type: ignore[no-any-return]

    def astype(self, dtype: Any) -> Self:
        """With numbers of another dtype."""
        return self.with_data(mo.astype(self.data, dtype))

    def conj(self) -> Self:
        """The complex conjugate."""
        return self.with_data(mo.conj(self.data)) if self.dtype.kind == "c" else self


class CSR(_Operators, _Compressed):
    """Compressed sparse rows: row r holds `data[indptr[r]:indptr[r + 1]]` in the columns `indices[...]`.

    Parts are taken as they are; `mo.sparse.csr` checks them.

    >>> a = mo.sparse.from_dense(mo.asarray([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]))
    >>> a.nnz, a.indices.tolist(), (a @ mo.asarray([1.0, 1.0, 1.0])).tolist()
    (3, [0, 2, 1], [3.0, 3.0])
    """

    __slots__ = ()

    @property
    def T(self) -> CSC:
        """The transpose: the same memory, seen by columns."""
        return CSC(self.data, self.indices, self.indptr, (self.shape[1], self.shape[0]))

    def rows(self) -> Tensor:
        """The row of every stored element."""
        return METHODS["rows"](self)  # type: ignore[no-any-return]


class CSC(_Operators, _Compressed):
    """Compressed sparse columns: column c holds `data[indptr[c]:indptr[c + 1]]` in the rows `indices[...]`.

    >>> a = mo.sparse.from_dense(mo.asarray([[1.0, 0.0], [2.0, 3.0]])).T
    >>> type(a).__name__, a.to_dense().tolist()
    ('CSC', [[1.0, 2.0], [0.0, 3.0]])
    """

    __slots__ = ()

    @property
    def T(self) -> CSR:
        """The transpose: the same memory, seen by rows."""
        return CSR(self.data, self.indices, self.indptr, (self.shape[1], self.shape[0]))


class _ByRows(_Matrix):
    """Operators of formats that are built from: those of the same matrix as CSR; a tuple's own would be nonsense."""

    __slots__ = ()

    def __matmul__(self, other: Any) -> Any:
        return self.tocsr() @ other

    def __rmatmul__(self, other: Any) -> Any:
        return other @ self.tocsr()

    def __add__(self, other: Any) -> Any:
        return self.tocsr() + other

    def __radd__(self, other: Any) -> Any:
        return other + self.tocsr()

    def __sub__(self, other: Any) -> Any:
        return self.tocsr() - other

    def __rsub__(self, other: Any) -> Any:
        return other - self.tocsr()

    def __mul__(self, other: Any) -> Any:
        return self.tocsr() * other

    def __rmul__(self, other: Any) -> Any:
        return other * self.tocsr()

    def __truediv__(self, other: Any) -> Any:
        return self.tocsr() / other

    def __eq__(self, other: Any) -> Any:
        return self.tocsr() == other

    def __ne__(self, other: Any) -> Any:
        return self.tocsr() != other

    def __lt__(self, other: Any) -> Any:
        return self.tocsr() < other

    def __le__(self, other: Any) -> Any:
        return self.tocsr() <= other

    def __gt__(self, other: Any) -> Any:
        return self.tocsr() > other

    def __ge__(self, other: Any) -> Any:
        return self.tocsr() >= other

    def __getitem__(self, key: Any) -> Any:
        return self.tocsr()[key]

    def __neg__(self) -> CSR:
        return -self.tocsr()

    def __abs__(self) -> CSR:
        return abs(self.tocsr())


class COO(_ByRows, _Coordinates):
    """Coordinates, to build from: element i is `data[i]` at `row[i]`, `col[i]`; equal places add up.

    >>> a = mo.sparse.coo([1.0, 2.0, 4.0], ([0, 1, 1], [1, 0, 0]), (2, 2))
    >>> a.tocsr().to_dense().tolist()
    [[0.0, 1.0], [6.0, 0.0]]
    """

    __slots__ = ()

    @property
    def T(self) -> COO:
        """The transpose, of the same memory."""
        return COO(self.data, self.col, self.row, (self.shape[1], self.shape[0]))


class BSR(_ByRows, _Compressed):
    """Block rows: CSR whose elements are dense blocks, `data` of shape (blocks, height, width).

    >>> a = mo.sparse.from_dense(mo.asarray([[1.0, 2.0, 0.0, 0.0], [3.0, 4.0, 0.0, 0.0]])).tobsr((2, 2))
    >>> a.data.shape, (a @ mo.ones(4)).tolist()
    ((1, 2, 2), [3.0, 7.0])
    """

    __slots__ = ()

    @property
    def nnz(self) -> int:
        """Stored elements, zeros inside blocks among them."""
        blocks, height, width = self.data.shape
        return int(blocks * height * width)

    @property
    def blocksize(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        return self.data.shape[1], self.data.shape[2]

    def __matmul__(self, other: Any) -> Any:
        return METHODS["matmul"](self, other)


Matrix = CSR | CSC | COO | BSR
Compressed = CSR | CSC


def is_sparse(x: Any, /) -> bool:
    """Whether x is one of the sparse formats.

    >>> mo.sparse.is_sparse(mo.sparse.eye(2)), mo.sparse.is_sparse(mo.ones(2))
    (True, False)
    """
    return isinstance(x, _Matrix)
