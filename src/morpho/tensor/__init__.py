"""Floor 9: what a user sees. The package is called as PyTorch's function of its name is: `mo.tensor([1.0, 2.0])`."""

import sys
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    def __call__(self, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
                 pin_memory: bool = False) -> Any:
        from morpho.tensor.convert import public_asarray

        made = public_asarray(data, dtype=dtype, device=device)
        return made.requires_grad_() if requires_grad else made


sys.modules[__name__].__class__ = _Package
