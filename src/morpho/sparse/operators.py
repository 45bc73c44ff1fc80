"""The operators and methods of the formats, each the function of the same name."""

from __future__ import annotations

from morpho.sparse import combine, convert, products, reduce, slicing
from morpho.sparse.arrays import METHODS
from morpho.sparse.checks import rows_of

METHODS.update({
    "matmul": products.matmul, "add": combine.add, "subtract": combine.subtract, "multiply": combine.multiply,
    "divide": combine.divide, **combine.COMPARISONS, "getitem": slicing.getitem, "rows": rows_of, "sum": reduce.sum,
    "max": reduce.max, "min": reduce.min, "mean": reduce.mean, "diagonal": reduce.diagonal,
    "to_dense": convert.to_dense, "tocsr": convert.tocsr, "tocsc": convert.tocsc, "tocoo": convert.tocoo,
    "tobsr": convert.tobsr, "to_scipy": convert.to_scipy})
