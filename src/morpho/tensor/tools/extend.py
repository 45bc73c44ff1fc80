"""Plug-in points: operations, patterns, passes and backends of your own, each removable.

>>> import morpho as mo
>>> cube = mo.extend.op("doc_cube", lambda x: x * x * x)
>>> cube(mo.asarray([2.0])).item()
8.0
>>> mo.extend.remove("doc_cube")
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from morpho.backends import registry
from morpho.backends.base import Backend
from morpho.backends.code import elementwise
from morpho.backends.code.compiler import code
from morpho.backends.reference.backend import InterpreterBackend
from morpho.base import settings
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.ir import op as records
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build
from morpho.ir.op import REGISTRY, Arity, NoGradient, Op, Spec, register
from morpho.ops import batching
from morpho.ops.elementwise import same
from morpho.passes import pipeline
from morpho.passes.fusion import candidates
from morpho.passes.simplify import RULES
from morpho.tensor.core import Tensor
from morpho.tensor.operands import broadcasted, promoted

__all__ = ["add_pass", "backend", "op", "pattern", "remove"]

_added: set[str] = set()  # devices of `backend`


def op(name: str, composition: Callable[..., Tensor] | None = None, *, reference: Callable[..., Any] | None = None,
       emit: Callable[..., Any] | None = None, vjp: Callable[[Node, Node], Sequence[Node | None]] | None = None,
       kinds: str = "f", flops: int = 1, native: bool = True) -> Callable[..., Tensor]:
    """Register an elementwise operation and return the function that applies it.

    Give one of: `composition`, a function of tensors (it costs what its parts cost and has their gradient); `emit`, a
    function `(emitter, dtype, *values)` that writes native code, with a `reference` in NumPy; or a `reference` alone,
    which runs in NumPy between native parts, counted as a fallback (`native=False` says that this is meant). `kinds`
    are the dtype kinds it takes: b, i, u, f, c. A gradient is `vjp(node, cotangent)`, one node per input.

    A `reference` gets read-only arrays of its own, of one shape and dtype, and returns an array of that shape and kind;
    anything else is an error.

    >>> cube = mo.extend.op("example_cube", lambda x: x * x * x)
    >>> cube(mo.asarray([2.0])).item()
    8.0
    >>> mo.extend.remove("example_cube")
    """
    _check_name("op", name, name in REGISTRY)
    if composition is None and reference is None:
        raise fail(ArgumentError, "extend.op", f"{name!r} has neither a composition nor a reference")
    signature = _signature(composition or reference)
    missing = NoGradient("none was given to extend.op", missing=composition is None)
    register(Op(name, "elementwise" if native else "host", _rule(name, kinds), vjp or missing,
                _reference(name, composition, reference), flops, "exact" if emit is None else "as emitted",
                composition=None if composition is None else _as_nodes(composition), arity=_arity(signature),
                batch=batching.elementwise))
    records.foreign.add(name)
    if emit is not None:
        elementwise.add_emitter(name, emit)
        candidates.NATIVE.add(name)

    def apply(*arguments: Any, **options: Any) -> Tensor:
        _check_call(name, signature, arguments, options)
        return Tensor.of_node(build(name, *broadcasted(name, *promoted(name, *arguments, floating=kinds == "f"))))

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = (composition or reference).__doc__
    return apply


def _check_name(operation: str, name: Any, is_taken: bool) -> None:
    """A name is given once, whatever for: it is what `remove` is told."""
    if not isinstance(name, str) or not name.isidentifier():
        raise fail(ArgumentError, f"extend.{operation}", f"{name!r} is no name", "use letters, digits and underscores")
    if is_taken or name in records.foreign or name in settings.device_kinds:
        raise fail(ArgumentError, f"extend.{operation}", f"{name!r} exists already", "use another name")


def _signature(function: Any) -> inspect.Signature | None:
    """Signature of an operation's function; NumPy's do not always have one."""
    try:
        return None if isinstance(function, np.ufunc) else inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _arity(signature: inspect.Signature | None) -> Arity | None:
    """How many tensors an operation takes, where its function tells."""
    if signature is None:
        return None
    given = [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    several = any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values())
    return sum(p.default is p.empty for p in given), math.inf if several else len(given)


def _check_call(name: str, signature: inspect.Signature | None, arguments: tuple[Any, ...], options: Any) -> None:
    """An error at the call, not when it is computed, for arguments that the operation does not take."""
    if options:
        raise fail(ArgumentError, name, f"there is no argument {', '.join(map(repr, options))}",
                   "an operation of mo.extend.op takes tensors by place")
    if not arguments:
        raise fail(ArgumentError, name, "there is no tensor to apply it to")
    if signature is None:
        return
    try:
        signature.bind(*arguments)
    except TypeError as reason:
        raise fail(ArgumentError, name, str(reason), f"it takes {signature}") from None


def _rule(name: str, kinds: str) -> Callable[..., Spec]:
    return same(name, kinds)  # type: ignore[return-value]


def _as_nodes(composition: Callable[..., Tensor]) -> Callable[[Node], Node]:
    return lambda node: _composed(node.op.name, composition, node.inputs)


def _composed(name: str, composition: Callable[..., Tensor], inputs: Sequence[Node]) -> Node:
    found = composition(*[Tensor.of_node(node) for node in inputs])
    if not isinstance(found, Tensor):
        raise fail(ArgumentError, name, f"the composition returned {type(found).__name__}, not a tensor")
    if found.node.spec != inputs[0].spec:
        raise fail(ShapeError, name, f"the composition turned {inputs[0].dtype}{inputs[0].shape} into "
                                     f"{found.dtype}{found.shape}", "an operation of mo.extend.op is elementwise")
    return found.node


def _own_copy(array: np.ndarray) -> np.ndarray:
    """A copy that nobody writes. The function may keep it, while the memory it comes from is soon used for other
    values, or unmapped."""
    copy = np.array(array)
    copy.flags.writeable = False
    return copy


def _check_result(name: str, result: Any, like: np.ndarray) -> np.ndarray:
    """The array that a reference returned, or an error where it has another shape or kind than its inputs."""
    expected = f"{like.dtype}{like.shape}"
    hint = "the reference of mo.extend.op returns an array of the shape and kind of its inputs"
    try:
        array = np.asarray(result)
    except Exception as error:
        raise fail(ArgumentError, name, f"the reference returned a {type(result).__name__} that is no array ({error})",
                   hint) from None
    if array.dtype.kind not in "biufc":
        what = "None" if result is None else f"{array.dtype}{array.shape}" if isinstance(result, np.ndarray) else \
            f"a {type(result).__name__}"
        raise fail(DTypeError, name, f"the reference returned {what}, not {expected}", hint)
    if array.shape != like.shape:
        raise fail(ShapeError, name, f"the reference returned {array.dtype}{array.shape}, not {expected}", hint)
    if not np.can_cast(array.dtype, like.dtype, "same_kind"):
        raise fail(DTypeError, name, f"the reference returned {array.dtype}{array.shape}, not {expected}", hint)
    return array


def _reference(name: str, composition: Callable[..., Tensor] | None, given: Callable[..., Any] | None) -> Any:
    if given is not None:
        return lambda attributes, *arrays: _check_result(name, given(*map(_own_copy, arrays)), arrays[0])

    def by_composition(attributes: Any, *arrays: Any) -> Any:
        from morpho.backends.reference.reference import run_graph
        from morpho.base.dtypes import as_dtype

        leaves = [build("parameter", index=i, shape=a.shape, dtype=as_dtype(a.dtype)) for i, a in enumerate(arrays)]
        assert composition is not None
        node = _composed(name, composition, leaves)
        return run_graph([node], lambda leaf: arrays[leaf["index"]])[0]

    return by_composition


def pattern(*names: str) -> Callable[[Callable[[Node], Node | None]], Callable[[Node], Node | None]]:
    """Decorator: a rule on nodes of the named operations that returns a replacement, or None to leave a node alone.

    Rules run bottom-up until nothing changes, before fusion, and are counted by name in `explain()`. Morpho's own keep
    every bit; one of yours may promise less.

    >>> @mo.extend.pattern("exp")
    ... def exp_of_log(node):                             # exp(log(x)) -> x
    ...     inner = node.inputs[0]
    ...     return inner.inputs[0] if inner.op.name == "log" else None
    >>> mo.exp(mo.log(mo.asarray([3.0]))).item()
    3.0
    >>> mo.extend.remove(exp_of_log)
    """
    unknown = [name for name in names if name not in REGISTRY]
    if unknown or not names:
        raise fail(ArgumentError, "extend.pattern", f"there is no operation {unknown[0]!r}" if unknown else
                   "it names no operation", "name operations as f.text() shows them: add, multiply, matmul, ...")

    def add(function: Callable[[Node], Node | None]) -> Callable[[Node], Node | None]:
        RULES.rule(*names)(function)
        records.foreign.add(function)
        records.changed()
        return function

    return add


def add_pass(name: str, function: Callable[[Graph], Graph], before: str = "fuse") -> None:
    """Run a pass `Graph -> Graph` before another one at every level that has that one.

    >>> mo.extend.add_pass("example_nothing", lambda graph: graph)
    >>> mo.exp([0.0]).item()
    1.0
    >>> mo.extend.remove("example_nothing")
    """
    _check_name("add_pass", name, name in (*pipeline.PASSES, pipeline.DCE, pipeline.MEMORY))
    if not any(before in names for names in pipeline.LEVELS.values()):
        raise fail(ArgumentError, "extend.add_pass", f"there is no pass {before!r}",
                   "the passes are " + ", ".join(pipeline.PASSES))
    pipeline.PASSES[name] = pipeline.user_pass(name, function)
    for level, names in pipeline.LEVELS.items():
        if before in names:
            place = names.index(before)
            pipeline.LEVELS[level] = (*names[:place], name, *names[place:])
    records.foreign.add(name)
    records.changed()


def backend(name: str, run: Callable[[Node, list[Any], Mapping[str, int]], Any] | Backend, *,
            copy_in: Callable[[np.ndarray], Any] | None = None,
            copy_out: Callable[[Any], np.ndarray] | None = None) -> None:
    """Add a device of this name: `mo.device(name)`, `x.to(name)`, `device=name`.

    Given an object with the methods of `morpho.backends.base.Backend`, that is the device's backend, with memory and a
    queue of its own. Given a function, the device computes in the CPU's memory, one node at a time:
    `run(node, values, sizes)` computes a node from the values of its inputs: `node.op.name` and `node.attributes` say
    what, `node.shape` and `node.dtype` what comes of it, `sizes` what its dynamic sizes are; a node with several
    outputs gives a tuple. Values are whatever `copy_in` makes of a NumPy array and `copy_out` makes one of. For
    operations it does not know, `morpho.backends.reference.reference.run_node` has the same arguments and computes
    them in NumPy.

    >>> from morpho.backends.reference.reference import run_node
    >>> seen = []
    >>> def run(node, values, sizes):
    ...     seen.append(node.op.name)
    ...     return run_node(node, values, sizes)
    >>> mo.extend.backend("example_listing", run)
    >>> with mo.device("example_listing"):
    ...     print(mo.exp(mo.asarray([0.0])))
    Tensor([1.], dtype=float32)
    >>> seen[-1]
    'exp'
    >>> mo.extend.remove("example_listing")
    """
    _check_name("backend", name, name in settings.device_kinds)
    if isinstance(run, Backend):
        whole = run
        if whole.device != name:
            raise fail(ArgumentError, "extend.backend", f"the backend's device is {whole.device!r}, not {name!r}",
                       "give both the same name")
        registry.register(name, lambda number: whole)
        _added.add(name)
        return
    given = {key: value for key, value in (("copy_in", copy_in), ("copy_out", copy_out)) if value is not None}
    for key, function in {"run": run, **given}.items():
        if not callable(function):
            raise fail(ArgumentError, "extend.backend", f"{key} of {name!r} is {function!r}, not a function")
    names = {"copy_in": "take", "copy_out": "give"}
    made = InterpreterBackend(name, run, **{names[key]: value for key, value in given.items()})
    registry.register(name, lambda number: made)
    _added.add(name)


def remove(what: str | Callable[..., Any]) -> None:
    """Take back an operation, a pass or a backend by its name, or a pattern by its function.

    >>> half = mo.extend.op("example_half", lambda x: x / 2)
    >>> mo.extend.remove("example_half")
    """
    if isinstance(what, str) and what in _added:
        if settings.get().device == what:
            raise fail(ArgumentError, "extend.remove", f"the backend {what!r} is in use", "leave its mo.settings first")
        registry.unregister(what)
        _added.discard(what)
        return
    if callable(what):
        if not RULES.remove(what):
            raise fail(ArgumentError, "extend.remove", "this function is not a pattern")
    elif what not in records.foreign:
        raise fail(ArgumentError, "extend.remove", f"{what!r} was not added by mo.extend")
    elif what in pipeline.PASSES:
        del pipeline.PASSES[what]
        for level, names in pipeline.LEVELS.items():
            pipeline.LEVELS[level] = tuple(name for name in names if name != what)
    else:
        del REGISTRY[what]
        elementwise.remove_emitter(what)
        code.forget(what)
        candidates.NATIVE.discard(what)
    records.foreign.discard(what)
    records.changed()
