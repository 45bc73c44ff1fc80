"""Eviction of specialisations: at most so many programs per function, the least recently used of them go
first, and no longer than the objects they were compiled for.

An object among the arguments (a module, a state, a function) is part of the key that its program is found by, and is
held weakly there and everywhere else. When it dies, its program goes too: at once, or where a lock is held just then,
with the function's next call through Python. Until then the native entry cannot take another object at the same
address for it: its address is struck out of the entry's table as it dies.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from morpho.base.trees import LEAF
from morpho.tensor.jit.native.entries import entries

if TYPE_CHECKING:
    from morpho.tensor.jit.native.native_entry import NativeEntry
    from morpho.tensor.jit.specialise import Specialisation

MOST_SPECIALISATIONS = 64  # of a function; more than the entry serves side by side, and those are not dropped
NOBODY = -1  # the address of no object
_uses = itertools.count()


def is_held_weakly(thing: Any) -> bool:
    """Whether an object is known by its identity, and can be held without being kept alive. Numbers, texts and other
    values are known by what they equal."""
    kind = type(thing)
    return kind.__hash__ is object.__hash__ and kind.__eq__ is object.__eq__ and bool(kind.__weakrefoffset__)  # type: ignore[comparison-overlap]


def held(thing: Any) -> Callable[[], Any]:
    """A function that gives the object, or None when it is no more."""
    return weakref.ref(thing) if is_held_weakly(thing) else lambda: thing


def weakened(structure: Any) -> Any:
    """The structure of arguments as a key that keeps none of them alive."""
    if structure is LEAF:
        return LEAF
    kind, content = structure[0], structure[-1]
    if kind == "static":
        return (*structure[:-1], weakref.ref(content)) if is_held_weakly(content) else structure
    if kind == "dict":
        return (kind, tuple([(key, weakened(child)) for key, child in content]))
    return (*structure[:-1], tuple([weakened(child) for child in content]))


def objects_of(structure: Any) -> list[Any]:
    """The objects of a structure that are held weakly."""
    if structure is LEAF:
        return []
    kind, content = structure[0], structure[-1]
    if kind == "static":
        return [content] if is_held_weakly(content) else []
    children = [child for _, child in content] if kind == "dict" else content
    return [thing for child in children for thing in objects_of(child)]


class Assumption:
    """An object whose `static_key()` a program was compiled for; one that is no more keeps its last."""

    __slots__ = ("_held", "_key")

    def __init__(self, thing: Any) -> None:
        self._held, self._key = held(thing), thing.static_key()

    @property
    def key(self) -> Any:
        thing = self._held()
        if thing is not None:
            self._key = thing.static_key()
        return self._key


# -- keeping -----------------------------------------------------------------------------------------------------------
def use(chosen: Specialisation) -> None:
    """Note that a call through Python uses it."""
    chosen.used = next(_uses)


def keep(made: NativeEntry, key: Any, chosen: Specialisation, objects: list[Any]) -> None:
    """Keep a new specialisation under its key until one of the objects dies or others are used more; call it with the
    function's lock held."""
    made.specialisations[key] = chosen
    gone = partial(_gone, weakref.ref(made), weakref.ref(chosen))
    chosen.watched = [weakref.ref(thing, gone) for thing in objects]
    served = [one.chosen for one in made.served]
    idle = sorted((other for other in made.specialisations.values()
                   if other is not chosen and not other.is_busy and not any(other is one for one in served)),
                  key=lambda other: other.used)
    for old in idle[:max(0, len(made.specialisations) - MOST_SPECIALISATIONS)]:
        made.dead.append(old)
    bury(made)


def bury(made: NativeEntry) -> None:
    """Drop what is listed as dead, unless a lock that this needs is held: then the next call does."""
    if not made.dead or not made.lock.acquire(blocking=False):
        return
    buried = []
    try:
        while made.dead and entries.lock.acquire(blocking=False):
            try:
                buried.append(_drop(made, made.dead.popleft()))
            finally:
                entries.lock.release()
    finally:
        made.lock.release()
    buried.clear()  # what only they held goes when no lock is held: its end may bury others


def _gone(made: weakref.ref[NativeEntry], chosen: weakref.ref[Specialisation], _: object) -> None:
    """An object that a program was compiled for dies, in any thread, at any moment."""
    function, program = made(), chosen()
    if function is None or program is None:
        return
    if program.given_table is not None:
        program.given_table[:] = NOBODY
    function.dead.append(program)
    bury(function)


def _drop(made: NativeEntry, chosen: Specialisation) -> Any:
    """Take a specialisation out of all tables; with both locks held. What it was is returned, to be let go later."""
    keys = [key for key, found in made.specialisations.items() if found is chosen]
    was_current = made.current is chosen
    gone = [chosen, *[made.specialisations.pop(key) for key in keys]]
    made.dropped += len(keys)
    left = [key[0] for key in made.specialisations]
    for key, _ in keys:
        if key not in left:
            gone.append(made.assumed.pop(key, None))  # type: ignore[arg-type]
        if not any(key[:2] == other[:2] for other in left):
            made.signatures.pop(key[:2], None)
    for one in made.served:
        if one.chosen is chosen:
            entries.set(one, False)
            one.let_go()
            one.chosen = None
    if was_current:  # `explain` and `stats` still tell of it
        made.show(replace(chosen, states=chosen.states.shown(), captured=[], captured_layouts=[], prepared=None,
                          block=None, keep=[], given=None, gather=None, watched=[], given_table=None, assumed={}))
    return gone
