"""Floor 9: what a user sees. `mo.tensor(...)`, as other libraries have it, is an error that says what to write."""

import sys
from types import ModuleType
from typing import Any, NoReturn


class _Package(ModuleType):
    """This package: called like a function, it says which function is meant."""

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        from morpho.base.errors import ArgumentError, fail

        raise fail(ArgumentError, "tensor", "mo.tensor is no function", "use mo.asarray(...)")


sys.modules[__name__].__class__ = _Package
