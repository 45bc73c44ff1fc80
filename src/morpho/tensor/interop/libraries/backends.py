"""Backends that einops and opt_einsum look for, given to them when they are imported, whichever comes first.

Neither is imported here, and nothing is asked of users: `einops.rearrange(tensor, ...)` just works.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

OPT_EINSUM_NAMES = "morpho.tensor.interop.libraries.opt_einsum_names"


def give_einops(backends: ModuleType) -> None:
    """einops takes every subclass of its `AbstractBackend` whose framework is imported."""
    class MorphoBackend(backends.AbstractBackend):  # type: ignore[name-defined,misc]
        framework_name = "morpho"

        def __init__(self) -> None:
            self.xp = sys.modules["morpho"]  # einops looks for it there

        def is_appropriate_type(self, tensor: Any) -> bool:
            return isinstance(tensor, self.xp.Tensor)

        def from_numpy(self, x: Any) -> Any:
            return self.xp.asarray(x)

        def to_numpy(self, x: Any) -> Any:
            return x.numpy()

        def arange(self, start: int, stop: int) -> Any:
            return self.xp.arange(start, stop)

        def reshape(self, x: Any, shape: Any) -> Any:
            return self.xp.reshape(x, tuple(shape))

        def transpose(self, x: Any, axes: Any) -> Any:
            return self.xp.permute_dims(x, tuple(axes))

        def reduce(self, x: Any, operation: str, axes: Any) -> Any:
            return getattr(self.xp, operation)(x, axis=tuple(axes))

        def stack_on_zeroth_dimension(self, tensors: list[Any]) -> Any:
            return self.xp.stack(tensors)

        def add_axis(self, x: Any, new_position: int) -> Any:
            return self.xp.expand_dims(x, axis=new_position)

        def tile(self, x: Any, repeats: Any) -> Any:
            return self.xp.tile(x, tuple(repeats))

        def concat(self, tensors: list[Any], axis: int) -> Any:
            return self.xp.concat(tensors, axis=axis)

        def is_float_type(self, x: Any) -> bool:
            return bool(self.xp.isdtype(x.dtype, "real floating"))

        def einsum(self, pattern: str, *x: Any) -> Any:
            return self.xp.einsum(pattern, *x)

    backends._morpho = MorphoBackend  # type: ignore[attr-defined]  # subclasses are held weakly


def give_opt_einsum(dispatch: ModuleType) -> None:
    """opt_einsum looks for `tensordot`, `transpose` and `einsum` in the module of an array's class, by an alias."""
    dispatch._aliases["morpho"] = OPT_EINSUM_NAMES


GIVEN: dict[str, Callable[[ModuleType], None]] = {"einops._backends": give_einops,
                                                  "opt_einsum.backends.dispatch": give_opt_einsum}


class _Then(Loader):
    """A loader that does something with its module once that is there; all else is the loader's own."""

    def __init__(self, loader: Any, then: Callable[[ModuleType], None]) -> None:
        self.loader, self.then = loader, then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.then(module)


class WhenImported(MetaPathFinder):
    """Sees imports of a few modules."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
                  ) -> ModuleSpec | None:
        then = GIVEN.get(fullname)
        spec = None if then is None else PathFinder.find_spec(fullname, path)
        if then is None or spec is None or spec.loader is None:
            return None
        spec.loader = _Then(spec.loader, then)
        return spec


def offer() -> None:
    """Give backends to libraries that are imported, and to others when they are."""
    for name, give in GIVEN.items():
        if name in sys.modules:
            give(sys.modules[name])
    if not any(isinstance(finder, WhenImported) for finder in sys.meta_path):
        sys.meta_path.insert(0, WhenImported())
