"""Small operations computed at once, where a program looks at nearly every value.

Recording pays where a look computes many operations. A loop with `if x > 0` looks after one or two, and keeping inputs,
results and the look's bookkeeping costs more than the operation. After `SHORT` looks in a row at recordings of a few
operations, an operation on small tensors in memory is one call of the program that a recording of it alone has. Its
bits are the same. The mode ends once values are no longer looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from morpho.base.dtypes import DType
from morpho.runtime.trace import spans
from morpho.tensor.lifted import LARGEST_INT
from morpho.tensor.steps import FLOAT, INPUT, Step, counts, exact_key

SHORT, FEW = 24, 4  # looks in a row at recordings of so few operations
BUDGET = 8  # operations at once, after which a quarter as many values must have been looked at
LARGEST = 1 << 14  # bytes of an operand
MOST = 2048  # programs in memory
KIND = 16  # where a record's dtype, device and rank begin, with the sizes and strides behind

_PLAIN = frozenset({int, float, bool, str, type(None), DType})
_programs: dict[Any, Callable[..., Any]] = {}
_tensor: list[Any] = []
_looks: list[Any] = []  # the evaluator's counters, `syncs` among them


def set_tensor(kind: type) -> None:
    """Name the class of tensors."""
    _tensor[:] = [kind]


def note_look(recording: Any, looks: Any) -> None:
    """A look at a recording: begin the mode where most have few operations."""
    step: Step = recording.step
    operations = step.slot + 1 - step.inputs
    if operations > FEW:
        recording.short = 0
        return
    recording.short += 1
    if recording.short >= SHORT and not recording.budget:
        recording.budget, recording.looks = BUDGET, looks.syncs
        _looks[:] = [looks]


def learn(recording: Any, program: Callable[..., Any]) -> None:
    """Keep the program of a recording of one operation: on inputs in memory, and on a number or attributes."""
    step: Step = recording.step
    inputs = recording.inputs
    if step.slot != step.inputs or not callable(step.function) or step.structure is not None or step.tracked:
        return
    key: list[Any] = [step.function]
    number = 0
    is_pair = len(step.arguments) == 2 and not step.names
    for argument in step.arguments:
        if type(argument) is Step:
            if argument.function == INPUT:
                if argument.inputs != number + 1 or argument.nbytes > LARGEST:
                    return
                key.append(inputs[number]._record[KIND:])
                number += 1
            else:
                key.append(float if argument is FLOAT else int)
        elif is_pair and (type(argument) is float or type(argument) is int):
            key.append((type(argument), argument or str(argument)))
        elif is_plain(argument):
            key.append(exact_key(argument))
        else:
            return
    if number != len(inputs) or number == 0 or (type(step.arguments[0]) is not Step and not is_pair):
        return
    if step.names:
        key.append(step.names)
    if len(_programs) >= MOST:
        _programs.clear()
    _programs[tuple(key)] = program


def is_plain(argument: Any) -> bool:
    """Whether an attribute says all by its value, and holds no tensors."""
    return type(argument) in _PLAIN or (type(argument) is tuple and all(map(is_plain, argument)))


def unary(recording: Any, function: Callable[..., Any], x: Any, record: Callable[..., Any]) -> Any:
    """The result of an operation on a tensor in memory, computed at once; None where it is to be recorded."""
    if type(x) is not _tensor[0] or x._layout is None or not _goes_on(recording):
        return None
    words = x._record
    if words is None or getattr(x, "_track", None) is not None:
        return None
    program = _programs.get((function, words[KIND:]))
    if program is None:
        return _recorded(recording, record, (x,), {}) if x.nbytes <= LARGEST else None
    try:
        result, = program(x)
    except Exception:
        return None  # recorded, it fails with the error that belongs to it
    return result


def with_attributes(recording: Any, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any],
                    record: Callable[..., Any]) -> Any:
    """As `unary`, of a function that has attributes behind its tensor."""
    if len(args) == 1 and not options:
        return unary(recording, function, args[0], record)
    x: Any = args[0] if args else None
    if type(x) is not _tensor[0] or x._layout is None or not _goes_on(recording):
        return None
    words = x._record
    if words is None or getattr(x, "_track", None) is not None:
        return None
    values = (*args[1:], *options.values())
    if not all(map(is_plain, values)):
        return None
    key = (function, words[KIND:], *map(exact_key, values))
    program = _programs.get((*key, tuple(options)) if options else key)
    if program is None:
        return _recorded(recording, record, args, options) if x.nbytes <= LARGEST else None
    try:
        result, = program(x)
    except Exception:
        return None
    return result


def binary(recording: Any, function: Callable[..., Any], x1: Any, x2: Any, record: Callable[..., Any],
           vector: Callable[..., Any]) -> Any:
    """The result of an operation on two tensors in memory, or one and a number, computed at once; None where it is to
    be recorded."""
    kind = _tensor[0]
    number: Any = None
    tensors: tuple[Any, ...]
    if type(x1) is kind:
        left = x1._record
        if left is None or getattr(x1, "_track", None) is not None:
            return None
        left = left[KIND:]
        if type(x2) is kind:
            right = x2._record
            if right is None or x1 is x2 or getattr(x2, "_track", None) is not None:
                return None
            right, tensors = right[KIND:], (x1, x2)
        elif (type(x2) is float or type(x2) is int) and x2 == x2:
            number, right, tensors = x2, (type(x2), x2 or str(x2)), (x1,)
        else:
            return None
    elif type(x2) is kind and (type(x1) is float or type(x1) is int) and x1 == x1:
        right = x2._record
        if right is None or getattr(x2, "_track", None) is not None:
            return None
        number, left, right, tensors = x1, (type(x1), x1 or str(x1)), right[KIND:], (x2,)
    else:
        return None
    if not _goes_on(recording):
        return None
    program = _programs.get((function, left, right))
    if program is None:
        if number is not None and not (type(number) is int and abs(number) > LARGEST_INT):
            program = _programs.get((function, type(number), right) if number is x1 else
                                    (function, left, type(number)))
        if program is None:
            operands = (x1, x2)
            return _recorded(recording, record, operands, {}) if max(x.nbytes for x in tensors) <= LARGEST else None
        tensors = (*tensors, vector([number]))
    try:
        result, = program(*tensors)
    except Exception:
        return None  # recorded, it fails with the error that belongs to it
    return result


def _recorded(recording: Any, record: Callable[..., Any], args: Any, options: dict[str, Any]) -> Any:
    """The result of an operation recorded alone and computed, which leaves its program here."""
    budget, recording.budget = recording.budget, 0
    result = record(*args, **options)
    if type(result) is _tensor[0] and type(result._node) is Step and result._storage is recording:
        recording.run()
    recording.budget = budget
    return result


def _goes_on(recording: Any) -> bool:
    """Whether the mode goes on: values are still looked at, and nothing but values is asked for."""
    if recording.settings is not None or spans.sink is not None:
        return False
    recording.budget = budget = recording.budget - 1
    if budget > 0:
        return True
    looks = _looks[0].syncs
    counts.at_once += BUDGET
    if looks - recording.looks >= BUDGET // 4:
        recording.budget, recording.looks = BUDGET, looks
        return True
    recording.budget = recording.short = 0
    return False
