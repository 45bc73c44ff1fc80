"""The first times of a recording: one operation after another, by programs that many recordings share.

A program that is run once, such as a cell of a notebook, is not worth compiling whole where most of its operations
occurred before, with these sizes or others: each of them has a program of its own. After a few times the recording is
compiled whole. The bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from morpho.tensor import recorded_programs
from morpho.tensor.lifted import LARGEST_INT
from morpho.tensor.recorded import PAIRS, VIEWS, view_of_realised
from morpho.tensor.recording import Recording, built, local, vector
from morpho.tensor.steps import (
    DETACH,
    FLOAT,
    INPUT,
    INT,
    NEVER,
    PICK,
    Step,
    Unknown,
    counts,
    exact_key,
    path_of,
    steps_of,
)

BINARY = 2
MOST, NEW = 12, 4  # operations of a recording, and those that never occurred: more are compiled faster as a whole
MOST_KNOWN = 8192

_known: set[Any] = set()  # operations by function, attributes, dtypes and ranks that were computed alone


class Stepwise:
    """A recording as a function of its inputs and numbers that is compiled once it is worth it."""

    def __init__(self, step: Step, wanted: Sequence[Step], compiled: Callable[[], Callable[..., Any]],
                 form: Any) -> None:
        self.step, self.wanted, self.compiled, self.form = step, wanted, compiled, form
        path = path_of(step)
        needed: set[Step] = set(wanted)
        for one in reversed(path):
            if one in needed:
                needed.update(steps_of(one.arguments) if one.function is not INPUT else ())
            elif any(pick in needed for pick in one.picks):
                needed.add(one)
                needed.update(steps_of(one.arguments))
        self.path = [one for one in path if one in needed or one.function is INPUT or _numbers_of(one)]
        self.needed = needed
        self.last: dict[Step, int] = {}  # value -> the place of its last use
        for place, one in enumerate(self.path):
            if one.function is not INPUT and one in needed:
                for argument in steps_of(one.arguments):
                    self.last[argument] = place
        for one in wanted:
            self.last[one] = len(path)

    @staticmethod
    def pays(path: list[Step]) -> bool:
        """Whether most operations have programs of their own."""
        operations = [one for one in path if callable(one.function) and one.function not in VIEWS]
        if len(operations) > MOST:
            return False
        return len({kind for one in operations if (kind := _kind_of(one)) not in _known}) <= NEW

    def __call__(self, *tensors: Any) -> Any:
        self.form.runs += 1
        if self.form.runs > recorded_programs.MOST_TIMES:
            return self.compiled()(*tensors)
        before, local.recording = local.recording, None
        try:
            return self._values(tensors)
        except Unknown:  # an operation that is no recording of its own
            self.form.runs = recorded_programs.MOST_TIMES
            return self.compiled()(*tensors)
        finally:
            local.recording = before

    def _values(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        inputs = iter(tensors)
        numbers = iter(tensors[-1].tolist() if self.step.numbers else ())
        values: dict[Step, Any] = {}
        leaving: dict[int, list[Step]] = {}
        for one, place in self.last.items():
            leaving.setdefault(place, []).append(one)
        for place, one in enumerate(self.path):
            function = one.function
            if function is INPUT:
                values[one] = next(inputs)
                continue
            if function is PICK:
                continue
            own = [next(numbers) for _ in range(_numbers_of(one))]
            if one not in self.needed:
                continue
            if function is DETACH:
                values[one] = values[one.arguments[0]]
            else:
                if len(_known) < MOST_KNOWN:
                    _known.add(_kind_of(one))
                results = _piece(one, [_value_of(argument, values, own) for argument in one.arguments])
                values.update(zip(one.picks, results, strict=True))
            for other in leaving.get(place, ()):
                if other.function is not INPUT:
                    del values[other]
        return tuple([values[one] for one in self.wanted])


def _kind_of(step: Step) -> Any:
    """An operation without sizes and numbers."""
    return step.function, step.names, *[_described(argument) for argument in step.arguments]


def _described(argument: Any) -> Any:
    kind = type(argument)
    if kind is Step:
        return (argument.node.dtype, len(argument.node.shape)) if argument.node is not None else float
    if kind is tuple or kind is list:
        return kind, *[_described(item) for item in argument]
    return kind if kind is int or kind is float or kind is slice else exact_key(argument)


def _numbers_of(step: Step) -> int:
    return step.numbers - (step.parent.numbers if step.parent is not None else 0)


def _value_of(argument: Any, values: dict[Step, Any], numbers: list[Any]) -> Any:
    """An argument with tensors and numbers in place of steps."""
    if type(argument) is Step:
        if argument is FLOAT:
            return numbers.pop(0)
        return int(numbers.pop(0)) if argument is INT else values[argument]
    if type(argument) in (tuple, list):
        return type(argument)([_value_of(item, values, numbers) for item in argument])
    return argument


def _piece(step: Step, arguments: list[Any]) -> Sequence[Any]:
    """The results of one operation on tensors in memory, by the program of a recording of it alone."""
    function, names = step.function, step.names
    kind = recorded_programs.tensor_class[0]
    if function in VIEWS and type(arguments[0]) is kind and arguments[0]._layout is not None:
        first = len(arguments) - len(names)
        base = kind.of_buffer(arguments[0].elements())  # the first time gives it a leaf, and an input of a recording
        view = view_of_realised(function, (base, *arguments[1:first]),  # that gradients flow to must not have one
                                dict(zip(names, arguments[first:], strict=True)))
        if view is not None:
            return (view,)
    scratch = Recording()
    numbers: list[Any] = []

    operands = [_operand(scratch, argument) for argument in arguments]
    lifted = operands
    if function in PAIRS and not names and len(arguments) == BINARY:
        lifted = []
        for argument in operands:
            mark = FLOAT if type(argument) is float else INT if type(argument) is int and abs(argument) <= LARGEST_INT \
                else argument
            if mark is not argument:
                numbers.append(argument)
            lifted.append(mark)
    own = _step(scratch, function, lifted, names, numbers)
    if own is NEVER and numbers:
        numbers = []
        own = _step(scratch, function, operands, names, ())
    if own is NEVER:
        raise Unknown
    if own.slot <= scratch.step.slot:  # the operation gives its operand back
        return (arguments[operands.index(own)],)
    live: Any = own if own.structure is None else own.picks
    program = own.last.plans.get(live)
    if program is None:
        program = recorded_programs.whole_plan(own.last, list(own.picks), live)
    counts.pieces += 1
    inputs = [*scratch.inputs, vector(numbers, scratch.step.home)] if numbers else scratch.inputs
    try:
        return program(*inputs)  # type: ignore[no-any-return]
    except Exception:
        other = recorded_programs.instead(own.last, list(own.picks), live, program)
        if other is None:
            raise
        return other(*inputs)  # type: ignore[no-any-return]


def _operand(scratch: Recording, argument: Any) -> Any:
    """An argument with steps in place of tensors. No inner function: one that calls itself is a cycle, which would hold
    the memory until a search for garbage."""
    if type(argument) is recorded_programs.tensor_class[0]:
        known = scratch.operand(argument, argument)
        if known is None:
            raise Unknown
        return known
    if type(argument) in (tuple, list):
        return type(argument)([_operand(scratch, item) for item in argument])
    return argument


def _step(scratch: Recording, function: Any, operands: list[Any], names: tuple[str, ...],
          numbers: Sequence[Any]) -> Step:
    key = (function, names, *[exact_key(argument) for argument in operands])
    known: Step | None = scratch.step.following.get(key)
    return known if known is not None else built(scratch, key, function, tuple(operands), names, numbers)


def install() -> None:
    recorded_programs.first_times[:] = [Stepwise]
