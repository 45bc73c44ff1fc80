"""Host steps inside a native program: a function with the kernels' signature that runs one operation in NumPy.

The driver calls it like any kernel, on the thread that runs the program, whether that holds the interpreter lock or
not: ctypes takes it. An error is kept until the program has come back with the status `FAULT_HOST`.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from morpho.backends.code.kernel_abi import FAULT_HOST
from morpho.backends.reference import reference
from morpho.backends.reference.backend import host_array
from morpho.base.dims import evaluate
from morpho.base.dtypes import bfloat16, float16
from morpho.ir.body import symbols_in
from morpho.program.program import HostStep
from morpho.program.view import View

# The first two arguments of a kernel: the caller's registers hold the others, which nobody reads.
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
MOST_KEPT = 64  # of what is kept by address: an address seen before needs nothing new


def _ignored(step: HostStep) -> None:
    """Nobody counts."""


told: Callable[[HostStep], None] = _ignored  # called before every host step; the runtime floor counts them


def tell(listener: Callable[[HostStep], None]) -> None:
    """Have every host step told before it runs."""
    global told
    told = listener


def look(place: View, address: int, sizes: Mapping[str, int]) -> np.ndarray:
    """The array that lies at an address."""
    shape, strides = (tuple([evaluate(n, sizes) for n in numbers]) for numbers in (place.shape, place.strides))
    return host_array(address, shape, strides, place.dtype)


class HostCall:
    """The native function of a host step; it lives as long as this does."""

    def __init__(self, step: HostStep) -> None:
        self.step, self.node = step, step.node
        node, places = step.node, step.views
        symbols = symbols_in([node.outputs, [child.outputs for child in node.inputs], list(node.attributes.values()),
                              [(place.shape, place.strides) for place in places]])
        self.symbols, self.values = list(symbols), tuple(symbols.values())
        self.table = ctypes.c_int64 * len(places)
        self.tables: dict[int, Any] = {}  # of addresses, on the driver's stack: often in the same place
        self.arrays: dict[tuple[int, ...], list[np.ndarray]] = {}  # of all operands, by their addresses
        self.errors: dict[int, BaseException] = {}  # by thread
        self.compute = self._plain if not symbols and self._is_plain() else self._compute
        self.quiet = "quiet" in node.op.properties
        self.function = FUNCTION(self._call)

    @property
    def address(self) -> int:
        """Of the native function."""
        return ctypes.cast(self.function, ctypes.c_void_p).value or 0

    def _is_plain(self) -> bool:
        """Whether the record's reference is all there is to run: no body, and nothing to round or to convert."""
        node = self.node
        dtypes = [spec.dtype for spec in (*node.outputs, *(child.spec for child in node.inputs))]
        return (node.op.kind != "control" and node.op.name not in ("dimension", "pick")
                and "body" not in node.attributes and "by dtype" not in node.op.properties
                and not {float16, bfloat16} & set(dtypes))

    def error(self) -> BaseException:
        """Error of this thread's last run."""
        return self.errors.pop(threading.get_ident(), None) or KeyboardInterrupt()

    def _call(self, places: int, values: int) -> int:
        try:
            table = self.tables.get(places)
            if table is None:
                table = self._kept(self.tables, places, self.table.from_address(places))
            told(self.step)
            self.compute(tuple(table[:]), values)
            table[0] = 0  # it was run: an exception at this function's first instruction is ctypes's, which goes on
        except BaseException as error:  # native code lies between here and who can be told
            self.errors[threading.get_ident()] = error
            return FAULT_HOST
        return 0

    @staticmethod
    def _kept(known: dict[Any, Any], key: Any, value: Any) -> Any:
        """Remember a value; not too many of them."""
        if len(known) >= MOST_KEPT:
            known.clear()
        known[key] = value
        return value

    def _plain(self, addresses: tuple[int, ...], values: int) -> None:
        """An operation of fixed sizes whose reference gives its results as they are stored."""
        arrays = self.arrays.get(addresses)
        if arrays is None:
            arrays = self._kept(self.arrays, addresses, self._look(addresses, reference.STATIC))
        node, count = self.node, len(self.step.inputs)
        if self.quiet:
            found = node.op.reference(node.attributes, *arrays[:count])
        else:
            with np.errstate(all="ignore"):  # infinities and NaN are results here, not accidents
                found = node.op.reference(node.attributes, *arrays[:count])
        if len(arrays) == count + 1:
            arrays[count][...] = found
        else:
            for target, part in zip(arrays[count:], found, strict=True):
                target[...] = part

    def _compute(self, addresses: tuple[int, ...], values: int) -> None:
        numbers = (ctypes.c_int64 * len(self.symbols)).from_address(values)
        sizes = dict(zip(self.symbols, numbers, strict=True))
        arrays, step = self._look(addresses, sizes), self.step
        count = len(step.inputs)
        given = [reference.decode(array, place.dtype) for array, place in zip(arrays, step.inputs, strict=False)]
        found = reference.run_node(self.node, given, sizes)
        parts = found if isinstance(found, tuple) else (found,)
        for target, place, part in zip(arrays[count:], step.outputs, parts, strict=True):
            if target.size:
                np.copyto(target, reference.encode(part, place.dtype))

    def _look(self, addresses: tuple[int, ...], sizes: Mapping[str, int]) -> list[np.ndarray]:
        return [look(place, address, sizes) for place, address in zip(self.step.views, addresses, strict=True)]
