"""The op records, one file per family. Importing this package fills the registry."""

from morpho.ops import contract, elementwise, fused, host, index, losses, move, reduce, scan, sources

__all__ = ["contract", "elementwise", "fused", "host", "index", "losses", "move", "reduce", "scan", "sources"]
