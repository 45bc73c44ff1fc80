"""Sorting, and the ops that NumPy does, or may do: Fourier transforms, linear algebra."""

from __future__ import annotations

from typing import Any

import numpy as np
from shaped_case import NUMBERS, Array, Shaped, Specs, draw_calm, one_matrix

from morpho.base.dtypes import DType, complex64, complex128, float32, float64, int32
from morpho.ir.node import Node, build
from morpho.ops.complex.fourier import dft
from morpho.ops.linalg.gradients import adjoint
from morpho.ops.sources import pick


def _square(dtype: DType, n: Any) -> Specs:
    return [((2, 4, 4), dtype)]


def _draw_matrix(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
    """Well-conditioned, positive and symmetric where square."""
    x = rng.normal(0, 1, shape)
    if dtype.is_complex:
        x = x + 1j * rng.normal(0, 1, shape)
    if len(shape) > 1 and shape[-1] == shape[-2]:
        x = x @ np.conj(np.swapaxes(x, -1, -2)) + 3 * np.eye(shape[-1])
    return x.astype(dtype.numpy)


def _transforms() -> list[Shaped]:
    """Transforms along one axis: lanes along rows, across short rows, across columns, and by convolution."""
    complexes, real = (complex64, complex128), (float32, float64)
    table = []
    for label, shape, axis in (("row", (2, 192), 1), ("short rows", (19, 30), 1), ("columns", (40, 21), 0),
                               ("prime", (2, 37), 1)):
        for inverse in (False, True):
            table.append(Shaped("dft", f"{label}{' back' if inverse else ''}", complexes,
                                lambda d, n, shape=shape: [(shape, d)],
                                lambda x, axis=axis, inverse=inverse: dft(x, axis, x.shape[axis], "complex", inverse,
                                                                          0.25 if inverse else 1.0),
                                "spectrum", dynamic=False, draw=_draw_matrix, lengths=(5,), gradient=False))
    for n in (288, 74):
        table.append(Shaped("dft", f"real {n}", real, lambda d, _, n=n: [((3, n), d)],
                            lambda x: dft(x, 1, x.shape[1], "real"), "spectrum", dynamic=False, draw=_draw_matrix,
                            lengths=(5,), gradient=False))
        table.append(Shaped("dft", f"half {n}", complexes, lambda d, _, n=n: [((3, n // 2 + 1), d)],
                            lambda x, n=n: dft(x, 1, n, "half", True, 0.5), "spectrum", dynamic=False,
                            draw=_draw_matrix, lengths=(5,), gradient=False))
    return table


def _schur_together(x: Node) -> Node:
    """Z T Z^H: the form itself is not unique."""
    made = build("schur", x)
    form, basis = pick(made, 0), pick(made, 1)
    return build("matmul", build("matmul", basis, form), adjoint(basis))


def _host() -> list[Shaped]:
    real, both = (float32, float64), (float32, float64, complex64, complex128)
    checks = (("native ", "solved", real), ("", "exact", (complex64, complex128)))  # complex matrices are NumPy's
    one = {"dynamic": False, "lengths": (5,)}
    table = [
        Shaped("sort", "rows", NUMBERS, one_matrix, lambda x: build("sort", x, axis=1, descending=False, stable=True)),
        Shaped("sort", "down", (float32, int32), lambda d, n: [((n, 3), d)],
               lambda x: build("sort", x, axis=0, descending=True, stable=True)),
        Shaped("argsort", "rows", NUMBERS, one_matrix,
               lambda x: build("argsort", x, axis=1, descending=False, stable=True)),
        Shaped("searchsorted", "left", (int32, float32), lambda d, n: [((6,), d), ((3, n), d)],
               lambda line, x: build("searchsorted", build("sort", line, axis=0, descending=False, stable=True), x,
                                     side="left"), draw=draw_calm),
        Shaped("complex", "parts", real, lambda d, n: [((3, n), d), ((3, n), d)], lambda a, b: build("complex", a, b)),
    ]
    for function in ("fftn", "ifftn", "rfftn", "irfftn", "hfft", "ihfft"):
        dtypes_here = (float32, float64) if function in ("rfftn", "ihfft") else (complex64, complex128)
        table.append(Shaped("fft", function, dtypes_here, lambda d, n: [((3, 8), d)],
                            lambda x, function=function: build("fft", x, function=function, axes=(1,), sizes=(8,),
                                                               norm="backward"),
                            "spectrum", draw=_draw_matrix, **one))
    table += _transforms()
    table += [
        Shaped("eig", "values", both, _square, lambda x: pick(build("eig", x), 0), draw=_draw_matrix, gradient=False,
               **one),
        Shaped("eigvals", "square", both, _square, lambda x: build("eigvals", x), draw=_draw_matrix, gradient=False,
               **one),
        Shaped("schur", "together", (float64, complex128), _square, _schur_together, "solved", draw=_draw_matrix,
               gradient=False, **one),
        *[Shaped("matrix_function", name, (float64, complex128), _square,
                 lambda x, name=name: build("matrix_function", x, function=name), "solved", draw=_draw_matrix,
                 **one)
          for name in ("sqrtm", "logm")],
        Shaped("ldl", "factor", both, _square, lambda x: pick(build("ldl", x), 1), "solved", draw=_draw_matrix,
               gradient=False, **one)]
    table.append(Shaped("pinv", "square", both, _square, lambda x: build("pinv", x), check="solved",
                        draw=_draw_matrix, **one))
    for label, check, dtypes in checks:
        how = {"check": check, "draw": _draw_matrix, **one}
        for name, attributes in (("cholesky", {"upper": False}), ("det", {}), ("inv", {}), ("svdvals", {}),
                                 ("eigvalsh", {})):
            table.append(Shaped(name, f"{label}square", dtypes, _square,
                                lambda x, n=name, a=attributes: build(n, x, **a), **how))
        table.append(Shaped("cholesky", f"{label}upper", dtypes, _square, lambda x: build("cholesky", x, upper=True),
                            **how))
        pair = lambda d, n: [((2, 4, 4), d), ((2, 4, 3), d)]
        table.append(Shaped("solve", f"{label}square", dtypes, pair, lambda a, b: build("solve", a, b), **how))
        ours = {**how, "check": "solved"}  # NumPy has no triangular solve and no LU
        if float64 in dtypes:
            table.append(Shaped("solve_refined", f"{label}square", (float64,),
                                lambda d, n: [((2, 4, 4), d), ((2,), d), ((2, 4, 3), d)],
                                lambda a, size, b: pick(build("solve_refined", a, size, b, dtype=float32, most=9), 0),
                                **ours))
        for upper, unit in ((False, False), (True, False), (True, True)):
            table.append(Shaped("solve_triangular", f"{label}{upper} {unit}", dtypes, pair,
                                lambda a, b, upper=upper, unit=unit: build("solve_triangular", a, b, upper=upper,
                                                                           unit=unit), **ours))
        for name, attributes, parts in (("slogdet", {}, (0, 1)), ("lu", {}, (1, 2)), ("eigh", {}, (0, 1)),
                                        ("qr", {"mode": "reduced"}, (0, 1)),
                                        ("svd", {"full_matrices": False}, (0, 1, 2))):
            for index in parts:
                def part(x: Node, name: str = name, attributes: dict[str, Any] = attributes,
                         index: int = index) -> Node:
                    node = build(name, x, **attributes)
                    return build("pick", node, index=index, spec=node.outputs[index])

                table.append(Shaped(name, f"{label}part {index}", dtypes, _square, part,
                                    **(ours if name == "lu" else how)))
    return table


HOST: list[Shaped] = _host()
