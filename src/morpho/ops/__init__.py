"""The op records, one file per family. Importing this package fills the registry."""

from morpho.ops import (
    attention,
    contract,
    control,
    convolution,
    elementwise,
    fused,
    host,
    identity,
    index,
    losses,
    move,
    order,
    quantised,
    reduce,
    scan,
    sources,
)

__all__ = ["attention", "contract", "control", "convolution", "elementwise", "fused", "host", "identity", "index",
           "losses", "move", "order", "quantised", "reduce", "scan", "sources"]
