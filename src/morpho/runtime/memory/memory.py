"""Memory as its holder sees it: an address, a number of bytes, and NumPy arrays on them that keep it alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from morpho.base.dtypes import DType
from morpho.base.errors import ArgumentError, ValueFault, fail

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray


class Memory:
    """Base of blocks and pieces of regions: `address`, `nbytes`, and being seen as NumPy.

    >>> import morpho as mo
    >>> isinstance(mo.pool.acquire(64), mo.pool.Memory)
    True
    """

    __slots__ = ("address", "nbytes", "__weakref__")

    address: int
    nbytes: int

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (self.address, False), "version": 3}

    def numpy(
        self,
        dtype: DTypeLike | DType,
        shape: int | tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
        readonly: bool = False,
    ) -> NDArray[Any]:
        """This memory as an array, without a copy; the array keeps the memory alive.

        `strides` and `offset` are in bytes, a shape of -1 is all of it. A read-only array cannot be made
        writable again.

        >>> from morpho.runtime.memory.pool import acquire
        >>> acquire(64, zero=True).numpy("int16", (2, 3))
        array([[0, 0, 0],
               [0, 0, 0]], dtype=int16)
        """
        flat = np.asarray(self)
        if readonly:
            flat.flags.writeable = False
        try:
            if offset < 0:  # NumPy does not look
                raise ValueError("the offset is negative")
            kind = dtype.numpy if isinstance(dtype, DType) else dtype
            return np.ndarray(shape, kind, flat, offset, strides)
        except (TypeError, ValueError) as error:
            raise fail(
                ValueFault, "pool",
                f"{self.nbytes} bytes cannot be seen as {dtype} of shape {shape}, strides {strides}, "
                f"offset {offset}: {str(error).rstrip('.')}",
            ) from None

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise fail(ArgumentError, "pool", "a block of memory can neither be copied nor pickled", "copy an array of it")
