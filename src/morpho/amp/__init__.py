"""`mo.amp`: mixed precision. `autocast` computes products in half floats, `GradScaler` keeps gradients in range.

>>> model = mo.nn.Linear(4, 2)
>>> with mo.amp.autocast("bfloat16"):
...     y = model(mo.ones((3, 4)))
>>> y.dtype, model.weight.dtype
(bfloat16, float32)
"""

from morpho.amp.autocast import autocast, policy
from morpho.amp.scaler import GradScaler
from morpho.tensor.tools.foreign_names import module_attribute as _module_attribute

__all__ = ["GradScaler", "autocast", "policy"]

__getattr__ = _module_attribute("amp", __name__)  # a hint for names of other libraries
