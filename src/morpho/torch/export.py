"""`mo.from_torch`: a PyTorch module as a Morpho function, through `torch.export`. Calls of it need no PyTorch."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.torch.backend import decompositions
from morpho.torch.lowering import Lowered, lower
from morpho.torch.program import LoweringError, Program, Size, evaluated
from morpho.torch.tensors import borrow


def from_torch(module: Any, example: Any, kwargs: Mapping[str, Any] | None = None, *,
               dynamic_shapes: Any = None) -> Any:
    """A Morpho function of a PyTorch module: compiled as by `mo.compile`, called with Morpho tensors or NumPy arrays.

    module: a `torch.nn.Module` in the mode it is to have (`eval()` for inference). Its weights are shared, not copied:
        what PyTorch writes to them in place, later calls see.
    example: its arguments, a tuple, or one tensor; they fix shapes and dtypes. kwargs: its arguments by name.
    dynamic_shapes: as `torch.export.export` takes it: sizes that may change without compiling anew.

    A module with operations that Morpho lacks is an error that names all of them. One that draws random numbers makes a
    function with one more argument, `key`, from `mo.random.key`.

    >>> import torch
    >>> module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    >>> f = mo.from_torch(module, torch.ones(4, 3))
    >>> f(np.ones((4, 3), np.float32)).shape
    (4, 2)
    """
    if not isinstance(module, torch.nn.Module):
        raise fail(ArgumentError, "from_torch", f"a {type(module).__name__} is no torch.nn.Module",
                   "mo.to_torch takes Morpho functions")
    args = tuple(example) if isinstance(example, list | tuple) else (example,)
    for value in mo.tree.leaves([args, dict(kwargs or {})]):
        if isinstance(value, np.ndarray | mo.Tensor):
            raise fail(ArgumentError, "from_torch", f"the example holds a {type(value).__name__}, and torch.export "
                                                    "takes PyTorch's tensors", "write torch.as_tensor(array)")
    with torch.no_grad():
        exported = torch.export.export(module, args, dict(kwargs or {}), dynamic_shapes=dynamic_shapes)
    names = _parameters(module, args, dict(kwargs or {}))
    return _from_program(exported, type(module).__name__, names, args, dict(kwargs or {}))


def from_exported(program: Any) -> Any:
    """A Morpho function of what `torch.export.export` gives, or `torch.export.load` reads: compiled as by `mo.compile`.

    Its arguments are those of the program's example, by place or by the names that PyTorch gave them. The module that
    it was made of is not needed.

    >>> import torch
    >>> module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    >>> program = torch.export.export(module, (torch.ones(4, 3),))
    >>> mo.torch.from_exported(program)(np.ones((4, 3), np.float32)).shape
    (4, 2)
    """
    if not isinstance(program, torch.export.ExportedProgram):
        raise fail(ArgumentError, "from_exported", f"a {type(program).__name__} is no torch.export.ExportedProgram",
                   "mo.from_torch takes modules")
    args, kwargs = program.example_inputs if program.example_inputs is not None else ((), {})
    leaves = len(mo.tree.leaves([args, kwargs]))
    if leaves != len(program.graph_signature.user_inputs):
        raise fail(ArgumentError, "from_exported", "the program has no example of its arguments",
                   "save it with them: torch.export.save keeps example_inputs")
    plain = leaves == len(args) + len(kwargs)
    listed = [str(name) for name in program.graph_signature.user_inputs] if plain else [f"x{i}" for i in range(
        len(args))] + list(kwargs)
    return _from_program(program, "exported", listed, tuple(args), dict(kwargs))


def _from_program(exported: Any, name: str, names: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The function of an exported program; `names` are those of its arguments."""
    with torch.no_grad():
        exported = exported.run_decompositions(decompositions())
    _check_state(exported.graph_signature)
    lacking: Counter[tuple[str, str]] = Counter()
    lowered = lower(exported.graph_module, lambda name, reason: lacking.update([(name, reason)]))
    if lacking:
        listed = ", ".join(f"{name} x {count} ({reason})" for (name, reason), count in lacking.most_common())
        raise fail(LoweringError, "from_torch", f"{name} needs operations that Morpho lacks: {listed}",
                   "use torch.compile(module, backend='morpho'), which leaves those to PyTorch")
    return _function(name, names, exported, lowered, args, kwargs)


def _check_state(signature: Any) -> None:
    changed = sorted({*signature.buffers_to_mutate.values(), *getattr(signature, "user_inputs_to_mutate", {}).values()})
    if changed:
        raise fail(ArgumentError, "from_torch",
                   f"the module writes to {', '.join(changed)}, and a function has no state",
                   "call module.eval() first, or use torch.compile(module, backend='morpho')")


def _function(name: str, names: list[str], exported: Any, lowered: Lowered, args: tuple[Any, ...],
              kwargs: dict[str, Any]) -> Any:
    """The compiled function: user's arguments by the names of `forward`, weights captured."""
    program = lowered.stages[0].program
    program.orders = [None] * len(program.outputs)
    users, weights = _sources(exported, lowered)
    outputs = {node: number for number, node in enumerate(lowered.stages[0].outputs)}
    results = lowered.results[len(lowered.results) - exported.call_spec.out_spec.num_leaves:]
    arrange = _skeleton(exported.call_spec.out_spec)
    inputs = lowered.stages[0].inputs

    def call(given: Sequence[Any], key: Any = None) -> Any:
        leaves = [leaf for value in given for leaf in mo.tree.leaves(value)]
        places = {node: leaves[number] for node, number in users.items() if number < len(leaves)}
        symbols = _bound(places)
        values = [places[node] if node in places else weights[node] for node in inputs]
        values += [symbols[symbol] for symbol in program.symbols]
        made = program.run([*values, key] if program.is_random else values) if program.outputs else ()

        def result(part: Any) -> Any:
            if isinstance(part, Node):
                return made[outputs[part]] if part in outputs else places.get(part, weights.get(part))
            return evaluated(part, symbols) if isinstance(part, Size) else part

        return arrange([result(part) for part in results])

    listed = ", ".join(names)
    more = ", key" if program.is_random else ""
    text = f"lambda {listed}{more}: call(({listed}{',' if names else ''}){more})"
    function = eval(text, {"call": call, "__name__": __name__})  # named: errors are the caller's line, not this text's
    function.__name__ = name
    return mo.compile(function, dynamic=_dims(program, lowered, users, names, args, kwargs))


def _sources(exported: Any, lowered: Lowered) -> tuple[dict[Node, int], dict[Node, Any]]:
    """Placeholders that are the user's arguments, by their number, and those that are weights, as borrowed tensors."""
    by_name = {node.name: node for node in lowered.placeholders}
    users: dict[Node, int] = {}
    weights: dict[Node, Any] = {node: borrow(value) for node, value in lowered.attributes.items()}
    for spec in exported.graph_signature.input_specs:
        node = by_name[spec.arg.name]
        if spec.kind.name == "USER_INPUT":
            users[node] = len(users)
        else:
            held = exported.state_dict.get(spec.target)
            weights[node] = borrow(held if held is not None else exported.constants[spec.target])
    return users, weights


def _parameters(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """The names of the arguments given in the example."""
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    kinds = {name: p.kind for name, p in inspect.signature(module.forward).parameters.items()}
    loose = any(kinds[name] in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
                for name in bound.arguments)
    return [f"x{i}" for i in range(len(args))] + list(kwargs) if loose else list(bound.arguments)


def _bound(places: Mapping[Node, Any]) -> dict[str, Any]:
    """The sizes of the symbols, from the shapes of the arguments."""
    from morpho.torch.lowering import size_of

    found: dict[str, Any] = {}
    for node, tensor in places.items():
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        sizes = [size_of(size) for size in value.shape]
        if len(sizes) != len(tensor.shape) or any(isinstance(size, int) and isinstance(there, int) and size != there
                                                  for size, there in zip(sizes, tensor.shape)):
            taken = ", ".join(size.text if isinstance(size, Size) else str(size) for size in sizes)
            raise fail(ArgumentError, "from_torch",
                       f"{node.name} has the shape {tuple(tensor.shape)}, and the example was of ({taken})",
                       "give an example of that shape, or dynamic_shapes= for sizes that change")
        for text, actual in zip(sizes, tensor.shape, strict=True):
            if isinstance(text, Size) and text.text.isidentifier():
                found.setdefault(text.text, actual)
    return found


def _skeleton(spec: Any) -> Callable[[list[Any]], Any]:
    """How a flat list of results becomes what the module returns: tuples, lists and dicts."""
    shape = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)

    def arranged(part: Any, values: list[Any]) -> Any:
        if isinstance(part, Mapping):
            return {name: arranged(value, values) for name, value in part.items()}
        if isinstance(part, list | tuple):
            parts = [arranged(value, values) for value in part]
            return parts if isinstance(part, list) else tuple(parts)
        return values[part] if isinstance(part, int) else part

    return lambda values: arranged(shape, values)


def _dims(program: Program, lowered: Lowered, users: Mapping[Node, int], names: list[str], args: tuple[Any, ...],
          kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """The `dynamic=` of `mo.compile`: memory is planned for a size's bound, so an open one gets a moderate bound."""
    if not program.is_dynamic:
        return None
    hints: dict[str, int] = {}
    for node in users:
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else ():
            if isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
                hints[str(size.node.expr)] = size.node.hint or 16
    bounds = {name: (low, high if high < 1 << 20 else max(4 * hints.get(name, 16), 4096))
              for name, (low, high) in lowered.bounds.items()}
    axes = program.dims(bounds)
    by_leaf = {users[node]: axes.get(f"x{i}") for i, node in enumerate(lowered.stages[0].inputs) if node in users}
    found: dict[str, Any] = {}
    at = 0
    for name, value in zip(names, (*args, *kwargs.values()), strict=True):
        leaves = len(mo.tree.leaves(value))
        if isinstance(value, torch.Tensor) and by_leaf.get(at):
            found[name] = by_leaf[at]
        at += leaves
    return found or None


