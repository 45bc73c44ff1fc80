"""Values needed while a program is still being built: realised at once, counted, and refused inside `compile`."""

from __future__ import annotations

import numpy as np

from morpho.base.errors import CompileError, fail
from morpho.tensor.autodiff.grad_mode import tracing
from morpho.tensor.core import Tensor, evaluate, uses_parameters


def realised_array(x: Tensor, operation: str, reason: str, hint: str = "compute it outside the function") -> np.ndarray:
    """The elements of x now. `reason` says why a value is needed; it ends up in the error inside `compile`."""
    if tracing.current is not None and not x.is_realised and uses_parameters([x.node]):
        raise fail(CompileError, operation, f"{reason}, which a compiled function cannot follow", hint)
    evaluate.counts.syncs += 1
    return x._values()
