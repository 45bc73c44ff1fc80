"""The op records, one file per family. Importing this package fills the registry."""

from morpho.ops import (
    collective,
    elementwise,
    identity,
    index,
    integers,
    move,
    order,
    selection,
    sorting,
    sources,
)
from morpho.ops.complex import fourier, parts
from morpho.ops.control import records as control
from morpho.ops.linalg import general, lapack, refined, triangular
from morpho.ops.neural import attention, convolution, fused, losses, paged, quantised, rounded
from morpho.ops.reductions import contract, reduce, scan
from morpho.ops.sparse import products, rows, spgemm
from morpho.ops.sparse import triangular as sparse_triangular
from morpho.ops.special_functions import records as special_functions
from morpho.ops.tiles import record as tiles

__all__ = [
    "attention",
    "collective",
    "contract",
    "control",
    "convolution",
    "elementwise",
    "fourier",
    "fused",
    "general",
    "identity",
    "index",
    "integers",
    "lapack",
    "losses",
    "move",
    "order",
    "paged",
    "parts",
    "products",
    "quantised",
    "reduce",
    "rows",
    "scan",
    "selection",
    "sorting",
    "sources",
    "sparse_triangular",
    "special_functions",
    "spgemm",
    "tiles",
    "triangular",
]
