"""Core ATen operations as Morpho functions: `TABLE` holds one entry for each, and this folder imports no PyTorch."""

from morpho.torch.aten import creation, indexing, norms, pointwise, pooling, products, reductions, views
from morpho.torch.aten.table import TABLE, Context, Entry, Meta

__all__ = ["TABLE", "Context", "Entry", "Meta"]
