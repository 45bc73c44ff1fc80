"""Products by cuBLASLt, under `mo.settings(fast=True)`: products alone, without what follows them.

Their order of sums is the library's: hence only when the user says so. It has matrices by columns: C by rows is C^T
there, which is B^T A^T. The way it takes is asked for once for each kind of product and kept.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from morpho.backends.cuda.codegen.grid import Header
from morpho.backends.cuda.driver.interface import Device
from morpho.backends.cuda.driver.launch_code import PRODUCT_WORDS, Kernel
from morpho.backends.cuda.driver.tensor_map import aligned_words
from morpho.backends.cuda.gemm.spec import BATCH_AXES, PRODUCT, ProductKernel
from morpho.backends.cuda.vendor import libraries
from morpho.base.dtypes import bfloat16, float16, float32, float64
from morpho.base.errors import DeviceError, fail
from morpho.program.program import Step

KINDS = {float32: 0, float64: 1, float16: 2, bfloat16: 14}  # cudaDataType
COMPUTE_32F, COMPUTE_64F = 68, 70  # cublasComputeType_t
TRANSPOSE_A, TRANSPOSE_B = 3, 4  # of a product's description
BATCH_COUNT, BATCH_OFFSET = 5, 6  # of a matrix's layout
WORKSPACE_LIMIT, ALIGNMENTS = 1, (5, 6, 7, 8)  # of a preference; of A, B, C and D
WORKSPACE_BYTES = 32 << 20
MOST_ALIGNED, ALIGNED = 256, 16  # bytes; those of native launches


class Found(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [("algorithm", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int),
                ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4)]


class Side(NamedTuple):
    """A matrix by columns: its sizes, elements from one column to the next, and from one matrix of a batch to the
    next."""

    rows: int
    columns: int
    step: int
    batch: int


class Prepared(NamedTuple):
    """A kind of product: its description, the layouts of both sides and of the result, and the way it is computed."""

    description: ctypes.c_void_p
    layouts: tuple[ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    found: Found


class Blas:
    """cuBLASLt on one device. `handle` is the library: ctypes' own, or a fake one of tests."""

    def __init__(self, gpu: Device, handle: Any) -> None:
        self.gpu, self.handle, self.context = gpu, handle, ctypes.c_void_p()
        self.known: dict[tuple[Any, ...], Prepared | None] = {}
        self.calls = 0  # products so far, through Python
        self.ones = [(scalar(1), scalar(0)) for scalar in (ctypes.c_float, ctypes.c_double)]
        self.call("cublasLtCreate", ctypes.byref(self.context))
        self.workspace = gpu.allocate(WORKSPACE_BYTES)

    def call(self, name: str, *given: Any) -> None:
        """A function of the library; a status is an error."""
        status = int(getattr(self.handle, name)(*given))
        if status:
            raise fail(DeviceError, "cublasLt", f"{name} gave the status {status}")

    def made(self, name: str, *given: Any) -> ctypes.c_void_p:
        """A thing of the library's."""
        thing = ctypes.c_void_p()
        self.call(name, ctypes.byref(thing), *given)
        return thing

    @staticmethod
    def serves(step: Any) -> bool:
        """Whether the library computes a step: a product alone, of known sizes and one batch axis at most."""
        kernel = getattr(step, "kernel", None)
        if not isinstance(kernel, ProductKernel) or kernel.epilogue is not None or kernel.dtype not in KINDS:
            return False
        if not kernel.left or not kernel.right or kernel.result not in (kernel.dtype, float32):
            return False
        if not all(isinstance(value, int) for value in step.values):
            return False
        n = PRODUCT.by_name(step.values)
        single = all(n[f"batches{axis}"] == 1 for axis in range(1, BATCH_AXES))
        return bool(single and n["c_n"] == 1 and all(n[name] > 0 for name in ("m", "n", "k")))

    def run(self, step: Step, addresses: tuple[int, int, int]) -> bool:
        """Queue a product of operands at these addresses (A, B, C); False where the library has no way to do it."""
        found = self.way(step, tuple(min(MOST_ALIGNED, address & -address) for address in addresses))
        if found is None:
            return False
        a, b, c = map(ctypes.c_void_p, addresses)
        left, right, result = found.layouts
        one, none = self.scalars(step)
        self.call("cublasLtMatmul", self.context, found.description, ctypes.byref(one), b, left, a, right,
                  ctypes.byref(none), c, result, c, result, ctypes.byref(found.found.algorithm),
                  ctypes.c_void_p(self.workspace), ctypes.c_size_t(WORKSPACE_BYTES),
                  ctypes.c_void_p(self.gpu.stream_handle()))
        self.calls += 1
        return True

    def way(self, step: Step, aligned: tuple[int, ...]) -> Prepared | None:
        """How the library computes a product of operands that lie on so many bytes; None where it does not."""
        kernel, n = step.kernel, PRODUCT.by_name(step.values)
        assert isinstance(kernel, ProductKernel)
        key = (kernel.dtype, kernel.result, kernel.left, kernel.right, step.values, aligned)
        if key not in self.known:
            self.known[key] = self._prepare(kernel, {name: int(value) for name, value in n.items()}, aligned)
        return self.known[key]

    def scalars(self, step: Step) -> tuple[Any, Any]:
        """One and none, which the library is given by address."""
        return self.ones[step.kernel.dtype is float64]  # type: ignore[attr-defined]

    def launch(self, step: Step, places: Sequence[tuple[int, int] | None]) -> Kernel | None:
        """The product among native launches, of operands at these slots and offsets; None where the library has no way
        to do it."""
        found = self.way(step, (ALIGNED,) * 3)
        if found is None:
            return None
        one, none = self.scalars(step)
        words = aligned_words(PRODUCT_WORDS)
        told: list[Any] = [self.context, found.description, ctypes.addressof(one), found.layouts[0], found.layouts[1],
                           ctypes.addressof(none), found.layouts[2], ctypes.addressof(found.found.algorithm),
                           self.workspace, WORKSPACE_BYTES]
        for at, value in enumerate(told, int(Header.SIZE) + 3):
            words[at] = getattr(value, "value", value) or 0
        function = ctypes.cast(self.handle.cublasLtMatmul, ctypes.c_void_p).value or 0
        lies = [(-1, 0, 0) if place is None else (*place, ALIGNED - 1) for place in places]
        return Kernel(function, -1, 0, 0, words, lies, -1, int(Header.SIZE))

    def _prepare(self, kernel: ProductKernel, n: Mapping[str, int], aligned: tuple[int, ...]) -> Prepared | None:
        m, columns, k = n["m"], n["n"], n["k"]
        turned = kernel.right == "k", kernel.left == "m"
        first = Side(k, columns, n["b_n"], n["b_batch0"]) if turned[0] else Side(columns, k, n["b_k"], n["b_batch0"])
        second = Side(m, k, n["a_k"], n["a_batch0"]) if turned[1] else Side(k, m, n["a_m"], n["a_batch0"])
        sides = first, second, Side(columns, m, n["c_m"], n["c_batch0"])
        double = kernel.dtype is float64
        description = self.made("cublasLtMatmulDescCreate", COMPUTE_64F if double else COMPUTE_32F,
                                KINDS[float64 if double else float32])
        for attribute, turn in zip((TRANSPOSE_A, TRANSPOSE_B), turned, strict=True):
            self.set("cublasLtMatmulDescSetAttribute", description, attribute, ctypes.c_int32(turn))
        kinds = kernel.dtype, kernel.dtype, kernel.result
        one, two, three = (self._layout(KINDS[kind], side, n["batches0"])
                           for kind, side in zip(kinds, sides, strict=True))
        preference = self.made("cublasLtMatmulPreferenceCreate")
        self.set("cublasLtMatmulPreferenceSetAttribute", preference, WORKSPACE_LIMIT, ctypes.c_size_t(WORKSPACE_BYTES))
        a, b, c = aligned
        for attribute, nbytes in zip(ALIGNMENTS, (b, a, c, c), strict=True):
            self.set("cublasLtMatmulPreferenceSetAttribute", preference, attribute, ctypes.c_uint32(nbytes))
        found, count = Found(), ctypes.c_int()
        status = int(self.handle.cublasLtMatmulAlgoGetHeuristic(
            self.context, description, one, two, three, three, preference, 1, ctypes.byref(found), ctypes.byref(count)))
        self.call("cublasLtMatmulPreferenceDestroy", preference)
        return Prepared(description, (one, two, three), found) if status == 0 and count.value else None

    def _layout(self, kind: int, side: Side, batches: int) -> ctypes.c_void_p:
        layout = self.made("cublasLtMatrixLayoutCreate", kind, ctypes.c_uint64(side.rows),
                           ctypes.c_uint64(side.columns), ctypes.c_int64(max(side.step, side.rows)))
        if batches > 1:
            self.set("cublasLtMatrixLayoutSetAttribute", layout, BATCH_COUNT, ctypes.c_int32(batches))
            self.set("cublasLtMatrixLayoutSetAttribute", layout, BATCH_OFFSET, ctypes.c_int64(side.batch))
        return layout

    def set(self, name: str, thing: ctypes.c_void_p, attribute: int, value: Any) -> None:
        """An attribute of a thing of the library's."""
        self.call(name, thing, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))


def blas_of(backend: Any) -> Blas | None:
    """cuBLASLt of a GPU's backend, made once; None where the library is not there."""
    if not hasattr(backend, "_blas"):
        handle = libraries.found("cublasLt") if backend.device.startswith("cuda:") else None
        backend._blas = None if handle is None else Blas(backend.gpu, handle)
    found: Blas | None = backend._blas
    return found
