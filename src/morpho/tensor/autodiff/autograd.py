"""Gradients of a value with respect to the tensors it was computed from: `loss.backward()`, then `weight.grad`.

A tensor that wants its gradient (`requires_grad`) is known by its leaf; whatever is computed from it is an ordinary
program, and `backward` builds the gradients as ordinary programs too: nothing runs until a value is asked for, and then
forward pass, gradients and what follows are optimised as one graph.

>>> w = mo.asarray([1.0, 2.0]).requires_grad_()
>>> (w * w).sum().backward()
>>> w.grad.numpy()
array([2., 4.], dtype=float32)
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ContextDecorator
from typing import Any

from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.ir.node import Node, toposort
from morpho.ops.algebra import add, cast, constant_like
from morpho.ops.control.records import bodies_of
from morpho.ops.identity import mark
from morpho.tensor import recording
from morpho.tensor.autodiff.grad_mode import (
    DONE,
    Argument,
    Tracked,
    detached,
    held_below,
    owner,
    reached,
    tracing,
    tracked,
    watch,
)
from morpho.tensor.autodiff.gradient import gradients_of
from morpho.tensor.convert import asarray
from morpho.tensor.core import Tensor, realise, realise_once, uses_parameters
from morpho.tensor.recorded_programs import set_gradients
from morpho.tensor.steps import Step

Hook = Callable[[Tensor], Tensor | None]
_hooks: dict[int, list[Hook]] = {}  # serial of a node -> what looks at its gradient
after_backward: list[Callable[[list[Tensor]], None]] = []  # told of the leaves that `backward` gave gradients to


class _Pending(threading.local):
    """Values whose gradients wait to be computed, the newest of them, of each thread: another one may be another rank,
    whose collectives only it may run."""

    def __init__(self) -> None:
        self.values: deque[weakref.ref[Tensor]] = deque(maxlen=256)


_pending = _Pending()


# -- the methods of Tensor ---------------------------------------------------------------------------------------------
def requires_grad(tensor: Tensor) -> bool:
    """Whether gradients flow to this tensor: it wants its own, or was computed from one that does."""
    track = getattr(tensor, "_track", None)
    if isinstance(track, Tracked):
        return track.wanted
    if type(tensor._node) is Step:
        return recording.wants_gradient(tensor)
    return next(leaves_below(tensor), None) is not None


def set_requires_grad(tensor: Tensor, wanted: bool = True) -> Tensor:
    """Ask for this tensor's gradient, or no more; returns the tensor."""
    track = getattr(tensor, "_track", None)
    if recording.local.recording is not None:
        recording.local.recording.forget(tensor)
    if isinstance(track, Tracked):
        track.wanted = bool(wanted)
        return tensor
    if not wanted:
        if isinstance(track, Node | recording.Lineage):
            tensor._track = None
        return tensor
    if not tensor.dtype.is_inexact:
        raise fail(DTypeError, "requires_grad", f"dtype {tensor.dtype} has no gradient", "convert with astype")
    node = tensor.program()
    is_constant = node.op.name == "constant"  # nodes are interned: every 0.0 of all programs would be this leaf
    if (node.inputs or is_constant) and tracing.current is not None:
        tensor.replace(mark(node))
    elif node.inputs and tracing.transformed and is_differentiated(tensor):
        tensor.replace(mark(node))  # its own gradient, and on to the arguments
    elif is_constant:
        tensor.replace(asarray(tensor.realise().numpy().copy()).program())
    elif node.inputs and requires_grad(tensor):
        raise fail(ArgumentError, "requires_grad", "the tensor was computed from others that want gradients",
                   "use x.detach() for a leaf of its own, or x.retain_grad() for the gradient at this point")
    elif node.inputs:
        tensor.realise()
    _begin(tensor)
    return tensor


def _begin(tensor: Tensor) -> None:
    """Let a tensor collect its gradient."""
    tensor._track = Tracked()
    if tracing.current is not None and not tensor.is_realised:  # a value of the trace, which ends with it
        tracing.current.local.add(id(tensor._track))
    watch(tensor, tensor.program())


def get_grad(tensor: Tensor) -> Tensor | None:
    """The gradient collected by `backward`, or None."""
    track = getattr(tensor, "_track", None)
    return track.grad if isinstance(track, Tracked) else None


def set_grad(tensor: Tensor, gradient: Any) -> None:
    """Put in a gradient of one's own, or None for a fresh start."""
    track = getattr(tensor, "_track", None)
    if not isinstance(track, Tracked):
        if gradient is None:
            return
        raise fail(ArgumentError, "grad", "the tensor wants no gradient", "call requires_grad_() first")
    if gradient is not None:
        gradient = asarray(gradient)
        if gradient.shape != tensor.shape or gradient.dtype is not tensor.dtype:
            raise fail(ShapeError, "grad", f"a gradient of {gradient.dtype}{gradient.shape} is given to a tensor of "
                                           f"{tensor.dtype}{tensor.shape}")
    if tracing.current is not None:
        tracing.current.keep_grad(track, anew=gradient is None)
    track.grad = gradient


def detach(tensor: Tensor) -> Tensor:
    """The same value, through which no gradient flows."""
    made = recording.without_gradient(tensor)
    if made is not None:
        return made  # type: ignore[no-any-return]
    buffer = tensor.buffer() if tracing.current is None else None
    if buffer is None or tracing.transformed or tracing.batched:
        return Tensor.of_node(detached(tensor.program()))
    return Tensor.of_buffer(buffer)  # another leaf: it may want a gradient of its own


def register_hook(tensor: Tensor, hook: Hook) -> Callable[[], None]:
    """Call `hook(gradient)` when the gradient at this tensor is known; what it returns, if anything, replaces the
    gradient. Returns a function that removes the hook."""
    track = getattr(tensor, "_track", None)
    if isinstance(track, Tracked):
        hooks = track.hooks
    else:
        node = tensor.program()
        if node.serial not in _hooks:
            _hooks[node.serial] = []
            weakref.finalize(node, _hooks.pop, node.serial, None)
        hooks = _hooks[node.serial]
    hooks.append(hook)
    return lambda: hooks.remove(hook) if hook in hooks else None


def retain_grad(tensor: Tensor) -> Tensor:
    """Have `backward` keep the gradient of a computed tensor in its `.grad`; returns the tensor."""
    if isinstance(getattr(tensor, "_track", None), Tracked):
        return tensor
    if not requires_grad(tensor):
        raise fail(ArgumentError, "retain_grad", "no gradient flows to this tensor")
    tensor.replace(mark(tensor.program()))
    _begin(tensor)
    return tensor


def backward(tensor: Tensor, gradient: Any = None, *, retain_graph: bool = False) -> None:
    """Add the gradients of this value to `.grad` of every tensor below that wants one.

    A scalar needs no `gradient`; for others it is what each element counts for. The program is let go afterwards
    unless `retain_graph`. Gradients are programs until something asks for them; an optimiser's `step` computes the
    loss, all gradients and all updates together. Inside a compiled function they live until its end.
    """
    track = getattr(tensor, "_track", None)
    if track is DONE:
        raise fail(ArgumentError, "backward", "the gradient of this value was taken before",
                   "call backward(retain_graph=True) the first time")
    if gradient is None and not _hooks and not after_backward and _backward_recorded(tensor, retain_graph):
        return
    root = tensor.program()
    order = toposort([root])
    leaves = [(node, found) for node in order if (found := owner(node)) is not None]
    if not leaves:
        if any(node.serial in tracked and tracked[node.serial]() is None for node in order):
            raise _gone()
        raise fail(ArgumentError, "backward", "nothing that this value was computed from requires a gradient",
                   "use nn.Parameter, or requires_grad_() on the tensors whose gradients you want; inside a compiled "
                   "function call backward() there, its results have no gradient outside")
    start = _cotangent(tensor, root, gradient)
    if tracing.current is None:
        _compute_earlier([found for _, found in leaves])
    hooks = {node.serial: _hooks[node.serial] for node in order if node.serial in _hooks}
    parts = gradients_of([root], [start], [node for node, _ in leaves], _with_hooks(hooks))
    for (_, leaf), part in zip(leaves, parts, strict=True):
        if part is not None:
            _collect(leaf, part)
    for listener in tuple(after_backward):
        listener([leaf for (_, leaf), part in zip(leaves, parts, strict=True) if part is not None])
    if tracing.current is None:
        _pending.values.append(weakref.ref(tensor))
        if tracing.body is None and _has_collectives([part for part in parts if part is not None]):
            realise_once(*[leaf._track.grad for _, leaf in leaves if leaf._track.grad is not None], *take_pending())
    if not retain_graph and not isinstance(track, Tracked):
        tensor._track = DONE


def _has_collectives(nodes: Sequence[Node]) -> bool:
    """Whether other ranks may wait in a program, which is then computed where it is written."""
    return any(node.op.kind == "collective" or (node.op.kind == "control" and any(
        _has_collectives(body.outputs) for body in bodies_of(node))) for node in toposort(nodes))


def _gone() -> ArgumentError:
    return fail(ArgumentError, "backward", "the parameters below this value are gone: nobody holds them now",
                "keep the module, as in model = nn.Linear(3, 1), for as long as you train it")  # type: ignore[return-value]


def _backward_recorded(tensor: Tensor, retain_graph: bool) -> bool:
    """Write the gradients down as part of the recording that the value comes from; False where nodes are needed."""
    if tensor.shape != () or not tensor.dtype.is_float or isinstance(getattr(tensor, "_track", None), Tracked):
        return False
    found = recording.differentiate(tensor)
    if found is None:
        return False
    if not found:
        raise _gone()
    for leaf, part in found:
        track = leaf._track
        for hook in list(track.hooks):
            answer = hook(part)
            part = part if answer is None else answer
        track.grad = part if track.grad is None else track.grad + part
    _pending.values.append(weakref.ref(tensor))
    if not retain_graph:
        if type(tensor._node) is Step:
            tensor._node = recording.without_gradient(tensor)._node
        tensor._track = DONE
    return True


def _cotangent(tensor: Tensor, root: Node, gradient: Any) -> Node:
    if not root.dtype.is_inexact:
        raise fail(DTypeError, "backward", f"a value of dtype {root.dtype} has no gradient")
    if gradient is None:
        if root.dtype.is_complex:
            raise fail(DTypeError, "backward", "a complex value does not grow or fall",
                       "take mo.real(x) or mo.abs(x) of it, or give its gradient")
        if root.shape != ():
            raise fail(ShapeError, "backward", f"a value of shape {root.shape} is not a single number",
                       "reduce it with sum() or mean(), or say what each element counts for")
        return constant_like(root, 1)
    given = asarray(gradient)
    if given.shape != tensor.shape:
        raise fail(ShapeError, "backward", f"a gradient of shape {given.shape} is given for a value of {tensor.shape}")
    return cast(given.program(), root.dtype)


def _with_hooks(hooks: dict[int, list[Hook]]) -> Callable[[Node, Node], Node] | None:
    if not hooks:
        return None
    return lambda node, part: _seen(hooks.get(node.serial, []), part)


def _seen(hooks: list[Hook], part: Node) -> Node:
    for hook in list(hooks):
        answer = hook(Tensor.of_node(part))
        if answer is not None:
            if answer.shape != part.shape:
                raise fail(ShapeError, "backward",
                           f"a hook turned a gradient of shape {part.shape} into one of {answer.shape}")
            part = cast(answer.program(), part.dtype)
    return part


def _collect(leaf: Tensor, part: Node) -> None:
    track = leaf._track
    if tracing.current is not None:
        tracing.current.keep_grad(track)
    part = _seen(track.hooks, part)
    track.grad = Tensor.of_node(part if track.grad is None else add(track.grad.program(), part))


def _compute_earlier(leaves: list[Tensor]) -> None:
    """Gradients of an earlier `backward` are computed before others are added: their program can go."""
    waiting = [grad for leaf in leaves if (grad := leaf._track.grad) is not None and not grad.is_realised]
    if waiting:
        realise(*waiting, *take_pending())


def take_pending() -> list[Tensor]:
    """Values that `backward` was called on and nobody has computed yet: they are computed with the gradients."""
    alive = {id(tensor): tensor for each in _pending.values if (tensor := each()) is not None}
    _pending.values.clear()
    return [tensor for tensor in alive.values() if not tensor.is_realised]


# -- blocks without gradients ------------------------------------------------------------------------------------------
class _Mode(ContextDecorator):
    def __init__(self, off: bool) -> None:
        self._off, self._before = off, []  # type: ignore[var-annotated]

    def __enter__(self) -> None:
        self._before.append(tracing.gradients_off)
        tracing.gradients_off = self._off

    def __exit__(self, *exception: object) -> None:
        tracing.gradients_off = self._before.pop()


def no_grad() -> _Mode:
    """A block, or a decorated function, whose results have no gradients.

    >>> w = mo.ones(2).requires_grad_()
    >>> with mo.no_grad():
    ...     y = w * 2
    >>> y.requires_grad
    False
    """
    return _Mode(True)


def enable_grad() -> _Mode:
    """A block inside `no_grad` whose results have gradients again.

    >>> with mo.no_grad():
    ...     with mo.enable_grad():
    ...         print(mo.is_grad_enabled())
    True
    """
    return _Mode(False)


def is_grad_enabled() -> bool:
    """Whether results have gradients here.

    >>> mo.is_grad_enabled()
    True
    >>> with mo.no_grad():
    ...     print(mo.is_grad_enabled())
    False
    """
    return not tracing.gradients_off


def leaves_below(tensor: Tensor) -> Iterator[Tensor]:
    """The tensors that gradients of this one would flow to."""
    return (found for node in reached(tensor) if (found := owner(node)) is not None)


def settle(groups: set[int], results: Sequence[Tensor]) -> None:
    """Compute the results of a loop, a branch or rows with collectives at once where they are written outside of a
    trace, as collectives by themselves are: ranks must not come to them in the order in which values are asked for."""
    if not groups or tracing.current is not None or tracing.body is not None or tracing.batched:
        return
    if not uses_parameters([tensor.program() for tensor in results]) and not (
            tracing.transformed and any(map(is_differentiated, results))):
        realise_once(*results)


def is_differentiated(tensor: Tensor) -> bool:
    """Whether what is computed from this tensor here has a gradient that somebody may ask for: `backward`, or a
    transformation such as `mo.grad` that is under way."""
    track = getattr(tensor, "_track", None)
    if tracing.gradients_off or track is DONE or (track is None and tensor.is_realised):
        return False
    if type(tensor._node) is Step and not tensor._node.tracked and not tracing.transformed:
        return False
    if isinstance(track, Tracked):
        return track.wanted
    if type(track) is Argument or (type(tensor._node) is Step and recording.wants_gradient(tensor)):
        return True
    held = held_below(tensor)
    if not held and isinstance(track, Node):
        tensor._track = None  # nobody is left to want it
    return any(not isinstance(getattr(leaf, "_track", None), Tracked) or leaf._track.wanted for leaf in held)


def _parts(root: Node, leaves: list[Node]) -> list[Node | None]:
    return gradients_of([root], [constant_like(root, 1)], leaves)


set_gradients(_parts)
METHODS: dict[str, Any] = {
    "backward": backward, "detach": detach, "register_hook": register_hook, "retain_grad": retain_grad,
    "requires_grad_": set_requires_grad,
    "requires_grad": property(requires_grad, lambda tensor, wanted: (set_requires_grad(tensor, wanted), None)[1],
                              doc="Whether gradients flow to this tensor; set it to ask for its own."),
    "grad": property(get_grad, set_grad, doc="The gradient that `backward` has collected, or None."),
}
