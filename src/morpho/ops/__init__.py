"""The op records, one file per family. Importing this package fills the registry."""

from morpho.ops import (
    complex_parts,
    contract,
    control,
    elementwise,
    fourier,
    host,
    identity,
    index,
    integers,
    move,
    order,
    reduce,
    scan,
    sorting,
    sources,
    triangular,
)
from morpho.ops.neural import attention, convolution, fused, losses, quantised
from morpho.ops.special_functions import records as special_functions

__all__ = ["attention", "complex_parts", "contract", "control", "convolution", "elementwise", "fourier", "fused",
           "host", "identity", "index", "integers", "losses", "move", "order", "quantised", "reduce", "scan", "sorting",
           "sources", "special_functions", "triangular"]
