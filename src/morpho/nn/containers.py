"""Modules made of modules: Sequential, ModuleList, ModuleDict, Lambda."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from morpho.nn.module import Module


class ModuleList(Module):
    """Modules in order, named by their numbers.

    >>> [name for name, _ in mo.nn.ModuleList([mo.nn.Linear(1, 1)]).named_parameters()]
    ['0.weight', '0.bias']
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> ModuleList:
        setattr(self, str(len(self)), module)
        return self

    def __len__(self) -> int:
        return sum(name.isdigit() for name in vars(self))

    def __iter__(self) -> Iterator[Module]:
        return (vars(self)[str(i)] for i in range(len(self)))

    def __getitem__(self, index: int | slice) -> Any:
        items = list(self)
        return type(self)(items[index]) if isinstance(index, slice) else items[index]


class Sequential(ModuleList):
    """Modules called one after another.

    >>> mo.nn.Sequential(mo.nn.Linear(4, 8), mo.nn.ReLU(), mo.nn.Linear(8, 2))(mo.ones((3, 4))).shape
    (3, 2)
    """

    def __init__(self, *modules: Module | Callable[..., Any] | Iterable[Module]) -> None:
        if len(modules) == 1 and isinstance(modules[0], list | tuple):
            modules = tuple(modules[0])
        super().__init__(module if isinstance(module, Module) else Lambda(module) for module in modules)  # type: ignore

    def forward(self, x: Any) -> Any:
        for module in self:
            x = module(x)
        return x


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
