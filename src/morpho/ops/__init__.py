"""The op records, one file per family. Importing this package fills the registry."""

from morpho.ops import contract, convolution, elementwise, fused, host, index, move, reduce, scan, sources

__all__ = ["contract", "convolution", "elementwise", "fused", "host", "index", "move", "reduce", "scan", "sources"]
