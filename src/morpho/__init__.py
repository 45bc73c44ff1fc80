"""Morpho: a tensor compiler and runtime in pure Python.

>>> import morpho as mo
>>> x = mo.asarray([1.0, 2.0, 3.0])
>>> (mo.gelu(x) * 2).sum().item()
11.6...
"""

from morpho.base.dims import Dim
from morpho.base.settings import settings
from morpho.base.dtypes import (bfloat16, complex64, complex128, float16, float32, float64, int8, int16, int32, int64,
                                uint8, uint16, uint32, uint64)
from morpho.base.dtypes import bool_ as bool
from morpho.runtime import pool
from morpho.tensor.activations import *
from morpho.tensor.compile import compile
from morpho.tensor.state import State
from morpho.tensor.core import Tensor, realise
from morpho.tensor.create import *
from morpho.tensor.elementwise import *
from morpho.tensor.move import *
from morpho.tensor.products import *
from morpho.tensor.reduce import *
from morpho.tensor.operators import install as _install

_install()
