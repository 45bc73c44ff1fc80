"""Specialisation lookup: by signature in the cache, else the function is traced, optimised and compiled."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from morpho.backends.driver import threads
from morpho.backends.driver.layout import record_words
from morpho.backends.registry import HOST, memory_of
from morpho.base import settings
from morpho.base.dims import Dim, Size, bounds, product, upper
from morpho.base.errors import ArgumentError, CompileError, fail
from morpho.base.shapes import contiguous_strides, is_contiguous
from morpho.base.trees import LEAF, flatten, has_sizes, unflatten, unhashable
from morpho.ir.deferred import OtherGraph
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, toposort
from morpho.ir.op import changes as registry_changes
from morpho.ops.algebra import cast, constant_like, expand, where
from morpho.program.footprint import Uses, footprint
from morpho.runtime import thresholds
from morpho.runtime.plans import evaluate as evaluation
from morpho.runtime.plans.device_entry import entry_plan, mark_of, states_in_place
from morpho.runtime.plans.evaluate import make_plan
from morpho.runtime.trace import spans
from morpho.runtime.trace.spans import span
from morpho.tensor.convert import asarray
from morpho.tensor.core import Tensor
from morpho.tensor.device import on
from morpho.tensor.eager import EAGER
from morpho.tensor.jit.compiled_function import CompiledFunction
from morpho.tensor.jit.dynamic import Owner, check_bound, needed_elements, owners, sure_bounds, symbols_of
from morpho.tensor.jit.kept_traces import KeptTrace
from morpho.tensor.jit.lifetimes import Assumption, held, keep, objects_of, use, weakened
from morpho.tensor.jit.lifting import (
    Changed,
    Constant,
    is_beyond_constants,
    is_same,
    lifted_arguments,
    marked,
    marks_of,
    with_constants,
    with_limits,
)
from morpho.tensor.jit.native.argument_extractor import gatherer, may_change
from morpho.tensor.jit.native.entries import entries
from morpho.tensor.jit.specialise import Binding, Specialisation, capture, layout_of
from morpho.tensor.lifted import LARGEST_INT, Lifting
from morpho.tensor.state.native_states import MOST_SPARE_BYTES, States
from morpho.tensor.state.trace import Trace

log = logging.getLogger("morpho")
MANY_RECOMPILES = 8  # after which the user is told, once, what changes
_NOTHING = flatten(None, [])
_signatures = itertools.count()


def specialise(made: CompiledFunction, structure: Any, tensors: list[Tensor],
               owned: list[Owner]) -> tuple[Specialisation, list[Tensor], list[Owner]]:
    """The compiled program of a call, and its tensors with their owners: numbers that are inputs are among those."""
    given, leaves = made.numbers.applied(structure, tensors)
    if given is not structure:
        owners_of = owners(given, made.dynamic, made.__name__)
        found = _known(made, _key_of(made, given, leaves, owners_of)[0])
        if found is not None:
            return found, leaves, owners_of
    key, specs = _key_of(made, structure, tensors, owned)
    found = _known(made, key)
    if found is None:
        lifted = _lifted(made, structure, tensors, key)
        if lifted is not None:
            return lifted
        found = _keep(made, key, structure, owned, specs, _trace(made, structure, specs))
    return found, tensors, owned


def _known(made: CompiledFunction, key: Any) -> Specialisation | None:
    """The program of a signature, if there is one and the surroundings are what they were."""
    found = made.specialisations.get((key, _assumptions(made, key)))
    if found is not None:
        found.states.gather()
    if found is None or not found.fits:
        return None
    use(found)
    return found


def _key_of(made: CompiledFunction, structure: Any, tensors: list[Tensor],
            owned: list[Owner]) -> tuple[Any, list[tuple[Any, ...]]]:
    """Key of a program, and the specs of its tensors."""
    specs = [_spec(made, tensor, owner) for tensor, owner in zip(tensors, owned, strict=True)]
    named = tuple([(name, weakened(tree)) for name, tree in structure])
    key: Any = (named, tuple(specs), settings.get().code_key(), threads.wanted_threads(), thresholds.current(),
                registry_changes())
    try:
        hash(key)
    except TypeError:
        which = next(filter(None, (unhashable(tree, name) for name, tree in structure)), "an argument")
        raise fail(ArgumentError, made.__name__, f"{which} is neither a tensor nor hashable",
                   "pass tensors, numbers, strings, or tuples, lists and dicts of them") from None
    return key, specs


def _keep(made: CompiledFunction, key: Any, structure: Any, owned: list[Owner], specs: list[tuple[Any, ...]],
          found: Specialisation) -> Specialisation:
    """A new program among those of the function."""
    objects = [thing for _, tree in structure for thing in objects_of(tree)]
    if found.assumed:
        made.assumed.setdefault(key, {}).update(found.assumed)
    found.signature = made.signatures.setdefault(key[:2], next(_signatures))
    keep(made, (key, _assumptions(made, key)), found, objects)
    _count(made, made.changes.note(key[0], specs, [owner.name for owner in owned]))
    use(found)
    return found


def _lifted(made: CompiledFunction, structure: Any, tensors: list[Tensor],
            key: Any) -> tuple[Specialisation, list[Tensor], list[Owner]] | None:
    """The function compiled with numbers that change as inputs, where that can be; None where they are constants."""
    changed = made.numbers.changed(structure, key, made.specialisations)
    while changed is not None:
        given, leaves = marked(structure, tensors, changed.paths)
        owned = owners(given, made.dynamic, made.__name__)
        other, specs = _key_of(made, given, leaves, owned)
        try:
            found = _trace(made, given, specs, changed)
        except Constant as told:
            made.numbers.constant.update(told.paths)
            changed = made.numbers.changed(structure, key, made.specialisations)
            continue
        _keep(made, other, given, owned, specs, found)
        made.dead.append(changed.chosen)  # the program of one of the numbers, whose calls this one serves too
        return found, leaves, owned
    return None


def _count(made: CompiledFunction, is_first: bool) -> None:
    """Count a compilation, and say what changes from call to call where there are many."""
    made.recompiles += not is_first
    if made.recompiles == MANY_RECOMPILES and not is_first:
        log.warning("%s was compiled %d times: %s", made.__name__, made.recompiles + 1, made.changes.told())


def _assumptions(made: CompiledFunction, key: Any) -> tuple[Any, ...]:
    """Assumptions of earlier traces of this signature about objects that may change: modes, settings of theirs."""
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
           changed: Changed | None = None) -> Specialisation:
    if made.__name__ == EAGER:  # lazy evaluation compiles: the user has written no function
        return _traced(made, structure, specs, changed)
    with span("trace", made.__name__) as told:
        told |= {"recompiles": made.recompiles, "shapes": [str(tuple(sizes)) for _, sizes, *_ in specs[:8]],
                 "line": _line_of(made)}
        chosen = _traced(made, structure, specs, changed)
        if spans.sink is not None:
            told["program"] = _computes(chosen)
        return chosen


def _computes(chosen: Specialisation) -> str:
    """Digest of what a function computes, whatever its sizes and numbers: of its steps and of the
    shapes of what it captured."""
    steps = [step.label for step in chosen.plan.program.steps]
    held = [(str(tensor.dtype), tensor.shape) for tensor in chosen.captured]
    return hashlib.sha256(repr((steps, held)).encode()).hexdigest()[:16]


def _line_of(made: CompiledFunction) -> str:
    """Where a compiled function is written."""
    code = getattr(made.function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def _traced(made: CompiledFunction, structure: Any, specs: list[tuple[Any, ...]],
            changed: Changed | None) -> Specialisation:
    check_bound(symbols_of([sizes for _, sizes, *_ in specs]), made.__name__)
    kept = KeptTrace(made.source, structure, specs) if made.source is not None and changed is None else None
    found = kept.load() if kept is not None else None
    if kept is not None and found is not None:
        trace = Trace(len(specs), made.whole)
        trace.notes = dict.fromkeys(found.notes)
        try:
            return _finish(made, found.graph, (structure, found.structure), found.outputs, found.captured, trace, [],
                           specs, HOST, [])
        except OtherGraph as error:  # its plan is not there, and the graph is no help in making one
            kept.reject(error.message)
    run = (_run_traced(made, structure, specs, {}) if changed is None else
           _run_lifted(made, structure, specs, changed))
    graph, captured = capture(run.nodes, run.trace)
    device = evaluation.device_of([*run.nodes, *[tensor.node for tensor in run.parameters]])
    if run.trace.counted and device != HOST:
        raise fail(CompileError, made.__name__, "a mask or nonzero makes sizes that depend on data, which only the CPU "
                                                f"computes, not {device}", "use mo.where, or multiply by the mask")
    objects = [thing for _, tree in structure for thing in objects_of(tree)]
    if kept is not None and device == HOST and not objects:
        kept.save(graph, run.structure, run.outputs, captured, run.trace)
    return _finish(made, graph, (structure, run.structure), run.outputs, captured, run.trace, run.updates, specs,
                   device, objects)


class _Run(NamedTuple):
    """One call of the original function on parameters."""

    trace: Trace
    nodes: list[Any]  # its results, then new values of states, then sizes that are data
    structure: Any  # of the results
    outputs: int
    updates: list[tuple[int, int]]
    parameters: list[Tensor]
    lifting: Lifting


def _run_traced(made: CompiledFunction, structure: Any, specs: list[tuple[Any, ...]],
                numbers: Mapping[int, Any]) -> _Run:
    """Call the original; `numbers` are the values of leaves that are lifted numbers."""
    trace, lifting = Trace(len(specs), made.whole), Lifting()
    parameters = []
    for number, (dtype, sizes, strides, device) in enumerate(specs):
        extra = {} if strides is None else {"strides": strides}
        parameters.append(Tensor.of_node(trace.parameter(number, sizes, dtype, device, **extra)))
    leaves = iter(lifted_arguments(parameters, numbers, lifting))
    arguments = {name: unflatten(tree, leaves) for name, tree in structure}
    with entries.paused(), trace:
        result = _call_original(made, arguments)
        outputs: list[Any] = []
        shape = flatten(result, outputs)
        nodes = [(o if isinstance(o, Tensor) else asarray(o)).node for o in outputs]
        updates = [(number, len(nodes) + i) for i, (number, _) in enumerate(trace.updates)]
        nodes += [tensor.node for _, tensor in trace.updates]
        nodes += [count for _, count in trace.counted]
        nodes = with_collectives(nodes, trace)
    return _Run(trace, nodes, shape, len(outputs), updates, parameters, lifting)


def with_collectives(nodes: list[Node], trace: Trace) -> list[Node]:
    """The results of a function, one of them made to need every collective it asked for: where a rank has no use for
    what they give, the others wait in them all the same. Each is reached from the token of its group's last one."""
    if not trace.collectives:
        return nodes
    reached = {node.serial for node in toposort(nodes)}
    tokens = [token for token in trace.collectives.values() if any(
        node.serial not in reached and node.op.kind in ("collective", "control") for node in toposort([token]))]
    if not tokens or not nodes:
        return nodes or tokens
    token = tokens[0]
    for other in tokens[1:]:
        token = build("bitwise_or", token, other)
    place, chosen = min(enumerate(nodes), key=lambda pair: upper(product(pair[1].shape)))
    is_done, else_ = build("equal", token, constant_like(token, 0)), cast(token, chosen.dtype)  # it is 0: nobody knows
    needing = where(expand(is_done, chosen.shape), chosen, expand(else_, chosen.shape))
    return [*nodes[:place], needing, *nodes[place + 1:]]


def _run_lifted(made: CompiledFunction, structure: Any, specs: list[tuple[Any, ...]], changed: Changed) -> _Run:
    """The function traced with numbers as inputs, and shown to be the program of the earlier numbers with those put
    in."""
    marks = marks_of(structure)
    before = {number: changed.before[path] for number, path in marks.items()}
    try:
        run = _run_traced(made, structure, specs, {number: changed.now[path] for number, path in marks.items()})
        if not run.lifting.seen and not _is_program_of(made, structure, specs, run, before, changed.chosen):
            run.lifting.seen.update(marks)
    except Exception:  # what the function does with numbers is not for these: with constants it shows what is wrong
        raise Constant(changed.paths) from None
    if run.lifting.seen:
        raise Constant([marks[number] for number in run.lifting.seen])
    for number, path in marks.items():
        made.numbers.lift(path, changed.now[path], *run.lifting.limits.get(number, (-LARGEST_INT, LARGEST_INT)))
    return run


def _is_program_of(made: CompiledFunction, structure: Any, specs: list[tuple[Any, ...]], run: _Run,
                   before: Mapping[int, Any], chosen: Specialisation) -> bool:
    """Whether a trace with lifted numbers is this program when the earlier numbers are put in. Where it differs from it
    by design, it has to be what a trace with the earlier numbers gives."""
    if run.structure != chosen.structure or run.updates != chosen.updates:
        return False
    nodes, captured = with_constants(run.nodes, run.trace, run.lifting, before)
    first = chosen.arguments + len(chosen.states.states)
    if is_same(nodes, captured, chosen.plan.graph.outputs, chosen.captured, first):
        return True
    if not is_beyond_constants(run.nodes, run.lifting):
        return False
    again = _run_traced(made, structure, specs, before)
    graph, captured = capture(run.nodes, run.trace)
    other, others = capture(again.nodes, again.trace)
    return not again.lifting.seen and is_same(graph.outputs, captured, other.outputs, others, first + len(before))


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
    """Positional arguments of a plain call of this structure: LEAF for a tensor, else what gives the object itself;
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
    mark = mark_of(device) if device != HOST else 0
    captured = [on(tensor, memory_of(device)) for tensor in captured]  # tables that nobody has put anywhere
    guards = [record_words(dtype, sizes, contiguous_strides(sizes) if strides is None else strides, mark)  # type: ignore
              for dtype, sizes, strides, _ in specs]
    called, structure = structures
    plain = structure is LEAF or count > 0 or structure == _NOTHING
    simple = plain and device == HOST
    if plain:
        guards += [record_words(dtype, shape, contiguous_strides(shape), mark)  # type: ignore[arg-type]
                   for shape, dtype in graph.specs[:count]]
    count_inputs = len(specs) + len(trace.states) + len(captured)
    first_captured = len(specs) + len(trace.states)
    own = {first_captured + i for i, tensor in enumerate(captured) if tensor.elements().writable}
    moved = [(output, len(specs) + number) for number, output in updates]
    plan = make_plan(graph, True, count_inputs, device, guards if simple else (), whole=made.whole, constants=own,
                     on_disk=True, updates=moved, budget=made.budget)
    program = plan.program
    served = None
    if mark and plain and not trace.counted and made.budget is None:
        served = entry_plan(plan, count_inputs, guards)
    inputs = {slot.index: i for i, slot in enumerate(program.slots) if slot.kind == "input"}
    uses = Uses(program)
    aliases = uses.in_place(moved) if device == HOST else {} if served is None else states_in_place(plan, moved)
    if aliases and device == HOST:
        plan.native_code.shield_from(min(uses.first_write[program.outputs[output].slot] for output in aliases))
    overlap = simple and count == 1 and all(uses.may_alias(program.outputs[0].slot, slot)
                                            for index, slot in inputs.items() if index < len(specs))
    states = States(trace.states, updates, aliases, objects)
    called = with_limits(called, made.numbers)
    given, gather = _by_position(made, called), gatherer(made.signature, called, structure)
    is_asked = len(graph.specs) == count + len(updates) + len(trace.counted)  # not a token, which no native call takes
    direct = (is_asked and (simple or served is not None) and (given is not None or gather is not None)
              and not has_sizes(structure)  # numbers of each call, which Python puts in
              and (served is not None or (all(program.slots[place.slot].kind == "result" for place in program.outputs)
                                          and states.spare_bytes <= MOST_SPARE_BYTES)))
    staged = [served is None and not uses.written_after_faults(place.slot) for place in program.outputs[:count]]
    bindings = _bindings([sizes for _, sizes, *_ in specs])
    made.fallbacks += sum(getattr(step, "fallback", False) for step in program.steps)
    layouts = [layout_of(tensor) for tensor in captured]
    dynamic = any(isinstance(size, Dim) for _, sizes, *_ in specs for size in sizes)
    needed = needed_elements(graph) if dynamic or trace.counted else []
    counted = {name: most for size, _ in trace.counted for name, (_, most) in size.symbols.items()}
    least = sure_bounds(needed) if not counted else None  # Python looks at what was counted, and shapes the results
    return Specialisation(plan, structure, count, captured, layouts, states, updates, aliases, bindings, overlap,
                          direct and least is not None, staged, needed, least or {},
                          footprint(program, moved, threads.wanted_threads()), len(specs), given, gather,
                          assumed={number: Assumption(thing) for number, thing in trace.assumed.items()},
                          notes=list(trace.notes), counted=counted, served=served)
