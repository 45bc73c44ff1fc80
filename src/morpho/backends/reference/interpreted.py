"""Backends that compute a graph one node at a time: `reference`, and those that users add (`mo.extend.backend`).

Such a backend is three functions. `copy_in` takes a NumPy array to where the backend computes and `copy_out` brings one
back; between them values are whatever the backend likes. `run` computes one node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from morpho.backends.reference import reference
from morpho.base import settings
from morpho.base.dims import settled
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.ir.node import Node


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Interpreter:
    """How one backend computes. bfloat16 comes as float32 arrays, and goes so; results are rounded to their dtype."""

    name: str
    run: Callable[[Node, list[Any], Mapping[str, int]], Any]  # several outputs as a tuple
    copy_in: Callable[[np.ndarray], Any] = _as_it_is
    copy_out: Callable[[Any], np.ndarray] = _as_it_is


INTERPRETERS = {"reference": Interpreter("reference", reference.run_node)}


def current() -> Interpreter | None:
    """The backend of the settings, or None where code is compiled."""
    name = settings.get().backend
    if name == "cpu":
        return None
    if name not in INTERPRETERS:
        raise fail(ArgumentError, "settings", f"the backend {name!r} was removed while a mo.settings block names it",
                   "leave the block, or add the backend again")
    return INTERPRETERS[name]


def run_graph(backend: Interpreter, outputs: Iterable[Node], leaf: Callable[[Node], np.ndarray],
              sizes: Mapping[str, int] = reference.STATIC) -> list[np.ndarray]:
    """Values of nodes; `leaf` gives the arrays of parameters and data."""
    outputs = tuple(outputs)
    values = reference.run_graph(outputs, lambda node: backend.copy_in(leaf(node)), sizes, backend.run)
    return [_checked(backend, node, backend.copy_out(value), sizes)
            for node, value in zip(outputs, values, strict=True)]


def _checked(backend: Interpreter, node: Node, array: Any, sizes: Mapping[str, int]) -> np.ndarray:
    """A result rounded to its dtype, or an error that names the backend whose result has another shape."""
    expected = settled(node.shape, sizes) if sizes else node.shape
    if np.shape(array) != tuple(expected):
        raise fail(ShapeError, node.op.name, f"the backend {backend.name!r} computed a result of shape "
                                             f"{np.shape(array)}, not {tuple(expected)}",
                   "look at its run and copy_out", line=node.origin)
    return reference.rounded(array, node.dtype)
