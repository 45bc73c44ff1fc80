"""Reductions, scans, ops that move elements, gather and scatter."""

from __future__ import annotations

import numpy as np
from case_values import of_kinds, random_values
from running import stored
from shaped_case import FLOATS, NUMBERS, SOME, Array, Shaped, draw_calm, one_matrix

from morpho.base.dtypes import ALL, DType, bfloat16, bool_, complex64, complex128, float32, float64, int32, int64
from morpho.ir.node import Node, build
from morpho.ops.algebra import expand
from morpho.ops.complex.parts import as_complex, as_real, part
from morpho.ops.order import mark

MOVED = (*SOME, complex64, complex128)
LONG = (0, 1, 2, 3, 31, 32, 33, 63, 64, 65, 67, 130, 4095, 4096, 4097, 8192)


def _reductions() -> list[Shaped]:
    table = []
    for name, kinds in {"sum": "iuf", "prod": "iuf", "max": "iuf", "min": "iuf", "any": "b", "all": "b"}.items():
        def rows(x: Node, name: str = name) -> Node:
            return build(name, x, axes=(1,))

        def columns(x: Node, name: str = name) -> Node:
            return build(name, x, axes=(0,))

        def outer(x: Node, name: str = name) -> Node:
            return build(name, x, axes=(0, 2))

        def everything(x: Node, name: str = name) -> Node:
            return build(name, x, axes=(0, 1))

        first = 1 if name in ("max", "min") else 0
        long, short = (tuple(n for n in lengths if n >= first) for lengths in (LONG, LONG[:12]))
        dtypes_here = of_kinds(kinds)
        table.append(Shaped(name, "rows", dtypes_here, one_matrix, rows, "rule", lengths=long))
        table.append(Shaped(name, "columns", dtypes_here, lambda d, n: [((n, 5), d)], columns, "rule", lengths=short))
        table.append(Shaped(name, "outer", dtypes_here, lambda d, n: [((3, 2, n), d)], outer, "rule", lengths=short))
        table.append(Shaped(name, "everything", dtypes_here, lambda d, n: [((7, n), d)], everything, "rule",
                            lengths=short))
    complexes = (complex64, complex128)
    table += [Shaped(name, "complex rows", complexes, one_matrix, lambda x, name=name: build(name, x, axes=(1,)),
                     "rule", lengths=(0, 1, 5, 63, 64, 65, 130)) for name in ("sum", "prod")]
    table += [Shaped(name, "complex columns", complexes, lambda d, n: [((n, 19), d)],
                     lambda x, name=name: build(name, x, axes=(0,)), "rule", lengths=(0, 1, 5, 65))
              for name in ("sum", "prod")]
    return table


def _scans() -> list[Shaped]:
    table = []
    for name in ("cumulative_sum", "cumulative_prod"):
        table.append(Shaped(name, "rows", NUMBERS, one_matrix, lambda x, name=name: build(name, x, axis=1), "rule"))
        table.append(Shaped(name, "columns", NUMBERS, lambda d, n: [((n, 5), d)],
                            lambda x, name=name: build(name, x, axis=0), "rule"))
        table.append(Shaped(name, "complex", (complex64, complex128), lambda d, n: [((3, n, 2), d)],
                            lambda x, name=name: build(name, x, axis=1), "rule", lengths=(0, 1, 5, 67)))
    for name in ("cumulative_max", "cumulative_min"):
        table.append(Shaped(name, "rows", NUMBERS, one_matrix, lambda x, name=name: build(name, x, axis=1)))
        table.append(Shaped(name, "columns", (float32, int32), lambda d, n: [((n, 5), d)],
                            lambda x, name=name: build(name, x, axis=0)))
    table.append(Shaped("cumulative_logsumexp", "rows", (float32, float64), one_matrix,
                        lambda x: build("cumulative_logsumexp", x, axis=1), "close", draw=draw_calm))
    return table


def _moves() -> list[Shaped]:
    def reversed_slice(x: Node) -> Node:
        n = x.shape[1]
        return build("slice", x, starts=(1, n - 1), sizes=(2, n), steps=(1, -1))

    def update(x: Node, value: Node) -> Node:
        return build("update", x, value, starts=(0, 4), sizes=value.shape, steps=(1, -2))

    return [
        Shaped("reshape", "merge", MOVED, one_matrix, lambda x: build("reshape", x, shape=(x.shape[1] * 3,))),
        Shaped("reshape", "of permute", MOVED, one_matrix,
               lambda x: build("reshape", build("permute", x, axes=(1, 0)), shape=(x.shape[1] * 3,))),
        Shaped("permute", "turn", MOVED, lambda d, n: [((2, n, 3), d)], lambda x: build("permute", x, axes=(2, 0, 1))),
        Shaped("expand", "new axis", MOVED, lambda d, n: [((1, n, 1), d)],
               lambda x: build("expand", x, shape=(3, x.shape[1], 5))),
        Shaped("slice", "backwards", MOVED, one_matrix, reversed_slice, lengths=(1, 2, 17, 67)),
        Shaped("slice", "steps", MOVED, lambda d, n: [((9, n), d)],
               lambda x: build("slice", x, starts=(8, 0), sizes=(4, x.shape[1]), steps=(-2, 1))),
        Shaped("window", "overlapping", MOVED, lambda d, n: [((9, n), d)],
               lambda x: build("window", x, axes=(0,), sizes=(3,), steps=(2,), dilations=(2,))),
        Shaped("window", "two axes", MOVED, lambda d, n: [((n, 6, 5), d)],
               lambda x: build("window", x, axes=(1, 2), sizes=(2, 3), steps=(2, 1), dilations=(1, 1))),
        Shaped("window", "dynamic axis", MOVED, lambda d, n: [((2, n + 3), d)],
               lambda x: build("window", x, axes=(1,), sizes=(3,), steps=(1,), dilations=(1,))),
        Shaped("concatenate", "columns", ALL, lambda d, n: [((3, n), d), ((3, 4), d), ((3, n), d)],
               lambda *x: build("concatenate", *x, axis=1)),
        Shaped("concatenate", "rows", MOVED, lambda d, n: [((2, n), d), ((1, n), d)],
               lambda *x: build("concatenate", *x, axis=0)),
        Shaped("pad", "both", MOVED[1:], one_matrix,
               lambda x: build("pad", x, before=(1, 2), after=(0, 3), value=1.0 if x.dtype.is_float else 1)),
        Shaped("update", "steps", MOVED, lambda d, n: [((n, 7), d), ((n, 3), d)], update),
        Shaped("copy", "turned", ALL, lambda d, n: [((4, n), d)],
               lambda x: build("copy", build("permute", x, axes=(1, 0)))),
        Shaped("remat_barrier", "after another", ALL, lambda d, n: [((3, n), d), ((n,), d)],
               lambda x, y: build("remat_barrier", x, y)),
        Shaped("part", "imaginary", (complex64, complex128), lambda d, n: [((n, 5), d)], lambda x: part(x, 1)),
        Shaped("as_real", "rows", (complex64, complex128), lambda d, n: [((n, 5), d)], as_real),
        Shaped("as_complex", "columns", (float32, float64), lambda d, n: [((3, n, 2), d)],
               lambda x: as_complex(build("copy", x)), gradient=False),
        Shaped("part", "of a view", (complex64, complex128), lambda d, n: [((4, n, 3), d)],
               lambda x: part(build("reshape", build("permute", x, axes=(1, 0, 2)), shape=(x.shape[1], 12)), 0)),
        Shaped("checkpoint", "one of two", MOVED, lambda d, n: [((3, n), d), ((n,), d)],
               lambda x, y: mark([build("copy", x), build("copy", y)], [x, y])[1]),
    ]


def _draw_indices(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
    if position == 1:
        return rng.integers(0, 5, shape).astype(dtype.numpy)
    return stored(random_values(rng, dtype, int(np.prod(shape))).reshape(shape), dtype)


def _draw_complex(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
    if position == 1:
        return rng.integers(0, 5, shape).astype(dtype.numpy)
    return (rng.normal(0, 1, shape) + 1j * rng.normal(0, 1, shape)).astype(dtype.numpy)


def _draw_distinct(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
    if position == 1:
        return np.argsort(rng.random((5, shape[1])), axis=0)[:shape[0]].astype(dtype.numpy)
    return _draw_indices(rng, position, shape, dtype)


def _indices() -> list[Shaped]:
    table = []
    for index in of_kinds("iu"):
        table.append(Shaped("gather", f"by {index}", (float32,) if index is not int64 else MOVED,
                            lambda d, n, index=index: [((5, n), d), ((7, n), index)],
                            lambda x, i: build("gather", x, i, axis=0), draw=_draw_indices, gradient=index is int64))
    table.append(Shaped("gather", "columns", MOVED, lambda d, n: [((n, 5), d), ((n, 3), int64)],
                        lambda x, i: build("gather", x, i, axis=1), draw=_draw_indices))
    for mode in ("max", "min", "mul"):
        table.append(Shaped("scatter", mode, of_kinds("biuf") if mode != "mul" else (bool_, float32, float64, int32),
                            lambda d, n: [((5, n), d), ((7, n), int64), ((7, n), d)],
                            lambda x, i, v, mode=mode: build("scatter", x, i, v, axis=0, mode=mode),
                            draw=_draw_indices))
    for mode in ("set", "add"):
        table.append(Shaped("scatter", mode, of_kinds("biuf"),
                            lambda d, n: [((5, n), d), ((2, n), int64), ((2, n), d)],
                            lambda x, i, v, mode=mode: build("scatter", x, i, v, axis=0, mode=mode),
                            draw=_draw_distinct if mode == "set" else _draw_indices))
        table.append(Shaped("scatter", f"{mode} rows", FLOATS, lambda d, n: [((5, n), d), ((7, 1), int32), ((7, n), d)],
                            lambda x, i, v, mode=mode: build("scatter", x, expand(i, v.shape), v, axis=0, mode=mode),
                            draw=_draw_indices, gradient=mode == "add"))
        table.append(Shaped("scatter", f"{mode} along columns", (float32, bfloat16, int32),
                            lambda d, n: [((n, 5), d), ((n, 3), int64), ((n, 3), d)],
                            lambda x, i, v, mode=mode: build("scatter", x, i, v, axis=1, mode=mode),
                            draw=_draw_indices))
        table.append(Shaped("scatter", f"{mode} complex", (complex64, complex128),
                            lambda d, n: [((5, n), d), ((2, n), int64), ((2, n), d)],
                            lambda x, i, v, mode=mode: build("scatter", x, i, v, axis=0, mode=mode),
                            draw=_draw_complex, gradient=False))
    return table


MOVING: list[Shaped] = [*_reductions(), *_scans(), *_moves(), *_indices()]
