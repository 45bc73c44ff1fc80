"""From an FX graph of ATen operations to programs: what Morpho has becomes native functions, the rest stays.

Nodes are put into stages. A stage runs one Morpho program and then the operations that PyTorch keeps; a Morpho node
moves to the next stage only where it needs a result of PyTorch. A graph of which Morpho has everything is one stage.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import GraphModule, Node

from morpho.base.errors import fail
from morpho.torch import report
from morpho.torch.aten import TABLE, Entry, Meta
from morpho.torch.program import LoweringError, Number, Parameter, Program, Size, Step, Value
from morpho.torch.tensors import DTYPES, is_plain

_excluded: set[str] = set()


def exclude(*names: str) -> None:
    """Leave these ATen operations to PyTorch from now on, in graphs that are compiled later. No name: none are left.

    >>> import morpho.torch
    >>> morpho.torch.exclude("aten.tanh.default")
    >>> morpho.torch.exclude()
    """
    _excluded.clear()
    for name in names:
        if name not in TABLE:
            raise fail(LoweringError, "exclude", f"{name!r} is no operation of the table",
                       "names are like 'aten.tanh.default'; morpho.torch.report().operations lists those in use")
    _excluded.update(names)


@dataclass
class Stage:
    """A program with the nodes it reads and makes, and the nodes that PyTorch computes after it."""

    inputs: list[Node] = field(default_factory=list)
    outputs: list[Node] = field(default_factory=list)
    program: Program = field(default_factory=Program)
    left: list[Node] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    steps: list[Node] = field(default_factory=list)  # those of the program's steps
    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)  # of the symbols in the program


@dataclass
class Lowered:
    """A graph in stages; `results` holds its outputs: nodes, `Size` expressions, constants."""

    placeholders: list[Node]
    attributes: dict[Node, Any]
    stages: list[Stage]
    results: list[Any]
    bounds: dict[str, tuple[int, int]]

    def operations(self) -> list[str]:
        """The names of the operations in Morpho."""
        return [_name(node) for stage in self.stages for node in stage.steps if node.target is not operator.getitem]

    def node_of(self, wanted: Step) -> Node | None:
        """The node that a step of a program was made of."""
        pairs = [pair for stage in self.stages for pair in zip(stage.steps, stage.program.steps, strict=True)]
        return next((node for node, step in pairs if step is wanted), None)


# -- what is known of nodes --------------------------------------------------------------------------------------------
def is_symbolic(value: Any) -> bool:
    """Whether a value is a size that PyTorch keeps open."""
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


def size_of(value: Any) -> int | Size:
    """A number, or the expression of a symbolic one."""
    if not is_symbolic(value):
        return value
    from torch.utils._sympy.printers import PythonPrinter

    expression = value.node.expr
    return int(expression) if expression.is_Integer else Size(str(PythonPrinter().doprint(expression)))


def _whole(value: Any) -> int | None:
    found = size_of(value)
    return found if isinstance(found, int) else None


def meta_of(value: Any) -> Meta | None:
    """Metadata of a tensor; None of anything else."""
    if not isinstance(value, torch.Tensor) or value.dtype not in DTYPES:
        return None
    return Meta(tuple(_whole(s) for s in value.shape), tuple(_whole(s) for s in value.stride()), DTYPES[value.dtype])


def _value(node: Node) -> Any:
    return node.meta.get("val")


def _leaves(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, list | tuple) else [value]


def _nodes(arguments: Any) -> list[Node]:
    found: list[Node] = []
    torch.fx.map_arg(arguments, found.append)
    return found


def _name(node: Node) -> str:
    return str(node.target)


def _refusal(node: Node, kept: Mapping[Node, str]) -> tuple[Entry | None, str]:
    """The table's entry for a node, or why PyTorch keeps it."""
    if node in kept:
        return None, kept[node]
    name = _name(node)
    entry = TABLE.get(name)
    if entry is None:
        return None, "Morpho has no such operation"
    if name in _excluded:
        return None, "excluded"
    for part in _leaves([_value(node), *[_value(source) for source in node.all_input_nodes]]):
        if isinstance(part, torch.Tensor) and not is_plain(part):
            return None, f"a tensor of {part.dtype} on {part.device}, {part.layout}"
    if entry.refuse is not None:
        args = torch.fx.map_arg(node.args, lambda n: meta_of(_value(n)) or _value(n))
        kwargs = torch.fx.map_arg(node.kwargs, lambda n: meta_of(_value(n)) or _value(n))
        reason = entry.refuse(*args, **kwargs)
        if reason:
            return None, reason
    return entry, ""


def _constant(argument: Any) -> Any:
    """An argument that is no node, without PyTorch's types."""
    if isinstance(argument, torch.dtype):
        return DTYPES.get(argument)
    if isinstance(argument, torch.device | torch.layout | torch.memory_format):
        return None
    if is_symbolic(argument):
        return size_of(argument)
    if isinstance(argument, list | tuple):
        return type(argument)(_constant(part) for part in argument)
    return argument


# -- stages ------------------------------------------------------------------------------------------------------------
def lower(module: GraphModule, leave: Callable[[str, str], None] = report.leave,
          kept: Mapping[Node, str] = MappingProxyType({})) -> Lowered:
    """The stages of a graph; `leave` is told the name of every operation that PyTorch keeps, and why. `kept` are nodes
    that turned out to be no operation of Morpho's, with the reason."""
    graph = module.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    attributes = {node: _attribute(module, str(node.target)) for node in graph.nodes if node.op == "get_attr"}
    for node, attribute in attributes.items():
        node.meta.setdefault("val", attribute)
    stages: list[Stage] = [Stage()]
    place: dict[Node, int] = {}  # stage of a node
    ours: dict[Node, Entry] = {}
    result: Any = ()
    last_impure = 0
    epilogue: list[Node] = []  # after all else: what the arguments are to hold
    writes = next((_name(node) for node in graph.nodes if _writes(node)), None)
    for node in graph.nodes:
        if node.op == "output":
            result = node.args[0]
        if node.op != "call_function" or _is_promise(node):
            continue
        if writes is None and _is_epilogue(node):
            epilogue.append(node)
            continue
        if is_symbolic(_value(node)) or isinstance(_value(node), int | float | bool):
            if _is_size(node):
                continue
        before = [place[n] + int(n not in ours) for n in node.all_input_nodes if n in place]
        source = node.args[0] if node.target is operator.getitem else None
        if isinstance(source, Node) and source in place:  # one of several results goes with its source
            place[node] = place[source]
            (stages[place[source]].nodes if source in ours else stages[place[source]].left).append(node)
            if source in ours:
                ours[node] = ours[source]
            continue
        entry, reason = _refusal(node, kept) if writes is None else (None, f"a graph in which {writes} writes in place")
        if entry is not None:
            place[node] = max(before, default=0)
            ours[node] = entry
        else:
            leave(_name(node), reason)
            held = [place[n] for n in node.all_input_nodes if n in place]
            place[node] = max([*held, last_impure] if node.is_impure() else held, default=0)
            last_impure = max(last_impure, place[node]) if node.is_impure() else last_impure
        while len(stages) <= place[node]:
            stages.append(Stage())
        stage = stages[place[node]]
        (stage.nodes if entry is not None else stage.left).append(node)
    stages[-1].left.extend(epilogue)
    results = [_result(part) for part in (result if isinstance(result, list | tuple) else [result])]
    wanted = {part for part in results if isinstance(part, Node)}
    bounds = _bounds(graph.nodes)
    for stage in stages:
        _fill(stage, ours, wanted, attributes, bounds)
    return Lowered(placeholders, attributes, stages, results, bounds)


def _writes(node: Node) -> bool:
    """Whether a node changes a tensor in place: AOTAutograd leaves none, other graphs may; those stay in PyTorch."""
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and schema.is_mutable and not _is_epilogue(node)


def _is_epilogue(node: Node) -> bool:
    """Whether a node writes a result back into an argument of the graph, and nobody reads it afterwards."""
    target = node.args[0] if node.args else None
    return (_name(node) == "aten.copy_.default" and isinstance(target, Node) and target.op == "placeholder"
            and all(user.op == "output" for user in node.users))


def _is_size(node: Node) -> bool:
    """Whether a node computes a size from sizes, not from the elements of a tensor."""
    return "_local_scalar_dense" not in _name(node) and (
        _name(node).startswith("aten.sym_") or not any(isinstance(_value(n), torch.Tensor)
                                                       for n in node.all_input_nodes))


def _is_promise(node: Node) -> bool:
    """Whether a node asserts what guards or the bounds of sizes assert already: dtypes of tensors, sizes."""
    if _name(node) == "aten._assert_scalar.default":
        return all(not isinstance(_value(source), torch.Tensor) for source in node.all_input_nodes)
    return _name(node) == "aten._assert_tensor_metadata.default"


def _attribute(module: GraphModule, path: str) -> Any:
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _result(part: Any) -> Any:
    if isinstance(part, Node):
        value = _value(part)
        if is_symbolic(value) and part.op != "placeholder" and _is_size(part):
            return size_of(value)
    return part


def _bounds(nodes: Iterable[Node]) -> dict[str, tuple[int, int]]:
    """The least and largest number of every symbol, as PyTorch's shape environment has them."""
    found: dict[str, tuple[int, int]] = {}
    for leaf in (leaf for node in nodes for leaf in _leaves(_value(node))):
        for size in list(leaf.shape) if isinstance(leaf, torch.Tensor) else [leaf]:
            if not isinstance(size, torch.SymInt):
                continue
            ranges = size.node.shape_env.var_to_range
            for symbol in size.node.expr.free_symbols:
                low, high = ranges[symbol].lower, ranges[symbol].upper
                found[str(symbol)] = (max(int(low), 1) if low.is_Integer else 1,
                                      min(int(high), 1 << 31) if high.is_Integer else 1 << 31)
    return found


def _fill(stage: Stage, ours: Mapping[Node, Entry], wanted: set[Node], attributes: Mapping[Node, Any],
          bounds: Mapping[str, Any]) -> None:
    """Make a stage's program of its nodes."""
    mine = set(stage.nodes)
    stage.outputs = [node for node in stage.nodes if isinstance(_value(node), torch.Tensor)
                     and (node in wanted or any(user not in mine and user.op != "output" for user in node.users))]
    live = _live(stage)
    steps = stage.steps = [node for node in stage.nodes if node in live]
    for node in steps:
        for source in node.all_input_nodes:
            if source not in mine and source not in stage.inputs and isinstance(_value(source), torch.Tensor):
                stage.inputs.append(source)
    program = stage.program
    numbers = {node: i for i, node in enumerate(stage.inputs)}
    for node in stage.inputs:
        value, meta = _value(node), meta_of(_value(node))
        assert meta is not None, node
        program.parameters.append(Parameter(tuple(size_of(s) for s in value.shape), meta))
    for node in steps:
        numbers[node] = len(numbers)
        program.steps.append(_step(node, ours[node], numbers))
    program.outputs = [Value(numbers[node]) for node in stage.outputs]
    program.orders = [_order(_value(node)) for node in stage.outputs]
    axes = {size.text for p in program.parameters for size in p.sizes if isinstance(size, Size)}
    stage.bounds = {name: bounds[name] for name in sorted(_symbols(program, bounds))}
    program.symbols = sorted(set(stage.bounds) - axes)


def _live(stage: Stage) -> set[Node]:
    """The nodes that an output of the stage needs: statistics nobody asks for are not computed."""
    live: set[Node] = set()
    waiting = list(stage.outputs)
    mine = set(stage.nodes)
    while waiting:
        node = waiting.pop()
        if node not in live and node in mine:
            live.add(node)
            waiting.extend(node.all_input_nodes)
    return live


_GETITEM = Entry("op.getitem", operator.getitem)


def _step(node: Node, entry: Entry, numbers: Mapping[Node, int]) -> Step:
    def argument(n: Node) -> Any:
        value = _value(n)
        if n in numbers:
            return Value(numbers[n])
        return size_of(value)

    args = _constant(_tensors_of_numbers(node, torch.fx.map_arg(node.args, argument)))
    kwargs = {name: _constant(value) for name, value in torch.fx.map_arg(node.kwargs, argument).items()}
    value = _value(node)
    many = isinstance(value, list | tuple)
    metas = tuple(meta_of(part) for part in value) if many else (meta_of(value),)
    operands = torch.fx.map_arg(node.args, lambda n: meta_of(_value(n)))
    return Step(_GETITEM if node.target is operator.getitem else entry, tuple(args), kwargs, metas, tuple(operands),
                numbers[node], many)


def _tensors_of_numbers(node: Node, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments, with a tensor of no axes for a number that is the operation's only tensor: `conj(1j)`. Beside other
    tensors a number stays one, which promotion tells from a tensor."""
    schema = getattr(node.target, "_schema", None)
    places = [place for place, declared in enumerate(schema.arguments) if str(declared.type) == "Tensor"
              ] if schema is not None else []
    if len(places) != 1 or places[0] >= len(args) or not isinstance(args[places[0]], bool | int | float | complex):
        return args
    place = places[0]
    return (*args[:place], Number(args[place]), *args[place + 1:])


def _symbols(program: Program, bounds: Mapping[str, Any]) -> set[str]:
    import re

    texts: list[str] = [size.text for p in program.parameters for size in p.sizes if isinstance(size, Size)]

    def look(argument: Any) -> None:
        if isinstance(argument, Size):
            texts.append(argument.text)
        elif isinstance(argument, list | tuple):
            for part in argument:
                look(part)

    for step in program.steps:
        look(step.args)
        look(list(step.kwargs.values()))
    return {name for text in texts for name in re.findall(r"[A-Za-z_]\w*", text) if name in bounds}


def _order(value: torch.Tensor) -> tuple[int, ...] | None:
    """The axes from the slowest to the fastest, as PyTorch expects them in memory; None where that is their order."""
    strides = [int(size) if not is_symbolic(size) else size.node.hint for size in value.stride()]
    sizes = [int(size) if not is_symbolic(size) else size.node.hint for size in value.shape]
    if any(stride is None for stride in strides) or any(size is None for size in sizes):
        return None
    axes = [axis for axis in range(value.ndim)]
    order = tuple(sorted(axes, key=lambda axis: (-strides[axis] if sizes[axis] != 1 else 0)))
    significant = [axis for axis in order if sizes[axis] != 1]
    if significant == sorted(significant) or 0 in strides:
        return None
    order = tuple(sorted(axes, key=lambda axis: -strides[axis]))
    return order


def expressions(lowered: Lowered) -> Callable[[Sequence[Any]], dict[str, int]]:
    """A function from a call's arguments to the numbers of the symbols."""
    places: list[tuple[str, int, int | None]] = []  # an axis of strides is counted from the end
    seen: set[str] = set()
    for position, node in enumerate(lowered.placeholders):
        value = _value(node)
        is_tensor = isinstance(value, torch.Tensor)
        rank = value.ndim if is_tensor else 0
        steps = value.stride() if is_tensor and value.layout is torch.strided else ()
        for axis, size in enumerate([*value.shape, *steps] if is_tensor else [value]):
            found = size_of(size) if is_symbolic(size) else None
            if isinstance(found, Size) and found.text.isidentifier() and found.text not in seen:
                seen.add(found.text)
                axis = axis if axis < rank else axis - 2 * rank
                places.append((found.text, position, axis if is_tensor else None))

    def bind(arguments: Sequence[Any]) -> dict[str, int]:
        return {name: arguments[at] if axis is None else arguments[at].shape[axis] if axis >= 0
                else arguments[at].stride(axis) for name, at, axis in places}

    return bind
