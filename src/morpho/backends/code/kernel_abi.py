"""The calling convention of kernels: their C signature, the numbers they are given by name, and the status they return.

`buffers` are the addresses of the operands, `values` the kernel's numbers (sizes, strides, offsets, 64 bits each), the
work is rows `row0..row1` and columns `col0..col1` of its iteration space, `scratch` the memory of the calling thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from morpho.base.dims import Size

if TYPE_CHECKING:
    from morpho.backends.code.emit import Emitter, Value

SIGNATURE = "ptr %buffers, ptr %values, i64 %row0, i64 %row1, i64 %col0, i64 %col1, ptr %scratch"
FAULT_INDEX = 1  # an index lies outside its axis; 0 is no fault
FAULT_HOST = 2  # an operation in NumPy failed: `driver/host_call.py` has the error
FAULT_SINGULAR = 4  # a matrix to be solved with is singular
FAULT_INDEFINITE = 8  # a matrix to be factorised is not positive definite
FAULT_ENDLESS = 16  # a factorisation by rotations does not converge: the matrix is not finite
FAULT_NOT_FINITE = 32  # a matrix whose factorisation iterates has an infinity or NaN
FAULT_NEGATIVE = 64  # a function of a real matrix is complex: an eigenvalue lies on the negative real axis


class Record:
    """The numbers of a kernel in order, by name: one description for who calls it and for who writes its code.

    Lowering makes the numbers by name (`values`), the generator loads them by name (`load`); neither counts positions.
    A field is a number, or an array of so many.

    >>> record = Record("m n strides[2]")
    >>> record.values(n=3, m=2, strides=(3, 1))
    (2, 3, 3, 1)
    >>> record.names, record.at("strides"), len(record)
    (('m', 'n', 'strides0', 'strides1'), 2, 4)
    >>> record.extended("tile").values(m=2, n=3, strides=(3, 1), tile=8)
    (2, 3, 3, 1, 8)
    """

    def __init__(self, fields: str) -> None:
        self.lengths: dict[str, int | None] = {}  # None: a number, not an array
        for field in fields.split():
            name, _, length = field.rstrip("]").partition("[")
            assert name not in self.lengths, f"two fields {name}"
            self.lengths[name] = int(length) if length else None
        self.fields = fields
        self.names = tuple(name for field, length in self.lengths.items()
                           for name in ([field] if length is None else [f"{field}{i}" for i in range(length)]))

    def __len__(self) -> int:
        return len(self.names)

    def extended(self, fields: str) -> Record:
        """The same with more fields behind."""
        return Record(f"{self.fields} {fields}")

    def at(self, field: str) -> int:
        """The position of a number, or of the first one of an array."""
        before = list(self.lengths).index(field)
        return sum(1 if length is None else length for length in list(self.lengths.values())[:before])

    def values(self, **numbers: Size | Sequence[Size]) -> tuple[Size, ...]:
        """The numbers in order; every field must be given, an array with as many numbers as it has."""
        assert numbers.keys() == self.lengths.keys(), sorted(numbers.keys() ^ self.lengths.keys())
        found: list[Size] = []
        for field, length in self.lengths.items():
            given = numbers[field]
            several = list(given) if isinstance(given, Sequence) else [given]
            assert len(several) == (1 if length is None else length), f"{field}: {several}"
            found += several
        return tuple(found)

    def by_name(self, values: Sequence[Size]) -> dict[str, Size]:
        """Numbers as they were given, by name; those behind them are not the record's."""
        return dict(zip(self.names, values, strict=False))

    def load(self, e: Emitter, values: str = "%values") -> dict[str, Value]:
        """The code that loads all numbers, by name; those of an array are `name0`, `name1`, ..."""
        return {name: e.load(e.offset(values, "i64", i), "i64", 1) for i, name in enumerate(self.names)}

    def loaded(self, field: str, values: dict[str, Value]) -> list[Value]:
        """The numbers of an array among those of `load`."""
        return [values[f"{field}{i}"] for i in range(self.lengths[field] or 0)]
