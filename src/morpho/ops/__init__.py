"""The op records, one file per family. Importing this package fills the registry."""

from morpho.ops import (
    complex_parts,
    contract,
    control,
    elementwise,
    host,
    identity,
    index,
    move,
    order,
    reduce,
    scan,
    sources,
)
from morpho.ops.neural import attention, convolution, fused, losses, quantised

__all__ = ["attention", "complex_parts", "contract", "control", "convolution", "elementwise", "fused", "host",
           "identity", "index", "losses", "move", "order", "quantised", "reduce", "scan", "sources"]
