"""Moving tensors between devices: the methods `to` and `to_device`."""

from __future__ import annotations

from typing import Any

from morpho.backends.registry import holder
from morpho.base.dtypes import BY_NAME, as_dtype, bool_
from morpho.tensor.convert import asarray
from morpho.tensor.core import Tensor
from morpho.tensor.device import on
from morpho.tensor.functions.elementwise import astype, real


def to(self: Tensor, *wanted: Any, device: Any = None, dtype: Any = None, copy: bool = False,
       non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    """The tensor on another device, of another dtype, or both: `x.to("cuda:0")`, `x.to(mo.float16)`.

    It is the tensor itself where nothing changes. Moving takes the value as it is now and has no gradient.

    >>> import morpho as mo
    >>> mo.ones(2).to("cpu", mo.float64).dtype
    float64
    """
    for number, one in enumerate(wanted):
        if isinstance(one, bool) and number:  # PyTorch's to(device, dtype, non_blocking, copy)
            copy = copy or (one and number >= 2 and isinstance(wanted[number - 1], bool))
        elif isinstance(one, Tensor):
            device, dtype = one.device, one.dtype
        elif isinstance(one, str) and one not in BY_NAME:
            device = one
        else:
            dtype = one
    if dtype is not None and self.dtype.is_complex and not as_dtype(dtype).is_complex:
        self = self != 0 if as_dtype(dtype) is bool_ else real(self)  # PyTorch's: no imaginary part
    found = self if dtype is None or as_dtype(dtype) is self.dtype else astype(self, dtype)
    if device is not None:
        found = on(found, holder(device, "to"))
    return asarray(self, copy=True) if copy and found is self else found


def to_device(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """The tensor on a device, as the Array API standard has it; `x.to(device)` does the same."""
    return on(self, holder(device, "to_device"))
