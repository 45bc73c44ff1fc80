"""The table of `Module.summary`: what a model consists of, and the shapes that pass through it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.base.trees import flatten
from morpho.tensor.jit.native.entries import entries
from morpho.tensor.state.variable import Parameter


class Module(Protocol):
    """Interface of modules that the table needs."""

    _training: bool

    def modules(self) -> Iterator[Any]:
        """It and all below it."""
        ...

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        """The same with their names."""
        ...

    def parameter_count(self) -> int:
        """Numbers that training changes."""
        ...

    def eval(self) -> Any:
        """As after training."""
        ...

    def __call__(self, *inputs: Any) -> Any:
        ...


def summary(model: Module, inputs: Sequence[Any] = ()) -> str:
    """One line per module that has parameters or, where inputs are given, that is called; then the total."""
    outputs = _output_shapes(model, [_as_input(value) for value in inputs]) if inputs else None
    rows = [("module", "kind", "output", "shapes", "parameters")]
    seen: set[int] = set()
    for name, module in model.named_modules():
        own = [value for value in vars(module).values() if isinstance(value, Parameter) and id(value) not in seen]
        own += [value for value in _listed(module) if id(value) not in seen]
        seen |= {id(parameter) for parameter in own}
        if own or (outputs is not None and id(module) in outputs):
            shapes = " ".join(_text(parameter.shape) for parameter in own)
            count = sum(int(parameter.size) for parameter in own)
            rows.append((name or "(self)", type(module).__name__, (outputs or {}).get(id(module), ""), shapes,
                         f"{count:,}"))
    rows.append(("total", "", "", "", f"{model.parameter_count():,}"))
    return _table(rows if outputs is not None else [(*row[:2], *row[3:]) for row in rows])


def _listed(module: Module) -> list[Parameter]:
    """Parameters in lists, tuples and dicts of a module."""
    leaves: list[Any] = []
    for value in vars(module).values():
        if isinstance(value, list | tuple | dict):
            flatten(value, leaves)
    return [leaf for leaf in leaves if isinstance(leaf, Parameter)]


def _as_input(value: Any) -> Any:
    """A tensor, or one of zeros for a shape."""
    if isinstance(value, tuple) and all(isinstance(size, int) for size in value):
        return mo.zeros(value)
    return value


def _output_shapes(model: Module, inputs: Sequence[Any]) -> dict[int, str]:
    """Output shape of each module, by identity, from one traced call that computes nothing."""
    found: dict[int, str] = {}

    def note(module: Module, _: Any, result: Any) -> None:
        leaves: list[Any] = []
        flatten(result, leaves)
        found.setdefault(id(module), " ".join(_text(leaf.shape) for leaf in leaves))

    modules = list(model.modules())
    modes = [module._training for module in modules]
    handles = [module.register_forward_hook(note) for module in modules]
    try:
        model.eval()
        with mo.no_grad():
            model(*inputs)
    except mo.errors.MorphoError as error:
        raise fail(ArgumentError, "summary", f"the model does not take these inputs ({error})") from None
    finally:
        for handle in handles:
            handle.remove()
        for module, mode in zip(modules, modes, strict=True):
            module._training = mode
        entries.forget()
    return found


def _text(shape: Any) -> str:
    return str(tuple(shape)).replace(" ", "")


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False))
                     + "  " + row[-1].rjust(widths[-1]) for row in rows)
