"""Modules made of modules: Sequential, ModuleList, ModuleDict, ParameterList, Identity, Flatten, Lambda."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import morpho as mo
from morpho.base.checks import check_whole, shown
from morpho.base.dims import product
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.base.shapes import normalise_axis
from morpho.nn.module import Module
from morpho.tensor.state.variable import Parameter


def _checked(owner: Module, module: Any) -> Module:
    """A module; a class is one whose parentheses were forgotten."""
    name = type(owner).__name__
    if isinstance(module, type) and issubclass(module, Module):
        raise fail(ArgumentError, name, f"{module.__name__} is a class and not a module",
                   f"write {module.__name__}(...)")
    if not isinstance(module, Module):
        raise fail(ArgumentError, name, f"{type(module).__name__} is not a module",
                   "wrap a function in nn.Lambda" if callable(module) else "")
    return module


class ModuleList(Module):
    """Modules in order, named by their numbers.

    >>> [name for name, _ in mo.nn.ModuleList([mo.nn.Linear(1, 1)]).named_parameters()]
    ['0.weight', '0.bias']
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self.extend(modules)

    def append(self, module: Module) -> ModuleList:
        """Put a module at the end; returns the list."""
        setattr(self, str(len(self)), _checked(self, module))
        return self

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Put modules at the end; returns the list."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> None:
        """Put a module before another one."""
        items = list(self)
        items.insert(index, _checked(self, module))
        self._fill(items)

    def _fill(self, items: list[Module]) -> None:
        for name in self._names():
            delattr(self, name)
        self.extend(items)

    def _names(self) -> list[str]:
        """Names of the modules in order: numbers, unless `add_module` or a mapping gave others."""
        return [name for name, value in vars(self).items() if isinstance(value, Module)]

    def __len__(self) -> int:
        return len(self._names())

    def __iter__(self) -> Iterator[Any]:
        return iter([value for value in vars(self).values() if isinstance(value, Module)])

    def __getitem__(self, index: int | slice) -> Any:
        items = list(self)
        if not isinstance(index, slice):
            return items[index]
        made = ModuleList.__new__(type(self) if type(self) in (ModuleList, Sequential) else ModuleList)
        ModuleList.__init__(made, items[index])
        return made

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._names()[index], _checked(self, module))

    def __delitem__(self, index: int | slice) -> None:
        names, items = self._names(), list(self)
        if all(name.isdigit() for name in names):
            del items[index]
            self._fill(items)
            return
        for name in names[index] if isinstance(index, slice) else [names[index]]:
            delattr(self, name)


class Sequential(ModuleList):
    """Modules, or plain functions, called one after another.

    >>> mo.nn.Sequential(mo.nn.Linear(4, 8), mo.nn.ReLU(), mo.nn.Linear(8, 2))(mo.ones((3, 4))).shape
    (3, 2)
    """

    def __init__(self, *modules: Module | Callable[..., Any] | Iterable[Module]) -> None:
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                self.add_module(name, module)
            return
        if len(modules) == 1 and isinstance(modules[0], list | tuple):
            modules = tuple(modules[0])
        super().__init__(modules)  # type: ignore[arg-type]

    def append(self, module: Module | Callable[..., Any]) -> Sequential:
        """Put a module or a function at the end; returns the whole."""
        plain = callable(module) and not isinstance(module, Module | type)
        super().append(Lambda(module) if plain else module)  # type: ignore[arg-type]
        return self

    def forward(self, x: Any) -> Any:
        for module in self:
            x = module(x)
        return x


class ModuleDict(Module):
    """Modules by name, in order.

    >>> heads = mo.nn.ModuleDict({"a": mo.nn.Linear(1, 1), "b": mo.nn.Identity()})
    >>> list(heads), [name for name, _ in heads.named_parameters()]
    (['a', 'b'], ['a.weight', 'a.bias'])
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        self.update(modules or {})

    def update(self, modules: Mapping[str, Module]) -> None:
        """Put in several."""
        for name, module in modules.items():
            self[name] = module

    def __setitem__(self, name: str, module: Module) -> None:
        if not isinstance(name, str) or not name or hasattr(type(self), name):
            raise fail(ArgumentError, "ModuleDict", f"{name!r} cannot be the name of a module")
        setattr(self, name, _checked(self, module))

    def __getitem__(self, name: str) -> Any:
        found = vars(self).get(name)
        if not isinstance(found, Module):
            raise KeyError(name)
        return found

    def __delitem__(self, name: str) -> None:
        self[name]
        delattr(self, name)

    def __contains__(self, name: object) -> bool:
        return any(name == known for known in self)

    def __len__(self) -> int:
        return sum(1 for _ in iter(self))

    def __iter__(self) -> Iterator[str]:
        return (name for name, value in vars(self).items() if isinstance(value, Module))

    def keys(self) -> list[str]:
        """The names."""
        return list(self)

    def values(self) -> list[Any]:
        """The modules."""
        return [self[name] for name in self]

    def items(self) -> list[tuple[str, Any]]:
        """Names and modules."""
        return [(name, self[name]) for name in self]


class ParameterList(Module):
    """Parameters in order, named by their numbers.

    >>> [name for name, _ in mo.nn.ParameterList([mo.ones(2)]).named_parameters()]
    ['0']
    """

    def __init__(self, values: Iterable[Any] = ()) -> None:
        for value in values:
            self.append(value)

    def append(self, value: Any) -> ParameterList:
        """Put a parameter, or a tensor that becomes one, at the end; returns the list."""
        setattr(self, str(len(self)), value if isinstance(value, Parameter) else Parameter(value))
        return self

    def __len__(self) -> int:
        return sum(name.isdigit() for name in vars(self))

    def __iter__(self) -> Iterator[Parameter]:
        return (vars(self)[str(i)] for i in range(len(self)))

    def __getitem__(self, index: int) -> Parameter:
        return list(self)[index]


class Identity(Module):
    """Return the input unchanged; takes and ignores any settings, to stand in for another layer.

    >>> mo.nn.Identity()(mo.ones(2)).numpy()
    array([1., 1.], dtype=float32)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def forward(self, x: Any) -> Any:
        return x


class Flatten(Module):
    """The axes from `start_dim` to `end_dim` as one.

    >>> mo.nn.Flatten()(mo.ones((2, 3, 4))).shape
    (2, 12)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        check_whole("Flatten", start_dim=start_dim, end_dim=end_dim)
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        rank, start, end = x.ndim, self.start_dim, self.end_dim
        if not (-rank <= start < rank and -rank <= end < rank) or start % rank > end % rank:
            raise fail(ShapeError, "Flatten", f"shape {tuple(x.shape)} has no axes {start} to {end}")
        start, end = start % rank, end % rank + 1
        return mo.reshape(x, (*x.shape[:start], product(x.shape[start:end]), *x.shape[end:]))

    def describe(self) -> str:
        return "" if (self.start_dim, self.end_dim) == (1, -1) else f"{self.start_dim}, {self.end_dim}"


class Unflatten(Module):
    """One axis as several.

    >>> mo.nn.Unflatten(1, (3, 4))(mo.ones((2, 12))).shape
    (2, 3, 4)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        check_whole("Unflatten", dim=dim)
        if not isinstance(unflattened_size, tuple | list):
            raise fail(ArgumentError, "Unflatten", f"unflattened_size={shown(unflattened_size)} is no tuple of sizes")
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        axis = normalise_axis(self.dim, x.ndim, "Unflatten")
        return mo.reshape(x, (*x.shape[:axis], *self.unflattened_size, *x.shape[axis + 1:]))

    def describe(self) -> str:
        return f"{self.dim}, {self.unflattened_size}"


class Lambda(Module):
    """A plain function as a module.

    >>> import morpho as mo
    >>> mo.nn.Lambda(mo.relu)(mo.asarray([-1.0, 1.0])).numpy()
    array([0., 1.], dtype=float32)
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def describe(self) -> str:
        return getattr(self.function, "__name__", "function")
