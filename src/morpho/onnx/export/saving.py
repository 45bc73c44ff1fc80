"""`mo.onnx.save`: a function is traced for examples and written as an ONNX file."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.onnx.export import loops  # noqa: F401  registers how loops are written
from morpho.onnx.export.builder import Builder
from morpho.onnx.export.lowering import Lowering
from morpho.onnx.export.message import encode, kind_of, value_message
from morpho.tensor.core import Tensor
from morpho.weights.atomic import write_bytes

OPSET, IR_VERSION = 20, 9


def save(function: Callable[..., Any], path: str | os.PathLike[str], *examples: Any,
         dynamic: Mapping[str, Any] | None = None, input_names: Sequence[str] | None = None,
         output_names: Sequence[str] | None = None) -> str:
    """Write a function of tensors as an ONNX model; the path is returned.

    The function is traced with the examples, whose shapes and dtypes the file declares; `dynamic` names sizes that may
    differ, as in `mo.compile`, by parameters or by `input_names`. Tensors of the surroundings, a module's parameters
    among them, are stored in the file.
    Operations that ONNX has no words for are an error that lists them.

    >>> w = mo.ones((3, 2))
    >>> path = mo.onnx.save(lambda x: mo.tanh(x @ w), "tanh.onnx", mo.ones((4, 3)))
    >>> mo.onnx.load(path)(mo.zeros((4, 3))).shape
    (4, 2)
    """
    data = encode("Model", _model(function, examples, dynamic, input_names, output_names))
    write_bytes(Path(path), data)
    return os.fspath(path)


def _model(function: Callable[..., Any], examples: Sequence[Any], dynamic: Mapping[str, Any] | None,
           input_names: Sequence[str] | None, output_names: Sequence[str] | None) -> dict[str, Any]:
    if not callable(function):
        raise fail(ArgumentError, "onnx", f"{type(function).__name__} is not a function")
    given = [_example(value) for value in examples]
    inputs = _names(input_names, _parameters(function, len(given)), len(given), "inputs")
    dynamic = None if dynamic is None else _by_parameter(dynamic, inputs, _parameters(function, len(given)))
    traced = mo.compile(getattr(function, "__wrapped__", None) or function, dynamic=dynamic)
    results = traced(*given)
    results = [results] if isinstance(results, Tensor) else results
    if not isinstance(results, tuple | list) or not all(isinstance(item, Tensor) for item in results):
        raise fail(ArgumentError, "onnx", "the function must return a tensor, or a tuple of them")
    special = traced.current
    if special.updates:
        raise fail(ArgumentError, "onnx", "the function changes a state (mo.State), which a file cannot",
                   "return the new value; a module is saved after eval()")
    graph = special.plan.graph
    outputs = _names(output_names, ["y"] if len(results) == 1 else [f"y{at}" for at in range(len(results))],
                     len(results), "outputs")
    build = Builder()
    shapes = {node["index"]: node.shape for node in graph.parameters}
    for at, name in enumerate(inputs):
        build.know_symbols(name, shapes.get(at, given[at].shape))
    captured = [build.tensor(tensor, f"weight_{at}") for at, tensor in enumerate(special.captured)]
    states = [build.tensor(state.value, f"state_{at}") for at, state in enumerate(special.states.states)]
    lowering = Lowering(build, [*inputs, *states, *captured])
    found = lowering.run(graph)
    lowering.refuse_missing()
    for name, made in zip(outputs, found):
        build.node("Identity", [made], name=name)
    declared = [value_message(name, kind_of(given[at].dtype), shapes.get(at, given[at].shape))
                for at, name in enumerate(inputs)]
    produced = [value_message(name, kind_of(node.dtype), node.shape) for name, node in zip(outputs, graph.outputs)]
    body = {"node": build.nodes, "name": getattr(function, "__name__", "model"), "initializer": build.initializers,
            "input": declared, "output": produced}
    return {"ir_version": IR_VERSION, "producer_name": "morpho", "graph": body,
            "opset_import": [{"domain": "", "version": OPSET}]}


def _example(value: Any) -> Tensor:
    if isinstance(value, dict | list | tuple | str) or value is None:
        raise fail(ArgumentError, "onnx", f"an example is a {type(value).__name__}; inputs of a model are tensors")
    return mo.asarray(value)


def _parameters(function: Callable[..., Any], count: int) -> list[str]:
    """The names that the function gives to its arguments."""
    try:
        names = [name for name, each in inspect.signature(function).parameters.items()
                 if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        names = []
    return (names + [f"x{at}" for at in range(len(names), count)])[:count]


def _by_parameter(dynamic: Mapping[str, Any], inputs: list[str], parameters: list[str]) -> dict[str, Any]:
    """Sizes that are given under a name of the file, under the function's own."""
    own = dict(zip(inputs, parameters, strict=True))
    return {name if name in parameters else own.get(name, name): sizes for name, sizes in dynamic.items()}


def _names(wanted: Sequence[str] | None, default: list[str], count: int, what: str) -> list[str]:
    names = default if wanted is None else [*wanted]
    if len(names) != count or len({*names}) != count or not all(isinstance(name, str) and name for name in names):
        raise fail(ArgumentError, "onnx", f"{count} different names of {what} are needed, and {names!r} are given")
    return names
