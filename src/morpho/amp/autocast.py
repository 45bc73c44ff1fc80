"""`autocast`: a block in which products, attention and convolutions are computed in half floats."""

from __future__ import annotations

from typing import Any

from morpho.base.dtypes import as_dtype
from morpho.base.errors import ArgumentError, fail
from morpho.base.settings import Within
from morpho.tensor.autodiff.precision import FAMILIES, low_dtype
from morpho.tensor.tools.foreign_calls import hinted


class autocast(Within):
    """Within the block, or the decorated function, products, attention and convolutions are computed in `dtype`;
    softmax, norms, losses, sums, exp and log in float32; the rest follows its operands. Parameters stay what they are,
    and so do their gradients: a weight is cast once where a program uses it.

    dtype: "bfloat16", "float16", or None for bfloat16 where it was measured to be no slower than float32 on this
        machine (`mo.amp.policy()`), and float32 elsewhere.
    device_type: PyTorch's first argument, which may be left out: the device follows the tensors.
    enabled: False for a block inside another one in which nothing is cast.

    Blocks nest and hold for the thread, or task, that opened them; compiled functions follow the block they are
    called in.

    >>> with mo.amp.autocast("bfloat16"):
    ...     product = mo.ones((2, 2)) @ mo.ones((2, 2))
    ...     with mo.amp.autocast(enabled=False):
    ...         full = mo.ones((2, 2)) @ mo.ones((2, 2))
    >>> product.dtype, product.sum().dtype, full.dtype
    (bfloat16, bfloat16, float32)
    """

    @hinted
    def __init__(self, device_type: Any = None, dtype: Any = None, enabled: bool = True,
                 cache_enabled: bool | None = None) -> None:
        if isinstance(device_type, bool):  # PyTorch's cuda.amp.autocast(enabled)
            enabled = device_type
        elif device_type is not None and not _is_device(device_type):  # the dtype alone: the device follows the tensors
            enabled = dtype if isinstance(dtype, bool) else enabled
            dtype = device_type
        name = "auto" if dtype is None else str(as_dtype(dtype))
        if name not in ("auto", "bfloat16", "float16"):
            raise fail(ArgumentError, "autocast", f"dtype {name} is not a half float", "use bfloat16, float16 or None")
        super().__init__(autocast=name if enabled else "")


def _is_device(value: Any) -> bool:
    return isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu", "mps", "xpu", "reference", "auto")


def policy(dtype: Any = None) -> dict[str, str]:
    """Dtypes in which each family of operations is computed under `autocast(dtype)` on this machine; for None that is
    measured the first time, within a few seconds, and then read from disk.

    >>> mo.amp.policy("float16")
    {'product': 'float16', 'attention': 'float16', 'convolution': 'float16'}
    """
    name = "auto" if dtype is None else str(as_dtype(dtype))
    return {family: str(low_dtype(family, name) or "float32") for family in FAMILIES}
