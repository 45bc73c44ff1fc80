"""Programs of recordings: a recording as a compiled function of its inputs, for one set of sizes or for many.

A recording whose inputs have other sizes takes other steps of the trie. Its *form*, the steps without their whole
numbers, is the same. Once a form comes with a second set of sizes it is compiled for a symbol in place of each size
that differs; whole numbers among the attributes that differ too must follow from those. A later recording of this form
takes that program if every whole number of its own is what the program says for its sizes, and is compiled if not.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from morpho.base import settings
from morpho.base.dims import Dim, evaluate
from morpho.base.dtypes import float64, int64
from morpho.ir.node import Node, build, has_symbols, toposort
from morpho.ops.algebra import cast, reshape
from morpho.tensor.autodiff.grad_mode import tracing
from morpho.tensor.eager import EAGER
from morpho.tensor.lifted import LiftedNumber, Lifting
from morpho.tensor.steps import (
    DETACH,
    FLOAT,
    GRADIENT,
    INPUT,
    INT,
    PICK,
    Step,
    Unknown,
    counts,
    exact_key,
    functions_held,
    number_node,
    path_of,
    substituted,
)

MOST_TIMES = 8  # that a recording is computed operation by operation
MOST_FORMS, MOST_BASES, MOST_SYMBOLIC = 256, 4, 4  # forms in memory; sets of sizes and programs of each
LEAST_BOUND = 64  # sizes that a symbol allows at least
LARGE = 1 << 18  # elements of an input from which on bounds are close: memory is laid out for the largest size

SIZED = ("morpho.ops.linalg.", "morpho.ops.complex.fourier")  # modules of operations whose algorithm goes by sizes

tensor_class: list[Any] = []  # the class `Tensor`, which is a floor above
load_compiler: list[Callable[[], object]] = []
gradients_of: list[Callable[[Node, list[Node]], list[Any]]] = []
first_times: list[Any] = []  # what computes a recording before it is worth compiling whole
_compile: list[Callable[..., Any]] = []
_settling = threading.Lock()
Program = Callable[..., Any]


def set_compile(function: Callable[..., Any]) -> None:
    """Name the function that compiles."""
    _compile[:] = [function]


def set_gradients(function: Callable[[Node, list[Node]], list[Any]]) -> None:
    """Name what builds the gradients of a value with respect to leaves."""
    gradients_of[:] = [function]


def plan_of(step: Step, alive: Sequence[Any]) -> Program:
    """A recording as a function of its inputs and, last, its numbers, with the values of some results."""
    wanted = [x._node for x in alive]
    live: Any = wanted[0] if len(wanted) == 1 else tuple(wanted)
    path = path_of(step)
    form = _form_of(path, wanted)
    if form is None or form.runs >= MOST_TIMES or not first_times or step.slot - step.inputs < 1 or form.bases or \
            any(one.function is GRADIENT for one in path) or not first_times[0].pays(path):
        return whole_plan(step, wanted, live)
    return _put(step, live, first_times[0](step, wanted, lambda: whole_plan(step, wanted, live), form))


def whole_plan(step: Step, wanted: list[Step], live: Any) -> Program:
    """A recording as one compiled function."""
    if not _compile:
        for prepare in load_compiler:
            prepare()
    path = path_of(step)
    form = _form_of(path, wanted)
    program = form.program(path, wanted) if form is not None else None
    if program is None:
        program = _static(path, wanted, step.numbers)
        counts.plans += 1
        if form is not None:
            form.remember()
    return _put(step, live, program)


def _put(step: Step, live: Any, program: Program) -> Program:
    with _settling:
        functions_held["functions"] += live not in step.plans
        step.plans[live] = program
    return program


def _compiled(program: Program, inputs: int, sizes: dict[str, Any] | None = None) -> Any:
    names = ", ".join(f"x{i}" for i in range(inputs))
    function = _compile[0](eval(f"lambda {names}: program({names})", {"program": program}), dynamic=sizes)
    function.__name__ = EAGER
    return function


def _static(path: list[Step], wanted: list[Step], count: int) -> Program:
    nodes = [one.node for one in wanted]
    inputs = [one.node.serial for one in path if one.function is INPUT]
    kind = tensor_class[0]

    def program(*tensors: Any) -> tuple[Any, ...]:
        memo = {serial: tensor.node for serial, tensor in zip(inputs, tensors, strict=False)}
        if count:
            memo |= {number_node(place, dtype).serial: node
                     for (place, dtype), node in _number_leaves(tensors[-1].node, count).items()}
        return tuple([kind.of_node(node) for node in substituted(nodes, memo, None)])

    return _compiled(program, len(inputs) + (count > 0))  # type: ignore[no-any-return]


def _number_leaves(vector: Node, count: int) -> dict[Any, Node]:
    """The numbers of a recording by their place and dtype, as parts of one input."""
    leaves: dict[Any, Node] = {}
    for place in range(count):
        one = vector if count == 1 else build("slice", vector, starts=(place,), sizes=(1,), steps=(1,))
        one = reshape(one, ())
        leaves[place, float64] = one
        leaves[place, int64] = cast(one, int64)
    return leaves


def instead(step: Step, wanted: list[Step], live: Any, program: Program) -> Program | None:
    """Another program for a recording whose own, for symbolic sizes, could not be compiled; None where it could.

    Threads that meet the same program at once all get another one."""
    with _settling:
        if program not in _unfit:
            program = step.plans.get(live, program)  # it may have been compiled meanwhile
        if getattr(program, "current", None) is not None:
            return None
        form = _untried.pop(program, None)
        if form is not None:
            form.symbolic = [one for one in form.symbolic if one.call is not program]
            form.is_fixed = True
            counts.plans -= 1
            counts.symbolic -= 1
            _unfit.add(program)
        elif program not in _unfit:
            return None
        for other in [other for other, known in step.plans.items() if known is program]:
            del step.plans[other]
    return whole_plan(step, wanted, live)


_untried: weakref.WeakKeyDictionary[Any, _Form] = weakref.WeakKeyDictionary()  # programs for symbolic sizes -> form
_unfit: weakref.WeakSet[Any] = weakref.WeakSet()  # of those, the ones that could not be compiled


# -- forms -------------------------------------------------------------------------------------------------------------
class _Form:
    """Recordings that differ in whole numbers alone: sizes of inputs, and what attributes hold."""

    def __init__(self) -> None:
        self.bases: list[list[int]] = []  # sets of numbers that were compiled for
        self.symbolic: list[_Symbolic] = []
        self.runs = 0  # the first ones, operation by operation
        self.is_fixed = False  # whether it cannot be compiled for symbols
        self.numbers: list[int] = []  # of the recording at hand
        self.sizes = 0  # how many of them, at the beginning, are sizes of inputs

    def remember(self) -> None:
        """Note that the recording at hand was compiled for its own numbers."""
        if len(self.bases) < MOST_BASES and self.numbers not in self.bases:
            self.bases.append(self.numbers)

    def program(self, path: list[Step], wanted: list[Step]) -> Program | None:
        """A program of symbolic sizes that is right for the recording at hand, or None."""
        numbers = self.numbers
        for known in self.symbolic:
            if known.fits(numbers):
                return known.call
        if self.is_fixed or len(self.symbolic) >= MOST_SYMBOLIC:
            return None
        if len(self.bases) < 2 and any(one.function is GRADIENT for one in path):
            return None  # a training step takes twice as long to compile for symbols: the last batch is no reason to
        for base in self.bases:
            expressions = _expressions(base, numbers, self.sizes, _bound_factor(path))
            if expressions is None:
                continue
            made = _Symbolic(numbers, expressions, path, wanted)
            self.symbolic.append(made)
            _untried[made.call] = self
            counts.plans += 1
            counts.symbolic += 1
            return made.call
        return None


_forms: OrderedDict[Any, _Form] = OrderedDict()


def _form_of(path: list[Step], wanted: list[Step]) -> _Form | None:
    """The form of a recording, with its numbers; None where it has none."""
    sizes: list[int] = []
    others: list[int] = []
    parts: list[Any] = []
    try:
        for one in path:
            if one.function is INPUT:
                _, shape, dtype, tracked = one.arguments
                sizes += shape
                parts.append((INPUT, len(shape), dtype, tracked))
            else:
                parts.append((one.function, one.names, *[_formed(argument, others) for argument in one.arguments]))
        key = (*parts, path[0].home, *[one.slot for one in wanted], settings.get().code_key())
        form = _forms.get(key)
    except (Unknown, TypeError):
        return None
    if form is None:
        form = _forms[key] = _Form()
        form.is_fixed = bool(path[0].home)  # a GPU's products of unknown depth add in another order
        if len(_forms) > MOST_FORMS:
            _forms.popitem(last=False)
    else:
        _forms.move_to_end(key)
    form.numbers, form.sizes = [*sizes, *others], len(sizes)
    return form


def _formed(argument: Any, numbers: list[int]) -> Any:
    """An argument without its whole numbers, which go to the list."""
    kind = type(argument)
    if kind is Step:
        return argument if argument is FLOAT or argument is INT else ("step", argument.slot)
    if kind is int:
        numbers.append(argument)
        return int
    if kind is tuple or kind is list:
        return kind, *[_formed(item, numbers) for item in argument]
    if kind is slice:
        return slice, *[_formed(item, numbers) for item in (argument.start, argument.stop, argument.step)]
    return exact_key(argument)


def _bound_factor(path: list[Step]) -> float:
    largest = 0
    for one in path:
        if one.function is INPUT:
            count = 1
            for size in one.arguments[1]:
                count *= size
            largest = max(largest, count)
    return 1.25 if largest >= LARGE else 2


def _expressions(base: list[int], numbers: list[int], sizes: int, factor: float) -> list[Any] | None:
    """Each number as it follows from sizes: itself, or a size (`Dim`) with a line over it; None where the numbers that
    differ from the base do not follow, or nothing does."""
    if len(base) != len(numbers):
        return None
    symbols: dict[tuple[int, int], Any] = {}  # by the numbers in both
    expressions: list[Any] = [*numbers]
    for place, (one, other) in enumerate(zip(base, numbers, strict=True)):
        if one == other:
            continue
        expression = symbols.get((one, other))
        if expression is None:  # a size with a line over it has no truth value
            expression = _line((one, other), symbols, is_size=place < sizes)
        if place < sizes:
            if min(one, other) < 2:
                return None  # of one element: it stands for any number of them
            if expression is None:
                largest = int(max(one, other) * factor)
                most = largest if factor < 2 else max(LEAST_BOUND, 1 << (largest - 1).bit_length())
                expression = Dim(f"n{len(symbols)}", 2, most)
            symbols[one, other] = expression
        elif expression is None:
            return None
        expressions[place] = expression
    return expressions if symbols else None


def _line(pair: tuple[int, int], symbols: dict[tuple[int, int], Any], is_size: bool) -> Any:
    """A whole number that differs as a line over a size. Another size is no line by accident: it is a multiple, or as
    much longer each time."""
    for (one, other), size in symbols.items():
        step, gap = pair[1] - pair[0], other - one
        if step % gap:
            continue
        slope = step // gap
        constant = pair[0] - slope * one
        if slope > 0 and (slope == 1 or constant == 0 or not is_size):
            return size * slope + constant
    return None


class _Symbolic:
    """A program of symbolic sizes."""

    def __init__(self, numbers: list[int], expressions: list[Any], path: list[Step], wanted: list[Step]) -> None:
        self.numbers, self.expressions = numbers, expressions
        self.symbols: dict[str, tuple[int, int, int]] = {}  # name -> the place of its size, bounds
        dynamic: dict[str, dict[int, Any]] = {}
        place = number = 0
        for one in path:
            if one.function is INPUT:
                for axis in range(len(one.arguments[1])):
                    size = expressions[place]
                    if type(size) is Dim:
                        dynamic.setdefault(f"x{number}", {})[axis] = size
                        (name, (low, high)), = size.symbols.items()
                        if size.line is not None and size.line.factor == 1 and size.line.constant == 0:
                            self.symbols.setdefault(name, (place, low, high))
                    place += 1
                number += 1
        self.varying = [(place, size) for place, size in enumerate(expressions) if type(size) is Dim]
        steps = [(one, [_expressed(argument, others) for argument in one.arguments])
                 for others in [iter(expressions[place:])] for one in path if one.function is not INPUT]
        self.call: Program = _compiled(_rewritten(path, dict(steps), wanted), number + (path[-1].numbers > 0), dynamic)

    def fits(self, numbers: list[int]) -> bool:
        """Whether the program is right for a recording of this form with these numbers."""
        if len(numbers) != len(self.expressions):
            return False
        values = {}
        for name, (place, low, high) in self.symbols.items():
            if not low <= numbers[place] <= high:
                return False
            values[name] = numbers[place]
        wanted = [*self.numbers]
        for place, size in self.varying:
            wanted[place] = evaluate(size, values)
        return wanted == numbers


def _expressed(argument: Any, numbers: Any) -> Any:
    """An argument with expressions in place of its whole numbers, which are taken in the order of `_formed`."""
    kind = type(argument)
    if kind is int:
        return next(numbers)
    if kind is tuple or kind is list:
        return kind([_expressed(item, numbers) for item in argument])
    if kind is slice:
        return slice(*[_expressed(item, numbers) for item in (argument.start, argument.stop, argument.step)])
    return argument


def _rewritten(path: list[Step], arguments: dict[Step, list[Any]], wanted: list[Step]) -> Program:
    """The recording's functions called once more, on tensors whose sizes may be symbols."""
    kind = tensor_class[0]
    lifting = Lifting()
    count = path[-1].numbers

    def program(*tensors: Any) -> tuple[Any, ...]:
        before, tracing.gradients_off = tracing.gradients_off, False
        try:
            return evaluated(tensors)
        finally:
            tracing.gradients_off = before

    def evaluated(tensors: Sequence[Any]) -> tuple[Any, ...]:
        inputs = iter(tensors)
        leaves = _number_leaves(tensors[-1].node, count) if count else {}
        values: dict[Step, Any] = {}
        parts: dict[Step, dict[Step, Any]] = {}
        place = 0

        def value_of(argument: Any) -> Any:
            nonlocal place
            if type(argument) is Step:
                if argument is FLOAT or argument is INT:
                    own, is_int = place, argument is INT
                    place += 1
                    return LiftedNumber(1 if is_int else 1.0, leaves[own, int64 if is_int else float64], lifting,
                                        frozenset({own}), lambda numbers: numbers[own])
                return values[argument]
            if type(argument) in (tuple, list):
                return type(argument)([value_of(item) for item in argument])
            return argument

        for one in path:
            function = one.function
            if function is INPUT:
                values[one] = next(inputs)
            elif function is PICK:
                continue
            elif function is DETACH:
                values[one] = kind.of_node(build("detach", values[one.arguments[0]].node))
            elif function is GRADIENT:
                step, leaf = one.arguments
                if step not in parts:
                    sources = [x for x in path_of(step) if x.function is INPUT and x.tracked]
                    nodes = gradients_of[0](values[step].node, [values[x].node for x in sources])
                    parts[step] = dict(zip(sources, nodes, strict=True))
                values[one] = kind.of_node(parts[step][leaf])
            else:
                operands = [value_of(argument) for argument in arguments[one]]
                first = len(operands) - len(one.names)
                result = function(*operands[:first], **dict(zip(one.names, operands[first:], strict=True)))
                results = [result] if type(result) is kind else list(result)
                values.update(zip(one.picks, results, strict=True))
        if lifting.seen or lifting.limits:
            raise Unknown("a number of a recording is asked for where sizes are symbols")
        outputs = tuple([values[one] for one in wanted])
        for node in toposort([output.node for output in outputs]):
            if node.op.infer.__module__.startswith(SIZED) and any(map(has_symbols, (node, *node.inputs))):
                raise Unknown(f"{node.op.name} has another algorithm, and other bits, for each size")
        return outputs

    return program


def _after_fork() -> None:
    global _settling
    _settling = threading.Lock()
