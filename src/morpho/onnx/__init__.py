"""`mo.onnx`: other people's models, from ONNX files and to them.

>>> import morpho as mo
>>> path = mo.onnx.save(lambda x, w: mo.gelu(x @ w), "layer.onnx", mo.ones((2, 3)), mo.ones((3, 4)))
>>> layer = mo.onnx.load(path)
>>> layer(mo.ones((2, 3)), mo.ones((3, 4))).shape
(2, 4)
"""

from morpho.onnx.export.saving import save
from morpho.onnx.loading import load, loads, to_numpy, unsupported
from morpho.onnx.operators.table import operators
from morpho.onnx.run.network import Network

__all__ = ["Network", "load", "loads", "operators", "save", "to_numpy", "unsupported"]
