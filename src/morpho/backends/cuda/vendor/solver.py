"""Factorisations by cuSOLVER: cholesky, qr, solve, eigh and svd of float32 and float64, under `mo.settings(fast=True)`.

Their order of operations is the library's, and another one than LAPACK's on the host: hence only when the user says so.
The library has matrices by columns. A matrix by rows is its transpose there, which is used where a triangle or a solve
allows it; else `MatrixCopy` turns it.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from morpho.backends.cuda.driver.interface import Device
from morpho.backends.cuda.vendor import libraries
from morpho.backends.cuda.vendor.matrices import LOWER, UPPER, WHOLE, MatrixCopy
from morpho.base.dtypes import DType, float32, float64
from morpho.base.errors import DeviceError, ValueFault, fail
from morpho.ir.node import Node

NO_VECTORS, VECTORS = 0, 1
LOWER_FILL, UPPER_FILL = 0, 1
TRANSPOSED = 1
INDEFINITE, SINGULAR, ENDLESS = ("matrix is not positive definite", "singular matrix",
                                 "the factorisation did not converge")


class Matrix(NamedTuple):
    """An operand in device memory: shape and strides in elements, of the last two axes."""

    address: int
    sizes: tuple[int, int]
    steps: tuple[int, int]


class Solver:
    """cuSOLVER on one device. `handle` is the library: ctypes' own, or a fake one of tests."""

    def __init__(self, gpu: Device, handle: Any) -> None:
        self.gpu, self.handle, self.copy = gpu, handle, MatrixCopy(gpu)
        self.context, self.jacobi = ctypes.c_void_p(), ctypes.c_void_p()
        self.held: list[tuple[int, int]] = []
        self.call("cusolverDnCreate", ctypes.byref(self.context))
        self.call("cusolverDnCreateGesvdjInfo", ctypes.byref(self.jacobi))
        self.calls = 0  # operations so far

    def call(self, name: str, *given: Any) -> None:
        """A function of the library; a status is an error."""
        status = int(getattr(self.handle, name)(*given))
        if status:
            raise fail(DeviceError, "cusolver", f"{name} gave the status {status}")

    # -- one operation -------------------------------------------------------------------------------------------------
    def serves(self, node: Node) -> bool:
        """Whether the library computes an operation."""
        known = node.op.name in WORK and not (node.op.name == "qr" and node["mode"] == "complete")
        shapes = [child.shape for child in node.inputs]
        return known and node.inputs[0].dtype in (float32, float64) and all(
            isinstance(size, int) and size > 0 for shape in shapes for size in shape)

    def run(self, node: Node, inputs: list[Matrix], outputs: list[Matrix], stream: int) -> None:
        """One matrix of a batch."""
        self.dtype: DType = node.inputs[0].dtype
        self.letter, self.item, self.stream = "S" if self.dtype is float32 else "D", self.dtype.itemsize, stream
        self.call("cusolverDnSetStream", self.context, ctypes.c_void_p(self.gpu.stream_handle()))
        self.calls += 1
        self.info = self.room(4)
        try:
            WORK[node.op.name](self, node, inputs, outputs)
        finally:
            for address, nbytes in self.held:
                self.gpu.free(address, nbytes)
            self.held.clear()

    def room(self, nbytes: int) -> int:
        """Memory until the operation is over."""
        address = self.gpu.allocate(max(nbytes, 4))
        self.held.append((address, max(nbytes, 4)))
        return address

    def work(self, name: str, *given: Any) -> tuple[Any, ctypes.c_int]:
        """Room for a routine, as it asks for it, and its number of elements."""
        count = ctypes.c_int()
        extra = (self.jacobi,) if name == "gesvdj" else ()
        self.call(f"cusolverDn{self.letter}{name}_bufferSize", self.context, *given, ctypes.byref(count), *extra)
        return at(self.room(count.value * self.item)), count

    def checked(self, name: str, said: str) -> None:
        """Wait, and say what the routine found wrong."""
        found = np.zeros(1, np.int32)
        self.gpu.copy_out(self.info, memoryview(found).cast("B"), self.stream).wait()  # type: ignore[arg-type]
        if found[0]:
            raise fail(ValueFault, name, said)

    def by_columns(self, matrix: Matrix) -> int:
        """A copy with its columns side by side."""
        rows, columns = matrix.sizes
        address = self.room(rows * columns * self.item)
        self.copy(address, matrix.address, matrix.sizes, (1, rows), matrix.steps, self.item, self.stream)
        return address

    def to_rows(self, target: Matrix, source: int, lines: int, part: int = WHOLE, sizes: Any = None) -> None:
        """From columns of so many elements to a result."""
        self.copy(target.address, source, sizes or target.sizes, target.steps, (1, lines), self.item, self.stream, part)

    # -- operations ----------------------------------------------------------------------------------------------------
    def cholesky(self, node: Node, inputs: list[Matrix], outputs: list[Matrix]) -> None:
        """The lower triangle by rows is the upper one by columns; an upper result is the lower one turned."""
        (a,), (target,) = inputs, outputs
        n, upper = a.sizes[0], bool(node.attributes.get("upper"))
        address = self.room(n * n * self.item)
        self.copy(address, a.address, a.sizes, (n, 1), a.steps, self.item, self.stream)
        work, count = self.work("potrf", UPPER_FILL, n, at(address), n)
        self.call(f"cusolverDn{self.letter}potrf", self.context, UPPER_FILL, n, at(address), n, work, count,
                  at(self.info))
        self.checked("cholesky", INDEFINITE)
        self.copy(target.address, address, a.sizes, target.steps, (1, n) if upper else (n, 1), self.item, self.stream,
                  UPPER if upper else LOWER)

    def solve(self, node: Node, inputs: list[Matrix], outputs: list[Matrix]) -> None:
        """A by rows is A^T by columns, whose transpose is solved for."""
        a, b = inputs
        n, right = a.sizes[0], b.sizes[1]
        address = self.room(n * n * self.item)
        self.copy(address, a.address, a.sizes, (n, 1), a.steps, self.item, self.stream)
        pivots, sides = self.room(4 * n), self.by_columns(b)
        work, _ = self.work("getrf", n, n, at(address), n)
        self.call(f"cusolverDn{self.letter}getrf", self.context, n, n, at(address), n, work, at(pivots), at(self.info))
        self.checked("solve", SINGULAR)
        self.call(f"cusolverDn{self.letter}getrs", self.context, TRANSPOSED, n, right, at(address), n, at(pivots),
                  at(sides), n, at(self.info))
        self.to_rows(outputs[0], sides, n)

    def qr(self, node: Node, inputs: list[Matrix], outputs: list[Matrix]) -> None:
        """R is what stands above the diagonal, Q is made of what stands below it."""
        (a,), (q, r) = inputs, outputs
        m, n = a.sizes
        k = min(m, n)
        address, tau = self.by_columns(a), self.room(k * self.item)
        work, count = self.work("geqrf", m, n, at(address), m)
        self.call(f"cusolverDn{self.letter}geqrf", self.context, m, n, at(address), m, at(tau), work, count,
                  at(self.info))
        self.to_rows(r, address, m, UPPER)
        work, count = self.work("orgqr", m, k, k, at(address), m, at(tau))
        self.call(f"cusolverDn{self.letter}orgqr", self.context, m, k, k, at(address), m, at(tau), work, count,
                  at(self.info))
        self.to_rows(q, address, m)

    def eigh(self, node: Node, inputs: list[Matrix], outputs: list[Matrix]) -> None:
        """By divide and conquer; the lower triangle is read."""
        (a,), (values, *vectors) = inputs, outputs
        n, mode = a.sizes[0], VECTORS if vectors else NO_VECTORS
        address, found = self.by_columns(a), self.room(n * self.item)
        work, count = self.work("syevd", mode, LOWER_FILL, n, at(address), n, at(found))
        self.call(f"cusolverDn{self.letter}syevd", self.context, mode, LOWER_FILL, n, at(address), n, at(found), work,
                  count, at(self.info))
        self.checked("eigh", ENDLESS)
        self.to_rows(values, found, 1, sizes=values.sizes)
        if vectors:
            self.to_rows(vectors[0], address, n)

    def svd(self, node: Node, inputs: list[Matrix], outputs: list[Matrix]) -> None:
        """By Jacobi's method."""
        (a,) = inputs
        m, n = a.sizes
        k, vectors = min(m, n), len(outputs) == 3
        full = vectors and bool(node["full_matrices"])
        left, right = (m, n) if full else (k, k)
        address = self.by_columns(a)
        values, u, v = (self.room(size * self.item) for size in (k, m * left, n * right))
        mode = VECTORS if vectors else NO_VECTORS
        given = (mode, 0 if full else 1, m, n, at(address), m, at(values), at(u), m, at(v), n)
        work, count = self.work("gesvdj", *given)
        self.call(f"cusolverDn{self.letter}gesvdj", self.context, *given, work, count, at(self.info), self.jacobi)
        self.checked("svd", ENDLESS)
        place = outputs[1 if vectors else 0]
        self.to_rows(place, values, 1, sizes=place.sizes)
        if vectors:
            self.to_rows(outputs[0], u, m)
            self.copy(outputs[2].address, v, outputs[2].sizes, outputs[2].steps, (n, 1), self.item, self.stream)


WORK: dict[str, Callable[[Solver, Node, list[Matrix], list[Matrix]], None]] = {
    "cholesky": Solver.cholesky, "solve": Solver.solve, "qr": Solver.qr, "eigh": Solver.eigh, "eigvalsh": Solver.eigh,
    "svd": Solver.svd, "svdvals": Solver.svd}


def at(address: int) -> ctypes.c_void_p:
    """An address as an argument."""
    return ctypes.c_void_p(address)


def solver_of(backend: Any) -> Solver | None:
    """The solver of a GPU's backend, made once; None where the library is not there."""
    if not hasattr(backend, "_solver"):
        handle = libraries.found("cusolver") if backend.device.startswith("cuda:") else None
        backend._solver = None if handle is None else Solver(backend.gpu, handle)
    found: Solver | None = backend._solver
    return found


def matrices(places: list[tuple[int, tuple[int, ...], tuple[int, ...], int]], ranks: list[int],
             batch: tuple[int, ...]) -> list[list[Matrix]]:
    """The operands of every matrix of a batch: address, shape, strides and bytes of an element of each place; a rank of
    1 is a vector."""
    found = []
    for number in range(math.prod(batch)):
        where = np.unravel_index(number, batch) if batch else ()
        row = []
        for (address, shape, steps, item), rank in zip(places, ranks, strict=True):
            begin = address + item * sum(int(n) * step for n, step in zip(where, steps, strict=False))
            sizes, last = (shape[-2:], steps[-2:]) if rank == 2 else ((shape[-1], 1), (steps[-1], 1))
            row.append(Matrix(begin, (sizes[0], sizes[1]), (last[0], last[1])))
        found.append(row)
    return found
