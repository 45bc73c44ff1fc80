"""The op that runs a kernel over tiles.

Inputs are the arrays that are read, in the order of the kernel's arguments; outputs those that are written. Attributes:
`program` (the IR's text), `grid` (sizes), `shapes` and `dtypes` of the outputs, `fills` (for each output a number, or
"undefined", or "input" where it begins as a copy of the input of its name), `label` (the kernel's name, by which its
gradient is found) and `levels`: for each `vmap` around it (size, for each array whether it has that axis in front).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from morpho.base.dims import Size
from morpho.base.dtypes import DType
from morpho.base.errors import ArgumentError, fail
from morpho.ir.node import Node, build
from morpho.ir.op import ANY, JOINT, Attributes, Op, Spec, register

if TYPE_CHECKING:
    from morpho.ops.tiles.ir import Array, TileProgram

GRADIENTS: dict[str, Callable[..., Sequence[Node | None]]] = {}  # by a kernel's label: of (node, cotangents)
UNDEFINED, INPUT = "undefined", "input"
Levels = tuple[tuple[Size, tuple[bool, ...]], ...]


def decoded(text: str) -> TileProgram:
    """The program of a text. Most processes have no kernels, and do without the IR."""
    from morpho.ops.tiles.ir import decode

    return decode(text)


def inputs_of(program: TileProgram, fills: Sequence[Any]) -> list[Array]:
    """The arrays that are inputs: those that are only read, and results that begin as an input."""
    begins = dict(zip([array.name for array in program.arrays if array.written], fills, strict=True))
    return [array for array in program.arrays if not array.written or begins[array.name] == INPUT]


def _infer(inputs: Sequence[Spec], attributes: Attributes) -> Spec | tuple[Spec, ...]:
    program = decoded(attributes["program"])
    wanted = inputs_of(program, attributes["fills"])
    if len(wanted) != len(inputs):
        raise fail(ArgumentError, program.name, f"the kernel takes {len(wanted)} arrays, not {len(inputs)}")
    levels = attributes["levels"]
    names = [array.name for array in program.arrays]
    for array, spec in zip(wanted, inputs, strict=True):
        extra = sum(flags[names.index(array.name)] for _, flags in levels)
        if spec.dtype is not array.dtype or len(spec.shape) != array.rank + extra:
            raise fail(ArgumentError, program.name, f"{array.name} is {spec.dtype} of {len(spec.shape)} axes")
    specs = tuple(Spec(tuple(shape), dtype)
                  for shape, dtype in zip(attributes["shapes"], attributes["dtypes"], strict=True))
    return specs if len(specs) > 1 else specs[0]


def _reference(attributes: Attributes, *inputs: Any) -> Any:
    """The interpreter, for each element of the levels around the kernel."""
    program = decoded(attributes["program"])
    written = [array for array in program.arrays if array.written]
    given = dict(zip([array.name for array in inputs_of(program, attributes["fills"])], inputs, strict=True))
    results: dict[str, np.ndarray] = {}
    for array, shape, dtype, begin in zip(written, attributes["shapes"], attributes["dtypes"], attributes["fills"],
                                          strict=True):
        storage = _storage(dtype)
        if begin == INPUT:
            results[array.name] = np.array(np.broadcast_to(given[array.name], shape), storage)
        else:
            results[array.name] = np.full(shape, 0 if begin == UNDEFINED else begin, storage)
    everything = [results.get(array.name, given.get(array.name)) for array in program.arrays]
    _run(program, everything, attributes["grid"], attributes["levels"])
    found = tuple(results.values())
    return found if len(found) > 1 else found[0]


def _storage(dtype: DType) -> np.dtype:
    return dtype.compute.numpy if dtype.is_float else dtype.numpy


def _run(program: TileProgram, arrays: list[Any], grid: Sequence[int], levels: Levels) -> None:
    from morpho.ops.tiles.interpret import Interpreter

    if not levels:
        Interpreter(program, arrays, grid).run()
        return
    size, flags = levels[0]
    assert isinstance(size, int)
    for row in range(size):
        _run(program, [array[row] if moves else array for array, moves in zip(arrays, flags, strict=True)], grid,
             levels[1:])


def apply(program: TileProgram, inputs: Sequence[Node], grid: Sequence[Size], results: Sequence[tuple[Any, Any]],
          label: str, fills: Sequence[Any] = ()) -> Node:
    """The node of a program on its inputs. `results`: shape and dtype of each; `fills`: values they begin with."""
    return build("tile_kernel", *inputs, program=program.text, grid=tuple(grid), levels=(), label=label,
                 fills=tuple(fills) or (UNDEFINED,) * len(results), shapes=tuple(tuple(shape) for shape, _ in results),
                 dtypes=tuple(dtype for _, dtype in results))


def _rule(node: Node, cotangents: Any) -> Sequence[Node | None]:
    rule = GRADIENTS.get(node["label"])
    if rule is None:
        raise fail(ArgumentError, "grad", f"the kernel {node['label']} has no gradient",
                   "give one: @mo.kernel(..., vjp=function of (inputs, outputs, cotangents))")
    if node["levels"]:
        raise fail(ArgumentError, "grad", f"the gradient of the kernel {node['label']} inside of vmap is not supported",
                   "take the gradient first: mo.vmap(mo.grad(f))")
    return rule(node, cotangents)


def _batch(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Any) -> Any:
    """A level around the grid: each row has programs of its own, and results of its own."""
    program = decoded(node["program"])
    given = dict(zip([array.name for array in inputs_of(program, node["fills"])], batched, strict=True))
    flags = tuple(array.written or given.get(array.name, False) for array in program.arrays)
    made = list(inputs)
    for number, array in enumerate(inputs_of(program, node["fills"])):
        if array.written and not batched[number]:  # each row changes a copy of its own
            from morpho.ops.algebra import expand, reshape

            one = made[number]
            made[number] = expand(reshape(one, (1, *one.shape)), (rows.size, *one.shape))
    attributes = {**node.attributes, "levels": ((rows.size, flags), *node["levels"]),
                  "shapes": tuple((rows.size, *shape) for shape in node["shapes"])}
    return build("tile_kernel", *made, **attributes)


register(Op("tile_kernel", "scan", _infer, _rule, _reference, 1, "the kernel's order of additions",
            frozenset({JOINT}), arity=ANY, batch=_batch))
