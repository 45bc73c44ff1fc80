"""cuSOLVER's functions over the emulated device's memory, by NumPy: matrices by columns, work sizes, statuses, all as
in its reference. What it is not given (a triangle, a transpose) it does not see."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from morpho.backends.cuda.emulator.addresses import on_host

LWORK = 7


def _number(value: Any) -> int:
    return int(getattr(value, "value", value) or 0)


class FakeSolver:
    """Attributes are its functions."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> int:
            self.called.append(name)
            stem = name.removeprefix("cusolverDn")
            if stem in ("Create", "CreateGesvdjInfo"):
                given[0]._obj.value = 1
                return 0
            if stem == "SetStream":
                return 0
            if stem.endswith("_bufferSize"):
                given[-2 if "gesvdj" in stem else -1]._obj.value = LWORK
                return 0
            dtype = np.float32 if stem[0] == "S" else np.float64
            getattr(self, "_" + stem[1:])(dtype, *given[1:])
            return 0

        return call

    @staticmethod
    def matrix(dtype: Any, address: Any, rows: int, columns: int) -> np.ndarray:
        kind = ctypes.c_float if dtype is np.float32 else ctypes.c_double
        flat = np.ctypeslib.as_array((kind * (rows * columns)).from_address(on_host(_number(address))))
        return flat.reshape(columns, rows).T

    @staticmethod
    def said(info: Any, status: int) -> None:
        ctypes.c_int32.from_address(on_host(_number(info))).value = status

    def _potrf(self, dtype: Any, fill: int, n: int, a: Any, lda: int, work: Any, count: Any, info: Any) -> None:
        assert count.value == LWORK
        m = self.matrix(dtype, a, n, n)
        part = np.tril(m) if fill == 0 else np.triu(m)
        whole = part + part.T - np.diag(np.diag(m))
        try:
            lower = np.linalg.cholesky(whole)
        except np.linalg.LinAlgError:
            self.said(info, 1)
            return
        m[:] = np.where(np.tri(n, dtype=bool), lower, m) if fill == 0 else np.where(np.tri(n, dtype=bool).T, lower.T, m)
        self.said(info, 0)

    def _getrf(self, dtype: Any, m: int, n: int, a: Any, lda: int, work: Any, pivots: Any, info: Any) -> None:
        self.factored = self.matrix(dtype, a, m, n).copy()
        self.said(info, int(np.linalg.matrix_rank(self.factored) < n))

    def _getrs(self, dtype: Any, turned: int, n: int, right: int, a: Any, lda: int, pivots: Any, b: Any, ldb: int,
               info: Any) -> None:
        sides = self.matrix(dtype, b, n, right)
        sides[:] = np.linalg.solve(self.factored.T if turned else self.factored, sides)

    def _geqrf(self, dtype: Any, m: int, n: int, a: Any, lda: int, tau: Any, work: Any, count: Any, info: Any) -> None:
        matrix = self.matrix(dtype, a, m, n)
        self.q, r = np.linalg.qr(matrix)
        matrix[:] = 99  # below the diagonal lie the reflectors
        for i in range(len(r)):
            matrix[i, i:] = r[i, i:]

    def _orgqr(self, dtype: Any, m: int, n: int, k: int, a: Any, lda: int, tau: Any, work: Any, count: Any,
               info: Any) -> None:
        self.matrix(dtype, a, m, n)[:] = self.q[:, :n]

    def _syevd(self, dtype: Any, mode: int, fill: int, n: int, a: Any, lda: int, w: Any, work: Any, count: Any,
               info: Any) -> None:
        m = self.matrix(dtype, a, n, n)
        values, vectors = np.linalg.eigh(m, "L" if fill == 0 else "U")
        self.matrix(dtype, w, n, 1)[:, 0] = values
        if mode:
            m[:] = vectors
        self.said(info, 0)

    def _gesvdj(self, dtype: Any, mode: int, economy: int, m: int, n: int, a: Any, lda: int, s: Any, u: Any, ldu: int,
                v: Any, ldv: int, work: Any, count: Any, info: Any, settings: Any) -> None:
        left, values, right = np.linalg.svd(self.matrix(dtype, a, m, n), full_matrices=not economy)
        self.matrix(dtype, s, len(values), 1)[:, 0] = values
        if mode:
            self.matrix(dtype, u, *left.shape)[:] = left
            self.matrix(dtype, v, *right.T.shape)[:] = right.T
        self.said(info, 0)
