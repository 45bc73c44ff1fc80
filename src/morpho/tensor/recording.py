"""Recordings: what a thread has asked for outside of compiled functions and nobody has looked at yet.

An operation outside of `compile` builds no node. It follows an edge of a trie whose positions (`Step`) are exact
fingerprints of the operations so far and know the type of every result. A look takes the position, and which results
are still held, to one call of a compiled function. Only an edge that nobody has taken before builds nodes, once, over
parameters in place of the inputs; they give the result's type, the compiled program, and the graph of a value where
something asks for one (a gradient, a trace, an operation that is not recorded).

A number beside a tensor is a constant of the program until its line gives another one; from then on numbers of that
line are inputs. Laziness is bounded: a recording ends where its first operation comes again once it is long, wherever
it is when it is very long, and where it alone holds much memory.
"""

from __future__ import annotations

import itertools
import os
import struct
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any

from morpho.backends.registry import memory_of
from morpho.base import settings
from morpho.base.dtypes import float64, int64
from morpho.base.errors import DeviceError, user_place
from morpho.ir.node import Node, build, make
from morpho.ir.op import REGISTRY
from morpho.runtime.memory.buffer import Buffer, OffHost
from morpho.runtime.memory.device_memory import moved
from morpho.runtime.trace import spans
from morpho.tensor import at_once, recorded_programs
from morpho.tensor.autodiff.grad_mode import ARGUMENT, Argument, Tracked, tracing
from morpho.tensor.eager import is_quiet, quiet
from morpho.tensor.lifted import LiftedNumber, Lifting
from morpho.tensor.recorded_programs import gradients_of, plan_of
from morpho.tensor.steps import (
    DETACH,
    FLOAT,
    GRADIENT,
    INPUT,
    INT,
    NEVER,
    NOWHERE,
    PICK,
    ROOT,
    Step,
    add,
    counts,
    exact_key,
    is_immutable,
    is_tracked,
    number_node,
    path_of,
    root_of,
    signature,
    steps_of,
    substituted,
)

FIRST = 16  # steps after which a recording notes the line it is at
SOFT, HARD = 128, 512  # steps: cut where that line comes again; cut anywhere
DEEP = 2048  # steps of a recording that gradients may be asked of: a training step stays whole
MOST_HELD = 64 << 20  # bytes of inputs that nobody but a recording holds
LARGE = 1 << 20  # bytes of an input after which it is asked who holds them
MOST_SITES, MOST_VIEWS = 4096, 4096  # kept in memory
(UNUSED,) = [getrefcount(x) for x in [object()]]  # references to a result that its recording alone holds
COUNTED = getattr(sys, "_is_gil_enabled", lambda: True)()  # whether counts of references are exact


_kind: list[Any] = []  # the class `Tensor`, which is a floor above
_sites: dict[tuple[int, int], tuple[Any, Any]] = {}  # a line with a number -> its code, and the number or VARIES
evaluator_counts: list[Any] = []  # of the evaluator, which the compiler loads
_failures: set[Any] = set()  # operations that could not be recorded, whatever came before them
_views: dict[Any, Any] = {}
VARIES = object()


def set_tensor(kind: type, prepare: Callable[[], object]) -> None:
    """Name the class of the tensors that are made here, and what loads the compiler."""
    _kind[:] = [kind]
    at_once.set_tensor(kind)
    recorded_programs.tensor_class[:], recorded_programs.load_compiler[:] = [kind], [prepare]


class Recording:
    """Operations of one thread since its last evaluation. It never changes once it has ended, and its beginning
    never changes at all, so other threads may compute values from it."""

    __slots__ = ("__weakref__", "apart", "budget", "bytes", "differentiated", "inputs", "is_deep", "known", "limit",
                 "looks", "memo", "numbers", "owners", "results", "settings", "short", "site", "step")

    def __init__(self) -> None:
        self.step, self.limit = ROOT, FIRST
        self.settings: Any = None  # those of a block that the recording was written in
        self.site: Any = None  # a line of the user's, early in the recording
        self.results: list[Any] = []
        self.inputs: list[Any] = []  # tensors of the recording's own, with the values of this moment
        self.owners: list[Any] = []  # weak references to the tensors that these values were taken from
        self.numbers: list[Any] = []
        self.known: dict[int, Step] = {}  # by id of a layout, which the inputs hold
        self.memo: dict[int, Node] = {}  # nodes of values that were asked for, by serial of the step's node
        self.apart: dict[Step, Step] = {}  # steps through which gradients flow -> the same values without
        self.is_deep = False  # whether gradients may be asked for
        self.differentiated = False
        self.bytes = 0  # of inputs that were large
        self.budget = self.short = self.looks = 0  # of operations computed at once (`at_once.py`)

    # -- writing -----------------------------------------------------------------------------------------------------
    def operand(self, x: Any, value: Any) -> Step | None:
        """The step of a tensor that is no result of this recording; None where it has a graph. `value` holds what it
        is: the tensor itself, or that of its state."""
        layout = value._layout
        if layout is None:
            return self._leaf(x)
        known: Step | None = self.known.get(id(layout))
        if known is None:
            if value._node is not None and (leaf := self._leaf(value)) is not None:
                return leaf  # computed, and yet nobody has put it on a device
            storage = value._storage
            if value._layout is not layout:
                return None
            if (isinstance(storage, OffHost) or self.step.home) and not self._reaches(storage):
                return None
            known = self._input(x, storage, layout, value._record)
            if known is None:
                return None
        if known.tracked:
            if self.owners[known.inputs - 1]() is None:
                self.owners[known.inputs - 1] = weakref.ref(x)  # another tensor of this leaf
            if tracing.gradients_off:
                return self._detached(known)
        return known

    def _leaf(self, x: Any) -> Step | None:
        """An input of elements that a node holds, such as an array beside a tensor."""
        node = x._node
        if type(node) is not Node or node.op.name != "data" or type(node.payload) is not Buffer or node.device:
            return None
        known: Step | None = self.known.get(id(node))
        if known is None:
            buffer = node.payload
            if isinstance(buffer.storage, OffHost):
                return None
            value = _kind[0].of_buffer(moved(buffer, self.step.home) if self.step.home else buffer)
            value._node = node  # held, so that no id is given out again
            known = self._input(x, value._storage, value._layout, value._record, node)
            if known is not None:
                self.inputs[-1]._node = node
        return known

    def _reaches(self, storage: Any) -> bool:
        """Whether this recording is on the device of that memory, or can be from now on. Where it is not,
        `begin_elsewhere` begins one that is."""
        device = storage.device if isinstance(storage, OffHost) else ""
        if device == self.step.home:
            return True
        if not device and settings.get().device != "cpu":
            return False
        if self.step.parent is None:
            self.step = root_of(device)
            return True
        if self is local.recording:
            local.wanted = device
        return False

    def _input(self, x: Any, storage: Any, layout: Any, record: Any, node: Any = None) -> Step | None:
        track = getattr(x, "_track", None)
        tracked = False
        if track is not None:
            if type(track) is Tracked:
                if track.program is not None:
                    return None
                tracked = track.wanted
            elif type(track) is Argument:
                tracked = True
                x = x if track.leaf is None else track.leaf
            elif type(track) is Lineage or type(track) is Node:
                return None
        _, shape, _, dtype, _ = layout
        step: Step = self.step.after
        key = step.arguments
        if tracked:
            self.is_deep = True
        place = INPUT if node is None else NOWHERE
        if step.function is not INPUT or key[0] is not place or key[1] != shape or key[2] is not dtype \
                or key[3] is not tracked:
            key = place, shape, dtype, tracked
            step = self.step.following.get(key) or self._new_input(key)
            self.step.after = step
        self.step = step
        value = object.__new__(_kind[0])
        value._node = value._track = None
        value._storage, value._layout, value._record = storage, layout, record
        self.inputs.append(value)
        self.owners.append(weakref.ref(x))
        self.known[id(layout if node is None else node)] = step
        if step.nbytes >= LARGE:
            self.bytes += step.nbytes
            if self.bytes > MOST_HELD:
                self.limit = -1  # the next operation asks who holds it
        return step

    def _new_input(self, key: tuple[Any, ...]) -> Step:
        place, shape, dtype, tracked = key
        parent = self.step
        node = make(REGISTRY["parameter"], (), {"index": parent.slot + 1, "shape": shape, "dtype": dtype,
                                                "recorded": True}, device=parent.home if place is INPUT else "")
        step = Step(parent, INPUT, key, (), node)
        step.inputs += 1
        step.nbytes = dtype.itemsize
        for size in shape:
            step.nbytes *= size
        step.tracked = tracked
        return add(parent, key, step)

    def _detached(self, step: Step) -> Step:
        """The same value, through which no gradient flows."""
        known = self.apart.get(step)
        if known is None:
            parent = self.step
            key = DETACH, step
            known = parent.following.get(key)
            if known is None:
                recording, local.recording = local.recording, None
                try:
                    node = build("detach", step.node)
                finally:
                    local.recording = recording
                known = add(parent, key, Step(parent, DETACH, (step,), (), node))
            self.apart[step] = self.step = known
        return known

    def forget(self, x: Any) -> None:
        """Look at a tensor anew, because it wants its gradient from now on, or no more."""
        self.known.pop(id(x._layout), None)

    def edge(self) -> Recording:
        """At the limit: note the line, or find out whether the loop is at that line again, and end the recording."""
        if self.limit < 0:
            self.limit, self.bytes = SOFT if self.site is not None else FIRST, self._held()
            if self.bytes > MOST_HELD:
                counts.cuts += 1
                self.run()
            return local.recording  # type: ignore[no-any-return]
        if self.differentiated:
            if tracing.gradients_off:
                return self  # an optimiser: what it computes belongs to the step
        elif self.is_deep and self.limit < DEEP:
            self.limit = DEEP
            return self
        site = _site()
        if self.site is None:
            self.site, self.limit = site or (0, 0), SOFT
        elif self.step.slot >= HARD or site == self.site or (self.differentiated and self.step.slot >= SOFT):
            counts.cuts += 1
            self.run()
            return local.recording  # type: ignore[no-any-return]
        return self

    def _held(self) -> int:
        """Bytes of inputs that nobody but this recording holds."""
        held = 0
        for value, reference in zip(self.inputs, self.owners, strict=True):
            owner = reference()
            if owner is None or _layout_of(owner) is not value._layout:
                held += value.nbytes
        return held

    def record(self, function: Any, arguments: tuple[Any, ...], names: tuple[str, ...] = ()) -> Any:
        """Follow the edge of an operation that is not the one of last time, and give its result."""
        parent = self.step
        key = (function, names, *[exact_key(argument) for argument in arguments])
        step = parent.following.get(key)
        if step is None:
            failure = (parent.home, function, names, *[signature(argument) for argument in arguments])
            if failure in _failures:
                return NEVER
            step = built(self, key, function, arguments, names, ())
            if step is NEVER and local.wanted is not None:
                return NEVER
            if step is NEVER:
                if len(_failures) >= MOST_SITES:
                    _failures.clear()
                _failures.add(failure)
        if step.function == "never":
            return NEVER
        if step.slot <= parent.slot:  # the operation gives its operand back
            return self._on(step)
        parent.after = step
        return self.take(step)

    def take(self, step: Step) -> Any:
        """The results of a step as tensors."""
        self.step = step.last
        results = self.results
        kind = _kind[0]
        if step.structure is None:
            x = object.__new__(kind)
            x._node, x._storage = step, self
            x._layout = x._record = x._track = None
            results.append(x)
            return x
        made = []
        for pick in step.picks:
            x = object.__new__(kind)
            x._node, x._storage = pick, self
            x._layout = x._record = x._track = None
            results.append(x)
            made.append(x)
        return step.structure(made)

    def share(self, x: Any) -> Any:
        """Another tensor with the value of one that waits here."""
        return self._on(x._node)

    def _on(self, step: Step) -> Any:
        made = object.__new__(_kind[0])
        made._node, made._storage = step, self
        made._layout = made._record = made._track = None
        self.results.append(made)
        return made

    # -- computing ---------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Compute the results that are still held under the settings that they were recorded with."""
        chosen = _chosen()
        if self.settings is not None and self.settings is not chosen:
            with settings.of(self.settings):
                self._run()
        elif chosen is not None or not quiet.value or spans.sink is not None or local.recording is not self or \
                not self._run_quietly():
            self._run()

    def _run_quietly(self) -> bool:
        """As `_run`, where its plan is known and nothing but values is asked for: a look costs a microsecond less.
        False where nothing was computed."""
        results = self.results
        alive = [x for x in results if getrefcount(x) > UNUSED and x._storage is self] if COUNTED else ()
        home = self.step.home
        if home:
            alive = [x for x in alive if x._node.device]  # others compute themselves, where they are wanted
        if len(alive) != 1:
            live: Any = tuple([x._node for x in alive])
        else:
            live = alive[0]._node
        plan = self.step.plans.get(live)
        if plan is None:
            return False
        inputs = self.inputs
        local.recording = None
        try:
            values = plan(*inputs, vector(self.numbers, home)) if self.numbers else plan(*inputs)
        except Exception:
            local.recording = self
            return False  # it is computed once more, and then value by value
        except BaseException:
            local.recording = self
            raise
        counts.runs += 1
        if not home and self.step.slot - self.step.inputs < at_once.FEW:
            at_once.note_look(self, evaluator_counts[0])
            if live is self.step:
                at_once.learn(self, plan)
        elif self.short:
            self.short = 0
        with _settling:
            for x, value in zip(alive, values, strict=True):
                if x._storage is self:  # else another thread was first, or has given it another value
                    if x._node.tracked and x._track is None:
                        x._track = Lineage(self, x._node)
                    x._storage = value._storage  # first: whoever sees a layout finds the memory behind it
                    x._layout = value._layout
                    x._record = value._record
                    x._node = None
        alive = x = value = values = None  # type: ignore[assignment]
        results.clear()  # each of them holds the recording
        is_alone = getrefcount(self) <= ALONE
        self._begin_anew(is_alone)
        return True

    def _begin_anew(self, is_alone: bool) -> None:
        """Empty this recording, or leave it to those who know it and begin another."""
        if not is_alone:
            self.known, self.apart = {}, {}
            other = local.recording = Recording()
            other.budget, other.short, other.looks = self.budget, self.short, self.looks
            return
        self.step, self.limit, self.site, self.settings = ROOT, FIRST, None, None
        self.inputs.clear()
        self.owners.clear()
        self.known.clear()
        if self.numbers:
            self.numbers.clear()
        if self.memo:
            self.memo.clear()
        if self.apart:
            self.apart.clear()
        self.bytes, self.is_deep, self.differentiated = 0, False, False
        local.recording = self

    def _run(self) -> None:
        """Compute the results that are still held in one call, and begin anew. Where that fails each of them computes
        its own value when it is asked for, with the error that belongs to it."""
        results, is_own = self.results, local.recording is self
        if is_own:
            local.recording = None
        try:
            alive = [x for x in results if getrefcount(x) > UNUSED and x._storage is self] if COUNTED else \
                [x for x in results if x._storage is self]
            if self.step.home and self.step.home != settings.get().device:
                alive = [x for x in alive if x._node.device]  # others compute themselves, where they are wanted
            if alive and ((is_silent := is_quiet() and tracing.body is None) or _is_usual(self.step.home)):
                live = alive[0]._node if len(alive) == 1 else tuple([x._node for x in alive])
                plan = self.step.plans.get(live) or plan_of(self.step, alive)
                inputs = [*self.inputs, vector(self.numbers, self.step.home)] if self.numbers else self.inputs
                counts.runs += 1
                try:
                    values = plan(*inputs) if is_silent and spans.sink is None else self._call(plan, inputs)
                except Exception as error:  # each value computes itself when it is asked for, with the error it has
                    values = self._again(plan, inputs, alive) or _failed(error)
                with _settling:
                    for x, value in zip(alive, values):
                        if x._storage is self:  # else another thread was first, or has given it another value
                            if x._node.tracked and x._track is None:
                                x._track = Lineage(self, x._node)
                            x._storage = value._storage  # first: whoever sees a layout finds the memory behind it
                            x._layout = value._layout
                            x._record = value._record
                            x._node = None
                del values
            alive.clear()
            x = value = None
        finally:
            results.clear()  # each of them holds the recording
            if is_own:
                is_alone = getrefcount(self) <= ALONE  # nobody else knows it: it is a new one
                self._begin_anew(is_alone)
            else:
                self.known, self.apart = {}, {}

    def _again(self, plan: Callable[..., Any], inputs: list[Any], alive: list[Any]) -> Any:
        """The values by another program, where the one for symbolic sizes could not be compiled."""
        wanted = [x._node for x in alive]
        other = recorded_programs.instead(self.step, wanted, wanted[0] if len(wanted) == 1 else tuple(wanted), plan)
        if other is None:
            return None
        try:
            return self._call(other, inputs)
        except Exception:
            return None

    def _call(self, plan: Callable[..., Any], inputs: list[Any]) -> Any:
        """Call a compiled function for its values, whatever is being traced or differentiated here, and tell of it."""
        names = ("current", "transformed", "batched", "body", "gradients_off")
        before = [getattr(tracing, name) for name in names]
        node = self.step.node
        with spans.span("realise", node.op.name) as told:
            told["line"] = node.origin
            for name, value, usual in zip(names, before, (None, 0, 0, None, False), strict=True):
                if value != usual:
                    setattr(tracing, name, usual)
            try:
                return plan(*inputs)
            finally:
                for name, value in zip(names, before, strict=True):
                    if getattr(tracing, name) is not value:
                        setattr(tracing, name, value)

    def dissolve(self) -> None:
        """Give values that follow from arrays and numbers alone, which lie nowhere yet, the graph they were built as:
        they go to the device of what they meet."""
        placed: set[Step] = set()
        for one in path_of(self.step):
            if one.arguments[0] is INPUT if one.function is INPUT else any(
                    step in placed for step in steps_of(one.arguments)):
                placed.update((one, *one.picks))
        for x in self.results:
            if x._storage is self and x._node not in placed:
                node = self.node_of(x._node)
                with _settling:
                    if x._storage is self:
                        x._node, x._storage = node, None

    def again(self) -> Recording:
        """This recording, which has ended, as one under way: what it computed is computed once more."""
        made = Recording()
        made.step, made.inputs, made.owners, made.numbers = self.step, [*self.inputs], [*self.owners], [*self.numbers]
        made.is_deep, made.settings = True, _chosen()
        path = [one for one in path_of(self.step) if one.function is INPUT]
        made.known = {id(value._layout if value._node is None else value._node): one
                      for value, one in zip(made.inputs, path, strict=True)}
        return made

    # -- graphs ------------------------------------------------------------------------------------------------------
    def node_of(self, step: Step) -> Node:
        """The graph of a result, on the leaves of the tensors it was written with where they have their values still:
        a gradient with respect to one of those passes through it."""
        found = self.memo.get(step.node.serial)
        if found is not None:
            return found
        path = path_of(step)
        memo = self.memo
        before, tracing.current = tracing.current, None
        recording, local.recording = local.recording, None
        try:
            for one in path:
                if one.function is INPUT and one.node.serial not in memo:
                    memo[one.node.serial] = self._leaf_of(one.inputs - 1)
            numbers = {place: value for place, value in enumerate(self.numbers[:step.numbers])}
            return substituted([step.node], memo, numbers)[0]
        finally:
            tracing.current, local.recording = before, recording

    def _leaf_of(self, number: int) -> Node:
        value, owner = self.inputs[number], self.owners[number]()
        if value._node is not None:
            return value._node  # type: ignore[no-any-return]
        if owner is not None and _layout_of(owner) is value._layout:
            return owner.program()  # type: ignore[no-any-return]
        return value.program()  # type: ignore[no-any-return]


def _layout_of(owner: Any) -> Any:
    """The layout of a tensor; None for a variable whose next value waits, which is not to be computed here."""
    if type(owner) is _kind[0]:
        return owner._layout
    state = owner.state
    return state._held._layout if state._waiting is None else None


class Lineage:
    """Where a computed value comes from, as long as somebody may ask for its gradient."""

    __slots__ = ("recording", "step")

    def __init__(self, recording: Recording, step: Step) -> None:
        self.recording, self.step = recording, step

    def node(self) -> Node:
        return self.recording.node_of(self.step)


def apply(function: Callable[..., Any], *tensors: Sequence[Any]) -> Any:
    """The results of a function of tensors as one operation of the recording, through which no gradient flows; None
    where it cannot be recorded. The function may read nothing but its arguments."""
    if not may_record():
        return None
    recording = local.recording
    operands = []
    for x in itertools.chain(*tensors):
        if x._storage is recording:
            step = x._node
        else:
            step = recording.known.get(id(x._layout)) or recording.operand(x, x)
            if step is None:
                return None
        operands.append(recording._detached(step) if step.tracked else step)
    arguments = tuple(operands)
    step = recording.step.after
    if step.function is function and step.arguments == arguments:
        return recording.take(step)
    results = recording.record(function, arguments)
    return None if results is NEVER else results


# -- gradients ---------------------------------------------------------------------------------------------------------
def differentiate(loss: Any) -> list[tuple[Any, Any]] | None:
    """The leaves below a recorded value that want gradients, each with its gradient, as part of the recording; None
    where that is not possible, as it came about in parts."""
    if tracing.gradients_off or not may_record():
        return None
    recording = local.recording
    if type(loss._node) is Step and loss._storage is recording:
        step = loss._node
    elif type(loss._track) is Lineage and loss._layout is not None:
        lineage = loss._track
        recording.run()
        recording = local.recording = lineage.recording.again()
        step = lineage.step
    else:
        return None
    reached = step.reached
    if reached is None:
        reached = step.reached = _reached(step)
    if not reached:
        return None
    results = []
    for leaf, node in reached:
        owner = recording.owners[leaf.inputs - 1]()
        if owner is None:
            continue
        if not isinstance(owner._track, Tracked) or not owner._track.wanted:
            return None  # an argument of a function that was differentiated, or one that wants its gradient no more
        results.append((owner, _gradient(recording, step, leaf, node)))
    recording.differentiated = True
    recording.limit = recording.step.slot
    return results


def gradients_of_arguments(loss: Any, arguments: Sequence[Any]) -> list[Any] | None:
    """The gradients of a recorded value as part of the recording; None where it depends on other leaves that want
    gradients, not on all of these, or did not come about as a whole."""
    recording = local.recording
    if tracing.gradients_off or not may_record() or loss._storage is not recording or type(loss._node) is not Step:
        return None
    step = loss._node
    reached = step.reached
    if reached is None:
        reached = step.reached = _reached(step)
    owners = recording.owners
    leaves = {id(owners[leaf.inputs - 1]()): (leaf, node) for leaf, node in reached}
    if len(reached) != len(arguments) or any(id(argument) not in leaves for argument in arguments):
        return None
    results = []
    for argument in arguments:
        leaf, node = leaves[id(argument)]
        results.append(_gradient(recording, step, leaf, node))
    recording.differentiated = True
    recording.limit = recording.step.slot
    return results


def _gradient(recording: Recording, step: Step, leaf: Step, node: Node) -> Any:
    parent = recording.step
    key = GRADIENT, step, leaf
    after = parent.after
    if after.function is not GRADIENT or after.arguments[0] is not step or after.arguments[1] is not leaf:
        after = parent.following.get(key) or add(parent, key, Step(parent, GRADIENT, (step, leaf), (), node))
        parent.after = after
    return recording.take(after)


def _reached(step: Step) -> tuple[tuple[Step, Node], ...]:
    """The leaves that a gradient of this step goes to, and the graph of each gradient."""
    leaves = [one for one in path_of(step) if one.function is INPUT and one.tracked]
    recording, local.recording = local.recording, None
    local.depth += 1
    try:
        parts = gradients_of[0](step.node, [leaf.node for leaf in leaves])
    finally:
        local.recording = recording
        local.depth -= 1
    return tuple([(leaf, part) for leaf, part in zip(leaves, parts, strict=True) if part is not None])


def wants_gradient(x: Any) -> bool:
    """Whether somebody holds a tensor that the gradient of a recorded value would go to."""
    if not x._node.tracked:
        return False
    return any(one.function is INPUT and one.tracked and x._storage.owners[one.inputs - 1]() is not None
               for one in path_of(x._node))


def without_gradient(x: Any) -> Any:
    """A tensor with this value, through which no gradient flows; None where that takes a node."""
    if not may_record():
        return None
    recording = local.recording
    if type(x._node) is Step and x._storage is recording:
        made = recording.share(x)
        if made._node.tracked:
            made._node = recording._detached(made._node)
        return made
    buffer = x.buffer()
    return None if buffer is None else _kind[0].of_buffer(buffer)


class _Local(threading.local):
    """The recording of each thread; None where none is written: `record` is off, or nodes are being built."""

    recording: Any
    is_imported = False
    threads = 0  # that have used tensors

    def __init__(self) -> None:
        _Local.threads += 1
        self.depth = 0  # of steps that are being built
        self.wanted: str | None = None  # the device of an operand that a recording on another one could not take
        self.is_again = False  # whether an operation is tried once more, on that device
        self.vectors: dict[int, Any] = {}  # for numbers, by how many: memory that a tensor shares
        if _Local.is_imported:
            self.recording = Recording() if settings.outside().record else None

    def __getattr__(self, name: str) -> Any:
        """The first look at `recording` by the thread that imports Morpho, which does not read the settings: they may
        be wrong ones. Then this method goes, as every look is slower with it."""
        if name != "recording":
            raise AttributeError(name)
        self.recording = Recording() if settings.outside().record else None
        del _Local.__getattr__
        return self.recording


local = _Local()
_Local.is_imported = True
_settling = threading.Lock()
_chosen = settings.current.get


def may_record() -> bool:
    """Whether operations of this thread are recorded, where something is not as usual: only a block without gradients,
    or settings under which the CPU computes values as they are, leave them so. `local.recording` may then be another
    one: a recording has the settings of one block."""
    recording, chosen = local.recording, _chosen()
    if recording is None or (recording.settings is chosen is None and is_quiet()):
        return recording is not None
    if tracing.current is not None or tracing.transformed != tracing.recorded or tracing.batched or \
            tracing.body is not None:
        return False
    said = settings.get()
    home = _home_of(said.device)
    if home is None or said.autocast or said.nans or not said.record:
        return False
    if recording.settings is not chosen:
        if recording.step.parent is not None:
            recording.run()
        local.recording.settings = chosen
    if home and local.recording.step.parent is None:
        local.recording.step = root_of(home)
    return True


def _home_of(device: str) -> str | None:
    """How recordings name a device that new values go to; None where it computes in the memory of another one."""
    if device == "cpu":
        return ""
    try:
        return device if memory_of(device) == device else None
    except DeviceError:
        return None  # it was removed, which whoever looks at a value is told


def _end_block() -> None:
    """This thread enters or leaves a block of settings: what was recorded in one is computed under them."""
    recording, chosen = vars(local).get("recording"), _chosen()
    if recording is None or recording.settings is chosen:
        return
    if recording.settings is not None and recording.step.parent is not None:
        recording.run()
        recording = local.recording
    if recording is not None and recording.step.parent is None:
        recording.settings = None


settings.changed.append(_end_block)


def begin_elsewhere() -> bool:
    """Begin a recording on the device of an operand that the present one could not take; False if there is none."""
    device, local.wanted = local.wanted, None
    if device is None or local.is_again or local.recording is None:
        return False
    recording = local.recording
    recording.dissolve()
    recording.run()
    local.recording.step = root_of(device)
    return True


def _failed(error: Exception) -> tuple[()]:
    """Count a recording that could not be computed as a whole; its values are computed one by one."""
    counts.failed += 1
    counts.last_failure = f"{type(error).__name__}: {error}"
    return ()


def _alone() -> int:
    """The references to a recording in its `_run`, where no tensor waits in it."""
    class Counted:
        def run(self) -> int:
            return self._run()

        def _run(self) -> int:
            return getrefcount(self)

    one = Counted()
    return one.run()


ALONE = _alone()


def _site() -> Any:
    place = user_place(3)
    return None if place is None else (id(place[0]), place[1])


# -- steps that nobody has taken ---------------------------------------------------------------------------------------
def built(recording: Recording, key: Any, function: Any, arguments: tuple[Any, ...], names: tuple[str, ...],
           numbers: Sequence[Any]) -> Step:
    """A new step: the operation is built once as nodes over parameters. `NEVER` where it cannot be: it asks for values,
    or it fails, which it then does again with the values themselves."""
    kind, parent = _kind[0], recording.step
    lifting = Lifting()
    given = iter(numbers)
    place = parent.numbers

    def value_of(argument: Any) -> Any:
        nonlocal place
        if type(argument) is Step:
            if argument is FLOAT or argument is INT:
                number = next(given)
                node = number_node(place, int64 if argument is INT else float64)
                own = place
                place += 1
                return LiftedNumber(number, node, lifting, frozenset({own}), lambda values: values[own])
            tensor = kind.of_node(argument.node)
            if argument.tracked:
                tensor._track = ARGUMENT  # for functions that refuse what a gradient is asked of
            return tensor
        if type(argument) in (tuple, list):
            return type(argument)([value_of(item) for item in argument])
        return argument

    before = local.recording
    gradients_off = tracing.gradients_off
    local.recording = None
    local.depth += 1
    if gradients_off:
        tracing.gradients_off = False
    try:
        values = [value_of(argument) for argument in arguments]
        first = len(values) - len(names)
        result = function(*values[:first], **dict(zip(names, values[first:], strict=True)))
    except Exception:
        result = None
    finally:
        local.recording = before
        local.depth -= 1
        if gradients_off:
            tracing.gradients_off = True
    if lifting.seen or lifting.limits:
        return NEVER
    if type(result) is kind and not numbers:
        for argument in arguments:
            if type(argument) is Step and argument.node is result._node:
                return parent.following.setdefault(key, argument)  # type: ignore[no-any-return]
    step = _step_of(parent, function, arguments, names, result, len(numbers))
    if step is None:
        return NEVER
    return add(parent, key, step)


def _step_of(parent: Step, function: Any, arguments: tuple[Any, ...], names: tuple[str, ...], result: Any,
             numbers: int) -> Step | None:
    kind = _kind[0]
    is_single = type(result) is kind
    if not is_single and not (isinstance(result, tuple | list) and result):
        return None
    items = [result] if is_single else list(result)
    if any(type(item) is not kind or type(item._node) is not Node or item._layout is not None for item in items):
        return None
    other = next((item._node.device for item in items if item._node.device not in ("", parent.home)), "")
    if other:
        local.wanted = other
        return None
    step = last = Step(parent, function, arguments, names, items[0]._node)
    step.numbers += numbers
    step.tracked = is_tracked(arguments) and step.node.dtype.is_inexact
    step.is_plain = all(map(is_immutable, arguments))
    if is_single:
        return step
    picks = [step]
    for item in items[1:]:
        last = Step(last, PICK, (step,), (), item._node)
        last.tracked = is_tracked(arguments) and item._node.dtype.is_inexact
        last.after = NOWHERE
        picks.append(last)
    form: Any = type(result)
    step.last, step.picks = last, tuple(picks)
    step.structure = form if form in (tuple, list) else lambda made: form(*made)
    return step



def _is_usual(device: str) -> bool:
    """Whether values are computed as they are."""
    chosen = settings.get()
    return chosen.device in ("cpu", device) and not chosen.nans


def vector(numbers: list[Any], home: str = "") -> Any:
    """The numbers of a recording as a tensor, in memory that the next recording with as many uses again; on another
    device a copy of it."""
    import numpy as np

    count = len(numbers)
    known: Any = local.vectors.get(count)
    if known is None:
        from morpho.runtime.memory.buffer import borrow

        memory = np.zeros(count)
        if len(local.vectors) > 64:
            local.vectors.clear()
        known = local.vectors[count] = (struct.Struct(f"{count}d").pack_into, memory,
                                        _kind[0].of_buffer(borrow(memory, float64)))
    pack, memory, tensor = known
    pack(memory, 0, *numbers)
    return _kind[0].of_buffer(moved(tensor.elements(), home)) if home else tensor


def shared(x: Any) -> Any:
    """Another tensor with the value of one that waits in a recording."""
    home = x._storage
    if home is local.recording:
        return home.share(x)
    return _kind[0].of_node(x.program())


def look(x: Any) -> None:
    """Compute a recorded value, and what else its recording still has to give."""
    recording = x._storage
    if type(recording) is Recording and recording is local.recording:
        recording.run()


def flush() -> None:
    """Compute what this thread has recorded and is still held, so that the recording holds no memory."""
    recording = local.recording
    if recording is not None:
        recording.budget = recording.short = 0
        if recording.step.parent is not None:
            recording.run()


def is_only_thread() -> bool:
    """Whether no other thread has ever used tensors."""
    return _Local.threads == 1


def is_building() -> bool:
    """Whether this thread builds the nodes of a new step."""
    return local.recording is None and local.depth > 0


def _after_fork() -> None:
    global _settling
    _settling = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
