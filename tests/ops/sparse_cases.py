"""Operations on compressed sparse rows: one small pattern with an empty row, rows of one and more chains, a repeat."""

from __future__ import annotations

import numpy as np
from shaped_case import Array, Shaped, draw_calm

from morpho.base.dtypes import DType, bfloat16, bool_, float16, float32, float64, int32, int64, uint8, uint64
from morpho.ir.node import Node, build
from morpho.ops.sources import pick

INDPTR = np.array([0, 2, 2, 8, 9])  # of 4 rows
INDICES = np.array([0, 4, 1, 0, 4, 3, 2, 0, 2])  # of 5 columns
STARTS = np.array([0, 1, 3, 3, 4, 6])  # B: 5 rows of 3 columns
OTHERS = np.array([1, 0, 2, 1, 2, 0])
LOWER, LOWER_STARTS = np.array([0, 0, 1, 2, 1, 0, 3]), np.array([0, 1, 3, 4, 7])
ENDS = np.array([0, 3, 3, 6, 6])  # of the product of the two


def _pattern(places: dict[int, Array]) -> object:
    """Draws for these positions; calm numbers for the others."""

    def draw(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
        if position in places:
            return places[position].astype(dtype.numpy)
        return draw_calm(rng, position, shape, dtype)

    return draw


def _specs(*shapes: object) -> object:
    """Shapes of the operands: tuples are of numbers, arrays of indices."""
    return lambda d, n: [(s(n), d) if callable(s) else (s[0].shape, s[1]) for s in shapes]  # type: ignore[index]


def _triangular(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
    if position in (1, 2):
        return (LOWER, LOWER_STARTS)[position - 1].astype(dtype.numpy)
    drawn = draw_calm(rng, position, shape, dtype)
    return (np.abs(drawn) + 2).astype(dtype.numpy) if position == 3 else drawn


def _factored(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
    rows = np.repeat(np.arange(4), np.diff(LOWER_STARTS))
    order = np.lexsort((LOWER, rows))
    if position:
        return (LOWER[order], LOWER_STARTS)[position - 1].astype(dtype.numpy)
    values = np.where(LOWER[order] == rows, 9, 1) + rng.uniform(0, 1, shape)
    return values.astype(dtype.numpy)


def _spmm(dense: Node, indices: Node, indptr: Node, data: Node, **how: str) -> Node:
    return build("spmm", dense, indices, indptr, data, axis=0, **how)


def _products() -> list[Shaped]:
    wide = lambda n: (5, n)
    stored = lambda n: (9,)
    for_spmm = {"specs": _specs(wide, (INDICES, int32), (INDPTR, int32), stored),
                "draw": _pattern({1: INDICES, 2: INDPTR})}
    table = [Shaped("spmm", "rows", (float32, float64, float16, bfloat16), make=_spmm, check="close", **for_spmm),
             Shaped("spmm", "whole", (int32,), make=_spmm, **for_spmm)]
    for name in ("min_plus", "max_plus", "max_times", "max_min", "min_max"):
        table.append(Shaped("spmm", name, (float32, int32), make=lambda *x, n=name: _spmm(*x, semiring=n),
                            gradient=False, **for_spmm))
    table.append(Shaped("spmm", "or_and", (bool_,), make=lambda *x: _spmm(*x, semiring="or_and"), gradient=False,
                        specs=for_spmm["specs"], draw=lambda rng, position, shape, dtype: (
                            rng.random(shape) < 0.5 if position in (0, 3) else (INDICES, INDPTR)[position - 1].astype(
                                dtype.numpy))))
    table.append(Shaped("spmm", "bits", (uint8, uint64), make=lambda *x: _spmm(*x, semiring="bits"), gradient=False,
                        specs=for_spmm["specs"], draw=lambda rng, position, shape, dtype: (
                            rng.integers(0, 256, shape).astype(dtype.numpy) if position in (0, 3)
                            else (INDICES, INDPTR)[position - 1].astype(dtype.numpy))))
    for label, dtypes, check in (("rows", (float32, float64, float16), "close"), ("whole", (int32,), "exact")):
        table.append(Shaped("spmm_transposed", label, dtypes, _specs(wide, (INDICES, int64), (INDPTR, int64), stored,
                                                                     lambda n: (4, n)),
                            lambda *x: build("spmm_transposed", *x, axis=0), check,
                            draw=_pattern({1: INDICES, 2: INDPTR})))
        table.append(Shaped("sddmm", label, dtypes, _specs(wide, (INDICES, int32), (INDPTR, int32), lambda n: (4, n)),
                            lambda *x: build("sddmm", *x, axis=0), check, draw=_pattern({1: INDICES, 2: INDPTR}),
                            lengths=(0, 1, 2, 3, 4, 7, 16, 17)))
        table += [Shaped("row_reduce", f"{how} {label}", dtypes, _specs(lambda n: (n,), (np.zeros(4), int32)),
                         lambda x, starts, how=how: build("row_reduce", x, starts, how=how),
                         check if how == "sum" else "exact",
                         draw=_pattern({1: np.array([0, 1, 1 if how == "sum" else 2, 1 << 20])}),
                         lengths=(0, 1, 2, 3, 7, 16, 17, 33) if how == "sum" else (3, 7, 16, 17, 33))
                  for how in ("sum", "max", "min")]
    return table


def _sparse_products() -> list[Shaped]:
    four = ((STARTS, int32), (INDICES, int32), (INDPTR, int32), (OTHERS, int32))
    patterns = {0: STARTS, 1: INDICES, 2: INDPTR, 3: OTHERS}
    one = {"dynamic": False, "lengths": (5,)}
    how = {"axis": 0, "columns": 3}
    slopes = _specs(*four, lambda n: (6,), (ENDS, int32), (np.zeros(6), int32), lambda n: (6,))
    columns = np.array([0, 1, 2, 0, 1, 2])
    return [
        Shaped("spgemm_count", "rows", (float32,), _specs(*four), lambda *x: build("spgemm_count", *x, **how),
               draw=_pattern(patterns), gradient=False, **one),
        Shaped("spgemm", "rows", (float32, float64), _specs(*four, lambda n: (9,), lambda n: (6,), (ENDS, int32)),
               lambda *x: pick(build("spgemm", *x, **how, count=6), 1), "close",
               draw=_pattern({**patterns, 6: ENDS}), **one),
        *[Shaped("spgemm_slopes", side, (float64,), slopes if side == "left" else _specs(
            *four, lambda n: (9,), (ENDS, int32), (np.zeros(6), int32), lambda n: (6,)),
                 lambda *x, side=side: build("spgemm_slopes", *x, **how, side=side), "close",
                 draw=_pattern({**patterns, 5: ENDS, 6: columns}), **one) for side in ("left", "right")],
        *[Shaped("sptrsv", f"{'upper' if upper else 'lower'} {unit} {turned}", (float32, float64),
                 _specs(lambda n: (4, n), (LOWER, int32), (LOWER_STARTS, int32), lambda n: (7,)),
                 lambda *x, u=upper, i=unit, t=turned: build("sptrsv", *x, axis=0, upper=u, unit=i, transposed=t),
                 "solved", draw=_triangular, lengths=(0, 1, 3, 67))
          for upper, unit, turned in ((False, False, False), (False, True, False), (False, False, True),
                                      (True, True, True))],
        *[Shaped("incomplete_factors", how, (float32, float64),
                 _specs(lambda n: (7,), (LOWER, int32), (LOWER_STARTS, int32)),
                 lambda *x, how=how: build("incomplete_factors", *x, how=how), "solved", draw=_factored, gradient=False,
                 **one) for how in ("lu", "cholesky")],
    ]


SPARSE: list[Shaped] = [*_products(), *_sparse_products()]
