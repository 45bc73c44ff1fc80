"""Specialisation lookup: by signature in the cache, else the function is traced, optimised and compiled."""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Sequence
from typing import Any

from morpho.backends.cpu.driver import threads
from morpho.backends.cpu.driver.layout import record_words
from morpho.backends.registry import HOST
from morpho.base import settings
from morpho.base.dims import Dim, Size, bounds
from morpho.base.errors import ArgumentError, fail
from morpho.base.shapes import contiguous_strides, is_contiguous
from morpho.base.trees import LEAF, flatten, has_sizes, unflatten, unhashable
from morpho.ir.graph import Graph
from morpho.ir.op import changes as registry_changes
from morpho.program.footprint import Uses, footprint
from morpho.runtime import thresholds
from morpho.runtime.plans import evaluate as evaluation
from morpho.runtime.plans.evaluate import make_plan
from morpho.tensor.convert import asarray
from morpho.tensor.core import Tensor
from morpho.tensor.jit.compiled_function import CompiledFunction
from morpho.tensor.jit.dynamic import Owner, check_bound, needed_elements, sure_bounds, symbols_of
from morpho.tensor.jit.lifetimes import Assumption, held, keep, objects_of, use, weakened
from morpho.tensor.jit.native.argument_extractor import gatherer, may_change
from morpho.tensor.jit.native.entries import entries
from morpho.tensor.jit.specialise import Binding, Specialisation, capture, layout_of
from morpho.tensor.state.native_states import MOST_SPARE_BYTES, States
from morpho.tensor.state.trace import Trace

log = logging.getLogger("morpho")
MANY_RECOMPILES = 8  # after which the user is told, once, what changes
_NOTHING = flatten(None, [])
_signatures = itertools.count()


def specialise(made: CompiledFunction, structure: Any, tensors: list[Tensor], owned: list[Owner]) -> Specialisation:
    specs = [_spec(made, tensor, owner) for tensor, owner in zip(tensors, owned, strict=True)]
    chosen = settings.get()
    named = tuple([(name, weakened(tree)) for name, tree in structure])
    key: Any = (named, tuple(specs), chosen.code_key(), threads.wanted_threads(), thresholds.current(),
                registry_changes())
    try:
        key = (key, _assumptions(made, key))
        found = made.specialisations.get(key)
    except TypeError:
        which = next(filter(None, (unhashable(tree, name) for name, tree in structure)), "an argument")
        raise fail(ArgumentError, made.__name__, f"{which} is neither a tensor nor hashable",
                   "pass tensors, numbers, strings, or tuples, lists and dicts of them") from None
    if found is None or not found.fits:
        objects = [thing for _, tree in structure for thing in objects_of(tree)]
        found = _trace(made, structure, specs, objects)
        if found.assumed:
            made.assumed.setdefault(key[0], {}).update(found.assumed)
            key = (key[0], _assumptions(made, key[0]))
        found.signature = made.signatures.setdefault(key[0][:2], next(_signatures))
        keep(made, key, found, objects)
        _count(made, made.changes.note(named, specs, [owner.name for owner in owned]))
    use(found)
    return found


def _count(made: CompiledFunction, is_first: bool) -> None:
    """Count a compilation, and say what changes from call to call where there are many."""
    made.recompiles += not is_first
    if made.recompiles == MANY_RECOMPILES and not is_first:
        log.warning("%s was compiled %d times: %s", made.__name__, made.recompiles + 1, made.changes.told())


def _assumptions(made: CompiledFunction, key: Any) -> tuple[Any, ...]:
    """What earlier traces of this signature found out about objects that may change: modes, settings of theirs."""
    known = made.assumed.get(key)
    return tuple([assumption.key for assumption in known.values()]) if known else ()


def _spec(made: CompiledFunction, tensor: Tensor, owner: Owner) -> tuple[Any, ...]:
    """dtype, shape with dynamic sizes in place, strides when they are not the contiguous ones, and the device."""
    _, shape, strides, dtype, _ = tensor._layout  # type: ignore[misc]
    sizes: tuple[Size, ...] = shape
    for axis, dim in owner.axes.items():
        if not -len(shape) <= axis < len(shape):
            raise fail(ArgumentError, made.__name__,
                       f"argument {owner.name} has no axis {axis}: its shape is {shape}")
        least, most = bounds(dim)
        if not least <= shape[axis] <= most:
            raise fail(ArgumentError, made.__name__,
                       f"axis {axis} of {owner.name} has size {shape[axis]}, outside {least}..{most} of {dim}")
        if dim.line is not None and not dim.line.fits(shape[axis]):
            raise fail(ArgumentError, made.__name__, f"axis {axis} of {owner.name} has size {shape[axis]}, which is "
                                                     f"{dim} for no number {dim.line.symbol}")
        position = axis % len(shape)
        sizes = (*sizes[:position], dim, *sizes[position + 1:])
    plain = is_contiguous(shape, strides)
    return (dtype, sizes, None if plain else strides, tensor.device)


def _bindings(shapes: Sequence[tuple[Size, ...]]) -> list[Binding]:
    """Where each symbol is found: an axis of that size if there is one, or one of a multiple of it."""
    known = [Binding(size.line, number, axis, *size.symbols[size.line.symbol])
             for number, sizes in enumerate(shapes) for axis, size in enumerate(sizes)
             if isinstance(size, Dim) and size.line is not None]
    found: dict[str, Binding] = {}
    for binding in sorted(known, key=lambda binding: (binding.line.factor, binding.line.constant) != (1, 0)):
        found.setdefault(binding.line.symbol, binding)
    return list(found.values())


def _trace(made: CompiledFunction, structure: Any, specs: list[tuple[Any, ...]],
           objects: list[Any]) -> Specialisation:
    check_bound(symbols_of([sizes for _, sizes, *_ in specs]), made.__name__)
    trace = Trace(len(specs), made.whole)
    parameters = []
    for number, (dtype, sizes, strides, device) in enumerate(specs):
        extra = {} if strides is None else {"strides": strides}
        parameters.append(Tensor.of_node(trace.parameter(number, sizes, dtype, device, **extra)))
    leaves = iter(parameters)
    arguments = {name: unflatten(tree, leaves) for name, tree in structure}
    with entries.paused(), trace:
        result = _call_original(made, arguments)
        outputs: list[Any] = []
        shape = flatten(result, outputs)
        nodes = [(o if isinstance(o, Tensor) else asarray(o)).node for o in outputs]
        updates = [(number, len(nodes) + i) for i, (number, _) in enumerate(trace.updates)]
        nodes += [tensor.node for _, tensor in trace.updates]
    device = evaluation.device_of([*nodes, *[tensor.node for tensor in parameters]])
    graph, captured = capture(nodes, trace)
    return _finish(made, graph, (structure, shape), len(outputs), captured, trace, updates, specs, device, objects)


def _call_original(made: CompiledFunction, arguments: dict[str, Any]) -> Any:
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for name, parameter in made.signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += list(arguments.get(name, ()))
        elif parameter.kind is parameter.VAR_KEYWORD:
            named |= arguments.get(name, {})
        elif parameter.kind is parameter.KEYWORD_ONLY:
            named[name] = arguments[name]
        else:
            positional.append(arguments[name])
    return made.function(*positional, **named)


def _by_position(made: CompiledFunction, structure: Any) -> list[Any] | None:
    """What a plain call gives by position for this structure: LEAF for a tensor, else what gives the object itself;
    None where there is no such call. Parameters at the end that have their defaults are left out."""
    parameters = list(made.signature.parameters.values())
    if "out" in made.signature.parameters:
        return None
    trees = [tree for _, tree in structure]
    while trees and trees[-1] is not LEAF and _is_default(parameters[len(trees) - 1], trees[-1]):
        trees.pop()
    for parameter, tree in zip(parameters, trees, strict=False):
        single = tree is LEAF or (tree[0] == "static" and not may_change(tree))
        if not single or parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            return None
    return [LEAF if tree is LEAF else held(unflatten(tree, iter(()))) for tree in trees]


def _is_default(parameter: inspect.Parameter, tree: Any) -> bool:
    """Whether a parameter that is not given means this tree, at every call."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return not tree[-1]
    if parameter.default is parameter.empty or not _is_constant(tree):
        return False
    try:
        return bool(flatten(parameter.default, []) == tree)
    except Exception:  # an object whose comparison fails, or gives no truth
        return False


def _is_constant(tree: Any) -> bool:
    """Whether a tree has no tensors, and nothing that may change: neither lists and dicts, nor classes of their own."""
    if tree is LEAF or tree[0] not in ("static", "tuple", "named"):
        return False
    return not may_change(tree) if tree[0] == "static" else all(_is_constant(child) for child in tree[-1])


def _finish(made: CompiledFunction, graph: Graph, structures: tuple[Any, Any], count: int, captured: list[Tensor],
            trace: Trace, updates: list[tuple[int, int]], specs: list[tuple[Any, ...]],
            device: str, objects: list[Any]) -> Specialisation:
    guards = [record_words(dtype, sizes, contiguous_strides(sizes) if strides is None else strides)  # type: ignore
              for dtype, sizes, strides, _ in specs]
    called, structure = structures
    plain = structure is LEAF or count > 0 or structure == _NOTHING
    simple = plain and device == HOST
    if simple:
        guards += [record_words(node.dtype, node.shape, contiguous_strides(node.shape))  # type: ignore[arg-type]
                   for node in graph.outputs[:count]]
    count_inputs = len(specs) + len(trace.states) + len(captured)
    first_captured = len(specs) + len(trace.states)
    own = {first_captured + i for i, tensor in enumerate(captured) if tensor.elements().writable}
    moved = [(output, len(specs) + number) for number, output in updates]
    plan = make_plan(graph, True, count_inputs, device, guards if simple else (), whole=made.whole, constants=own,
                     on_disk=True, updates=moved, budget=made.budget)
    program = plan.program
    inputs = {slot.index: i for i, slot in enumerate(program.slots) if slot.kind == "input"}
    uses = Uses(program)
    aliases = uses.in_place(moved)
    overlap = simple and count == 1 and all(uses.may_alias(program.outputs[0].slot, slot)
                                            for index, slot in inputs.items() if index < len(specs))
    states = States(trace.states, updates, aliases, objects)
    given, gather = _by_position(made, called), gatherer(made.signature, called, structure)
    direct = (simple and (given is not None or gather is not None)
              and not has_sizes(structure)  # numbers of each call, which Python puts in
              and all(program.slots[place.slot].kind == "result" for place in program.outputs)
              and states.spare_bytes <= MOST_SPARE_BYTES)
    staged = [not uses.written_after_faults(place.slot) for place in program.outputs[:count]]
    bindings = _bindings([sizes for _, sizes, *_ in specs])
    made.fallbacks += sum(getattr(step, "fallback", False) for step in program.steps)
    layouts = [layout_of(tensor) for tensor in captured]
    needed = needed_elements(graph)
    least = sure_bounds(needed)
    return Specialisation(plan, structure, count, captured, layouts, states, updates, aliases, bindings, overlap,
                          direct and least is not None, staged, needed, least or {},
                          footprint(program, moved, threads.wanted_threads()), len(specs), given, gather,
                          assumed={number: Assumption(thing) for number, thing in trace.assumed.items()},
                          notes=list(trace.notes))
