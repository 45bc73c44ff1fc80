"""Tensors over NumPy arrays that are alike: what is the same for all of them is made once."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

import numpy as np

from morpho.backends.driver.layout import WORD, array_address, pack_record
from morpho.base.dtypes import DType
from morpho.base.shapes import contiguous_strides
from morpho.tensor.core import Tensor

_HEAD = Struct("<QQ").pack  # of a record: the address, and that nobody writes there


def borrower(dtype: DType, shape: tuple[int, ...]) -> Callable[[np.ndarray], Tensor]:
    """A function from arrays to tensors over their memory, which is never written; they have this dtype and shape, are
    aligned and in C order: it does not look.

    >>> over = borrower(mo.float32, (2,))
    >>> x = np.ones(2, np.float32)
    >>> y = over(x)
    >>> x += 1
    >>> y.tolist()
    [2.0, 2.0]
    """
    strides = contiguous_strides(shape)
    tail = pack_record(0, 0, dtype, shape, strides)[2 * WORD:]  # type: ignore[arg-type]

    def over(array: np.ndarray) -> Tensor:
        address = array_address(array)
        made = object.__new__(Tensor)
        made._node = made._track = None
        made._storage = array
        made._layout = (address, shape, strides, dtype, False)  # type: ignore[assignment]
        made._record = _HEAD(address, 0) + tail
        return made

    return over
