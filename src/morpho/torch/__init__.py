"""PyTorch programs in Morpho: a `torch.compile` backend, modules as Morpho functions, Morpho functions in PyTorch.

>>> import torch
>>> import morpho.torch
>>> f = torch.compile(lambda x: torch.nn.functional.gelu(x) * 2, backend="morpho")
>>> f(torch.ones(2))
tensor([1.6827, 1.6827])
"""


try:
    import torch as _torch
except ImportError as error:
    raise ImportError(f"morpho.torch needs PyTorch: pip install 'morpho-tensor[torch]' ({error})") from None

from morpho.torch.backend import register as _register
from morpho.torch.export import from_exported, from_torch
from morpho.torch.function import to_torch
from morpho.torch.lowering import exclude
from morpho.torch.report import Report, report, reset

_register()

__all__ = ["Report", "exclude", "from_exported", "from_torch", "report", "reset", "to_torch"]
