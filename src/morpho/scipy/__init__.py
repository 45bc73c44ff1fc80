"""SciPy's functions on tensors: `mo.stats`, `mo.signal`, `mo.ndimage`, and what `mo.special` has beyond its own ops.

SciPy is not needed, and not used. Everything is composed of Morpho's functions: it is compiled, runs on a GPU, and is
differentiated as far as each function says.

>>> import morpho.scipy as scipy
>>> round(scipy.stats.norm.cdf(1.96).item(), 4), round(scipy.special.exp1(1.0).item(), 4)
(0.975, 0.2194)
"""

from __future__ import annotations

import importlib
from typing import Any

_PARTS = {"special": "morpho.tensor.functions.special", "linalg": "morpho.linalg", "fft": "morpho.tensor.functions.fft",
          "sparse": "morpho.sparse"}
_FILES = ("stats", "signal", "ndimage", "continuous", "discrete", "hypergeometric", "integrals", "polynomials")


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return importlib.import_module(_PARTS[name])
    if name in _FILES:
        return importlib.import_module(f"morpho.scipy.{name}")
    raise AttributeError(f"module 'morpho.scipy' has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    return sorted([*_PARTS, "stats", "signal", "ndimage"])
