"""Functions that are recorded where they are called outside of compiled functions; each wraps one that builds nodes.

>>> x = mo.asarray([1.0, 2.0])
>>> (mo.exp(x) * 2.0 + x).is_realised
False
"""

from __future__ import annotations

import functools
import struct
import sys
from collections.abc import Callable
from types import EllipsisType, NoneType
from typing import Any, TypeVar, cast

import numpy as np

from morpho.base import settings
from morpho.base.dtypes import DType
from morpho.tensor import at_once
from morpho.tensor import recording as trie
from morpho.tensor.autodiff.grad_mode import tracing
from morpho.tensor.eager import quiet
from morpho.tensor.lifted import LARGEST_INT
from morpho.tensor.recording import MOST_SITES, MOST_VIEWS, VARIES, local, may_record, vector
from morpho.tensor.steps import FLOAT, INT, NEVER, ROOT, Step, Unknown, counts, exact_key

Function = TypeVar("Function", bound=Callable[..., Any])
_chosen = settings.current.get
_PLAIN = frozenset({int, str, bool, float, NoneType, DType, EllipsisType, slice, type})
_SEQUENCES = (tuple, list)
_new = object.__new__
_OURS = {__file__, __file__.replace("recorded.py", "operators.py")}
_tensor: list[Any] = []
_following: list[Callable[..., Any]] = []  # what makes a tensor of an array beside tensors


def set_tensor(kind: type, following: Callable[..., Any]) -> None:
    """Name the class of tensors, and what makes one of an array that stands beside them."""
    _tensor[:], _following[:] = [kind], [following]
    for install in _waiting:
        install(kind)
    _waiting.clear()


_waiting: list[Callable[[type], None]] = []


def _current() -> Any:
    """The recording that an operation goes to where something is not as usual; None where it is not recorded."""
    return local.recording if may_record() else None


def unary(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one tensor."""

    def call(x: Any, /) -> Any:
        recording = local.recording
        if recording is None or not ((quiet.value and _chosen() is None) or (recording := _current())):
            return function(x)
        if recording.budget and recording.step is ROOT:
            made = at_once.unary(recording, function, x, call)
            if made is not None:
                return made
        elif recording.step.slot >= recording.limit:
            recording = recording.edge()
        if type(x) is _tensor[0] and x._storage is recording and not x._node.tracked:
            operand = x._node
        else:
            operand = _operand(recording, x)
            if operand is None:
                return _apart(function, call)(x)
        step = recording.step.after
        if step.function is function and step.arguments[0] is operand:
            recording.step = step
            made = _new(_tensor[0])
            made._node, made._storage = step, recording
            made._layout = made._record = made._track = None
            recording.results.append(made)
            return made
        made = recording.record(function, (operand,))
        return _apart(function, call)(x) if made is NEVER else made

    return call


def _apart(function: Callable[..., Any], call: Callable[..., Any]) -> Callable[..., Any]:
    """A function for an operation that this recording cannot hold: one on another device can, else it is a graph, and
    counted. The caller calls it: who explains a wrong call counts frames."""
    if local.wanted is not None and trie.begin_elsewhere():
        return functools.partial(_again, call)
    name = function.__name__
    counts.unrecorded[name] = counts.unrecorded.get(name, 0) + 1
    return function


def _again(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    local.is_again = True
    try:
        return call(*args, **kwargs)
    finally:
        local.is_again = False


def binary(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of two tensors, or of a tensor and a number, which goes in by value."""
    PAIRS.add(function)

    def call(x1: Any, x2: Any, /) -> Any:
        recording = local.recording
        if recording is None or not ((quiet.value and _chosen() is None) or (recording := _current())):
            return function(x1, x2)
        if recording.budget and recording.step is ROOT:
            made = at_once.binary(recording, function, x1, x2, call, vector)
            if made is not None:
                return made
        elif recording.step.slot >= recording.limit:
            recording = recording.edge()
        kind = _tensor[0]
        if type(x1) is kind:
            left = x1._node if x1._storage is recording else recording.known.get(id(x1._layout))
            if left is None or left.tracked:
                left = recording.operand(x1, x1) if x1._storage is not recording else _operand(recording, x1)
                if left is None:
                    return _apart(function, call)(x1, x2)
            if type(x2) is kind:
                right = x2._node if x2._storage is recording else recording.known.get(id(x2._layout))
                if right is None or right.tracked:
                    right = _operand(recording, x2)
                    if right is None:
                        return _apart(function, call)(x1, x2)
                step = recording.step.after
                if step.function is function and step.arguments[0] is left and step.arguments[1] is right:
                    recording.step = step
                    made = _new(kind)
                    made._node, made._storage = step, recording
                    made._layout = made._record = made._track = None
                    recording.results.append(made)
                    return made
            elif type(x2) is float or type(x2) is int:
                step = recording.step.after
                if step.function is function and step.arguments[0] is left:
                    right = step.arguments[1]
                    if right is x2 or (right == x2 != 0 and type(right) is type(x2)) or (
                            right is FLOAT and type(x2) is float):
                        if right is FLOAT:
                            recording.numbers.append(x2)
                        recording.step = step
                        made = _new(kind)
                        made._node, made._storage = step, recording
                        made._layout = made._record = made._track = None
                        recording.results.append(made)
                        return made
        made = _recorded_pair(recording, function, x1, x2)
        return _apart(function, call)(x1, x2) if made is NEVER else made

    return call


def _operand(recording: Any, x: Any) -> Step | None:
    """The step of what stands among tensors, or None where it has none."""
    kind = _tensor[0]
    if type(x) is not kind:
        if isinstance(x, kind):  # a parameter or buffer: its value lies in a tensor of its state; `x.data` has none
            state = getattr(type(x), "state", None) and x.state
            return None if state is None else recording.operand(x, state._tensor)
        if not isinstance(x, np.ndarray | np.generic | list):
            return None
        x = _following[0](x)
    if x._storage is recording:
        step: Step = x._node
        return recording._detached(step) if step.tracked and tracing.gradients_off else step
    return recording.operand(x, x)  # type: ignore[no-any-return]


def _recorded_pair(recording: Any, function: Any, x1: Any, x2: Any) -> Any:
    """The result of an operation on two operands by its key, `NEVER` where it has none."""
    numbers = (int, float, bool, complex)
    if type(x1) in numbers and type(x2) in numbers:
        return NEVER
    operands: list[Any] = []
    number = None
    for x in (x1, x2):
        if type(x) in numbers:
            number = x
            operands.append(x)
            continue
        step = _operand(recording, x)
        if step is None:
            return NEVER
        operands.append(step)
    if number is None:
        return recording.record(function, tuple(operands))
    place = 0 if operands[0] is number and type(operands[0]) is not Step else 1
    mark = FLOAT if type(number) is float else INT if type(number) is int and abs(number) <= LARGEST_INT else None
    after = recording.step.after
    if mark is not None and after.function is function and after.arguments[place] is mark \
            and after.arguments[1 - place] is operands[1 - place]:
        recording.numbers.append(number)
        return recording.take(after)
    parent = recording.step
    key = (function, (), *[exact_key(operand) for operand in operands])
    step = parent.following.get(key)
    if step is None and mark is not None:
        lifted = [*operands]
        lifted[place] = mark
        lifted_key = (function, (), *lifted)
        step = parent.following.get(lifted_key)
        if step is None and _varies(number):
            step = trie.built(recording, lifted_key, function, tuple(lifted), (), (number,))
            if step is NEVER:
                parent.following[lifted_key] = NEVER
        if step is not None and step is not NEVER:
            recording.numbers.append(number)
            parent.after = step
            return recording.take(step)
        step = None
    if step is None:
        return recording.record(function, tuple(operands))
    if step is NEVER:
        return NEVER
    parent.after = step
    return recording.take(step)


def _varies(number: Any) -> bool:
    """Whether the line that calls has given another number before."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename in _OURS:
        frame = frame.f_back
    if frame is None:
        return True
    site = id(frame.f_code), frame.f_lasti
    code, known = trie._sites.get(site, (None, number))
    if code is not frame.f_code:
        if len(trie._sites) >= MOST_SITES:
            trie._sites.clear()
        trie._sites[site] = frame.f_code, number
        return False
    if known is VARIES:
        return True
    if type(known) is type(number) and exact_key(known) == exact_key(number):
        return False
    trie._sites[site] = frame.f_code, VARIES
    return True


def recorded(function: Function) -> Function:
    """A function of tensors and attributes."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        recording = local.recording
        if recording is None or not ((quiet.value and _chosen() is None) or (recording := _current())):
            return function(*args, **kwargs)
        if recording.budget and recording.step is ROOT:
            made = at_once.with_attributes(recording, function, args, kwargs, call)
            if made is not None:
                return made
        if len(args) == 1 and not kwargs and type(x := args[0]) is _tensor[0] and x._storage is recording:
            step = recording.step.after  # of one operand, as last time
            if step.function is function and step.arguments == (x._node,) and not x._node.tracked \
                    and recording.step.slot < recording.limit:
                return recording.take(step)
        made = _record(recording, function, args, kwargs)
        return _apart(function, call)(*args, **kwargs) if made is NEVER else made

    return cast(Function, call)


_PURE = "morpho.tensor.functions.", "morpho.linalg."  # modules of functions that read nothing but their arguments
_UNFIT = frozenset({"empty", "empty_like", "key", "einsum_path", "allclose", "array_equal", "quantise"})


def recorded_if_pure(function: Function) -> Function:
    """A public function as it is recorded, unless it was made so before or is none of tensors alone."""
    inner: Any = function
    while inner is not None and getattr(inner, "__code__", None) is not None:
        if inner.__code__.co_filename == __file__:
            return function
        inner = getattr(inner, "__wrapped__", None)
    is_pure = function.__module__.startswith(_PURE) and function.__name__ not in _UNFIT
    return recorded(function) if is_pure else function


def pair(function: Function) -> Function:
    """A function of two tensors that has options too."""
    plain, other = binary(function), recorded(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return plain(*args) if len(args) == 2 and not kwargs else other(*args, **kwargs)

    call.__wrapped__ = other  # a refused call has passed both frames
    return cast(Function, call)


def view(function: Function) -> Function:
    """A function whose result has the elements of its first operand where those are in memory already: a view of it is
    found at once, without a program."""
    VIEWS.add(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        recording = local.recording
        if recording is None or not ((quiet.value and _chosen() is None) or (recording := _current())):
            return function(*args, **kwargs)
        if type(args[0]) is _tensor[0] and args[0]._layout is not None:
            made = view_of_realised(function, args, kwargs)
            if made is not None:
                return made
        made = _record(recording, function, args, kwargs)
        return _apart(function, call)(*args, **kwargs) if made is NEVER else made

    return cast(Function, call)


def _record(recording: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if recording.step.slot >= recording.limit:
        recording = recording.edge()
    kind = _tensor[0]
    if args and type(args[0]) is list and not any(isinstance(item, kind) for item in args[0]):
        return NEVER  # numbers that become a tensor
    arguments: list[Any] = []
    try:
        for value in (*args, *kwargs.values()) if kwargs else args:
            if type(value) is kind and value._storage is recording and not value._node.tracked:
                arguments.append(value._node)
            elif type(value) in _PLAIN:
                arguments.append(value)
            else:
                arguments.append(_argument(recording, value))
        step = recording.step.after
        if step.function is function and step.is_plain and len(step.arguments) == len(arguments) \
                and step.names == (tuple(kwargs) if kwargs else ()):
            for known, argument in zip(step.arguments, arguments, strict=True):
                if known is not argument:
                    break
            else:
                return recording.take(step)
        return recording.record(function, tuple(arguments), tuple(kwargs))
    except Unknown:
        return NEVER


def _argument(recording: Any, value: Any) -> Any:
    """An argument that is no plain attribute: a tensor, or a tuple or list of arguments."""
    kind = _tensor[0]
    if isinstance(value, kind):
        step = _operand(recording, value)
        if step is None:
            raise Unknown
        return step
    if isinstance(value, np.ndarray):
        return _argument(recording, _following[0](value))
    if type(value) in _SEQUENCES:
        return type(value)([item if type(item) in _PLAIN else _argument(recording, item) for item in value])
    raise Unknown


def view_of_realised(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A view of a realised tensor, or None where the result is none."""
    x = args[0]
    layout, record = x._layout, x._record
    track = getattr(x, "_track", None)
    storage = x._storage
    if track is not None or layout is None or record is None or x._layout is not layout:
        return None
    kind = record[_KIND:]  # dtype, sizes and strides
    try:
        if kwargs:
            key = (function, kind, tuple(kwargs), *[exact_key(value) for value in (*args[1:], *kwargs.values())])
        else:
            key = function, kind, *[exact_key(value) for value in args[1:]]
    except Unknown:
        return None
    recipe = trie._views.get(key)
    if recipe is None:
        before, local.recording = local.recording, None
        try:
            made = function(*args, **kwargs).realise()
        except Exception:
            return None  # the call that follows says what is wrong
        finally:
            local.recording = before
        shares = made._storage is storage and x._layout is layout
        if len(trie._views) >= MOST_VIEWS:
            trie._views.clear()
        trie._views[key] = ((made._layout[0] - layout[0], made._layout[1], made._layout[2], made._record[_KIND:])
                            if shares and made._record is not None else False)
        return made
    if recipe is False:
        return None
    offset, shape, strides, described = recipe
    address, writable = layout[0] + offset, layout[4]
    made = _new(type(x))
    made._node = made._track = None
    made._storage, made._layout = storage, (address, shape, strides, layout[3], writable)
    made._record = _pack_words(address, writable) + described
    return made


PAIRS: set[Any] = set()  # the functions below `binary`
VIEWS: set[Any] = set()  # the functions below `view`
_KIND = 16  # where a record's dtype begins, with its sizes and strides behind
_pack_words = struct.Struct("<QQ").pack
