"""Sparse times dense by cuSPARSE, under `mo.settings(fast=True)`: products alone, without what follows them.

Their order of sums is the library's, and it does not look whether indices lie inside: hence only when the user says so.
A vector whose elements lie side by side is SpMV, all else SpMM by rows. Descriptions are made for each call, which
costs the host little: the library keeps in them what it has found out about a pattern, and patterns change.
"""

from __future__ import annotations

import ctypes
from typing import Any

from morpho.backends.cuda.driver.interface import Device
from morpho.backends.cuda.vendor import libraries
from morpho.backends.kernels.sparse.kernels import SPMM, SpmmKernel
from morpho.base.dtypes import bfloat16, float16, float32, float64, int32, int64
from morpho.base.errors import DeviceError, fail
from morpho.program.program import Step

KINDS = {float32: 0, float64: 1, float16: 2, bfloat16: 14}  # cudaDataType
INDICES = {int32: 2, int64: 3}  # cusparseIndexType_t
AS_IT_IS, BASE_ZERO, BY_ROWS, DEFAULT = 0, 0, 2, 0  # operation, base of indices, order of a matrix, algorithm
NOT_SUPPORTED = 10  # a status


class Sparse:
    """cuSPARSE on one device. `handle` is the library: ctypes' own, or a fake one of tests."""

    def __init__(self, gpu: Device, handle: Any) -> None:
        self.gpu, self.handle, self.context = gpu, handle, ctypes.c_void_p()
        self.refused: set[tuple[Any, ...]] = set()  # kinds of products that the library does not have
        self.calls = 0  # products so far
        self.call("cusparseCreate", ctypes.byref(self.context))

    def call(self, name: str, *given: Any) -> None:
        """A function of the library; a status is an error."""
        status = int(getattr(self.handle, name)(*given))
        if status:
            raise fail(DeviceError, "cusparse", f"{name} gave the status {status}")

    @staticmethod
    def serves(step: Any) -> bool:
        """Whether the library computes a step: a product of numbers alone, of known sizes and one kind of index."""
        kernel = getattr(step, "kernel", None)
        if not isinstance(kernel, SpmmKernel) or kernel.follows or kernel.semiring != "plus_times":
            return False
        if kernel.dtype not in KINDS or kernel.index is not kernel.pointer or kernel.index not in INDICES:
            return False
        sizes = SPMM.by_name(step.values)
        return all(isinstance(sizes[name], int) and sizes[name] > 0 for name in ("rows", "size", "count", "columns"))

    def run(self, step: Step, addresses: tuple[int, ...]) -> bool:
        """Queue a product of what lies at these addresses (the dense operand, indices, starts of rows, numbers, the
        result); False where the library has no way to do it."""
        kernel, n = step.kernel, {name: int(size) for name, size in SPMM.by_name(step.values).items()}
        assert isinstance(kernel, SpmmKernel)
        vector = kernel.single and not kernel.strided
        key = kernel.dtype, kernel.index, vector
        if key in self.refused:
            return False
        made: list[tuple[str, ctypes.c_void_p]] = []
        try:
            done = self._multiply(kernel, n, addresses, vector, made)
        finally:
            for kind, thing in made:
                self.call(f"cusparseDestroy{kind}", thing)
        if not done:
            self.refused.add(key)
        self.calls += done
        return done

    def _multiply(self, kernel: SpmmKernel, n: dict[str, int], addresses: tuple[int, ...], vector: bool,
                  made: list[tuple[str, ctypes.c_void_p]]) -> bool:
        """The operands described, room asked for, and the product queued."""
        kind, index = KINDS[kernel.dtype], INDICES[kernel.index]
        dense, indices, starts, numbers, result = map(ctypes.c_void_p, addresses)

        def described(name: str, what: str, *given: Any) -> ctypes.c_void_p:
            thing = ctypes.c_void_p()
            self.call(f"cusparseCreate{name}", ctypes.byref(thing), *given)
            made.append((what, thing))
            return thing

        def side(lines: int, step: int, address: ctypes.c_void_p) -> ctypes.c_void_p:
            if vector:
                return described("DnVec", "DnVec", _long(lines), address, kind)
            return described("DnMat", "DnMat", _long(lines), _long(n["columns"]), _long(step), address, kind, BY_ROWS)

        a = described("Csr", "SpMat", _long(n["rows"]), _long(n["size"]), _long(n["count"]), starts, indices, numbers,
                      index, index, BASE_ZERO, kind)
        b, c = side(n["size"], max(n["stride"], n["columns"]), dense), side(n["rows"], n["columns"], result)
        scalar = ctypes.c_double if kernel.dtype is float64 else ctypes.c_float
        one, none = scalar(1), scalar(0)
        name, turned = ("cusparseSpMV", (AS_IT_IS,)) if vector else ("cusparseSpMM", (AS_IT_IS, AS_IT_IS))
        given = (self.context, *turned, ctypes.byref(one), a, b, ctypes.byref(none), c,
                 KINDS[float64 if kernel.dtype is float64 else float32], DEFAULT)
        nbytes = ctypes.c_size_t()
        status = int(getattr(self.handle, f"{name}_bufferSize")(*given, ctypes.byref(nbytes)))
        if status == NOT_SUPPORTED:
            return False
        if status:
            raise fail(DeviceError, "cusparse", f"{name}_bufferSize gave the status {status}")
        self.call("cusparseSetStream", self.context, ctypes.c_void_p(self.gpu.stream_handle()))
        room = self.gpu.allocate(max(nbytes.value, 4))
        try:
            self.call(name, *given, ctypes.c_void_p(room))
        finally:
            self.gpu.free(room, max(nbytes.value, 4))
        return True


def _long(number: int) -> ctypes.c_int64:
    return ctypes.c_int64(number)


def sparse_of(backend: Any) -> Sparse | None:
    """cuSPARSE of a GPU's backend, made once; None where the library is not there."""
    if not hasattr(backend, "_sparse"):
        handle = libraries.found("cusparse") if backend.device.startswith("cuda:") else None
        backend._sparse = None if handle is None else Sparse(backend.gpu, handle)
    found: Sparse | None = backend._sparse
    return found
