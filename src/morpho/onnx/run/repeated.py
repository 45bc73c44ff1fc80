"""A call like the one before: what was checked of its arrays need not be checked again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from morpho.base.dtypes import BY_NUMPY
from morpho.tensor.core import Tensor
from morpho.tensor.interop.alike import borrower


class RepeatedCall:
    """The program of a call that was given arrays, for calls with arrays of the same dtypes and shapes.

    >>> call = RepeatedCall(["x", "n"], [np.zeros(3, np.float32), np.asarray(2)], {"n"}, len)
    >>> [tensor.shape for tensor in call.arguments({"x": np.ones(3, np.float32), "n": np.asarray(2)})]
    [(3,)]
    >>> call.arguments({"x": np.ones(3, np.float32), "n": np.asarray(1)}) is None  # another program's
    True
    """

    def __init__(self, names: Sequence[str], arrays: Sequence[np.ndarray[Any, Any]], static: set[str],
                 program: Any) -> None:
        self.program = program
        self._rows = [(name, array.dtype, borrower(BY_NUMPY[array.dtype], array.shape), array.shape,
                       array.tobytes() if name in static else None) for name, array in zip(names, arrays)]

    @staticmethod
    def of(names: Sequence[str], values: Sequence[Any], static: set[str], program: Any) -> RepeatedCall | None:
        """None where something else than plain arrays was given."""
        plain = all(type(value) is np.ndarray and value.dtype in BY_NUMPY for value in values)
        return RepeatedCall(names, values, static, program) if plain else None

    def arguments(self, inputs: Mapping[str, Any]) -> list[Tensor] | None:
        """The arguments of the program; None where the call is another one."""
        if len(inputs) != len(self._rows):
            return None
        found = []
        for name, dtype, over, shape, fixed in self._rows:
            array = inputs.get(name)
            if type(array) is not np.ndarray or array.dtype != dtype or array.shape != shape:
                return None
            if fixed is not None:
                if array.tobytes() != fixed:
                    return None
                continue
            flags = array.flags
            if not (flags.c_contiguous and flags.aligned):
                return None
            found.append(over(array))
        return found
