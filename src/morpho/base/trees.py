"""Nested tuples, lists and dicts of tensors, flattened and put together again."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import repeat
from typing import Any

import numpy as np

from morpho.base.dims import Dim, evaluate
from morpho.base.errors import ArgumentError, fail

Build = Callable[[Iterator[Any]], Any]


class Leaf:
    """A place for a tensor in a structure."""

    def __repr__(self) -> str:
        return "*"


LEAF = Leaf()
_leaf_types: tuple[type, ...] = (np.ndarray, memoryview)
LONGEST_TEXT = 200
DEEPEST = 100  # levels of a tree that Python's stack may be blamed on


def register_leaf(kind: type) -> type:
    """Say that objects of this class are leaves; also a class decorator. A floor above names its array class here."""
    global _leaf_types
    _leaf_types = (kind, *_leaf_types)
    return kind


def refuse_depth(tree: Any, operation: str) -> None:
    """Raise an error that says so where a tree that Python's stack did not suffice for is one that never ends. One that
    does is not to blame: the caller is deep in a recursion of its own.

    >>> refuse_depth([1, [2, {"a": 3}]], "asarray")
    """
    waiting = [(tree, 0)]
    while waiting:
        branch, depth = waiting.pop()
        if depth > DEEPEST:
            raise fail(ArgumentError, operation, f"lists, tuples or dicts are nested more than {DEEPEST} levels deep",
                       "is one part of itself?")
        if isinstance(branch, list | tuple | dict):
            parts = branch.values() if isinstance(branch, dict) else branch
            waiting += [(part, depth + 1) for part in parts if isinstance(part, list | tuple | dict)]


def flatten(tree: Any, leaves: list[Any]) -> Any:
    """Collect tensors and arrays, also those of other libraries, in `leaves`; the rest is the structure, hashable."""
    try:
        return _flattened(tree, leaves)
    except RecursionError:
        refuse_depth(tree, "arguments")
        raise


def _flattened(tree: Any, leaves: list[Any]) -> Any:
    if isinstance(tree, _leaf_types) or hasattr(type(tree), "__dlpack__"):
        leaves.append(tree)
        return LEAF
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return ("named", type(tree), tuple(_flattened(item, leaves) for item in tree))
    if isinstance(tree, tuple | list):
        return (type(tree).__name__, tuple(_flattened(item, leaves) for item in tree))
    if isinstance(tree, dict):
        return ("dict", tuple((key, _flattened(tree[key], leaves)) for key in tree))
    if isinstance(tree, np.generic):  # of a dtype of its own, unlike Python's, and known by its bytes
        is_nan = isinstance(tree, np.inexact) and tree != tree
        return ("static", type(tree).__name__, tree.tobytes(), _nan(type(tree).__name__) if is_nan else tree)
    if isinstance(tree, float | complex):  # equal numbers are not always the same: 0.0 == -0.0, and nan != nan
        parts = (tree.real, tree.imag)
        same = math.nan if isinstance(tree, float) and tree != tree else tree
        return ("static", type(tree).__name__, struct.pack("<2d", *parts), same)
    if hasattr(tree, "static_key"):  # an object such as a module: one program for each of its modes
        return ("static", type(tree).__name__, tree.static_key(), tree)
    return ("static", type(tree).__name__, tree)


@cache
def _nan(name: str) -> Any:
    """One NaN of a class of NumPy's, which is itself."""
    return np.dtype(name).type("nan")


def unflatten(structure: Any, leaves: Iterator[Any]) -> Any:
    """The tree again, with leaves in order."""
    return builder(structure)(leaves)


def builder(structure: Any) -> Build:
    """The function that makes trees of this structure; where many are made, it is kept.

    >>> builder(("dict", (("a", ("list", (LEAF, LEAF))), ("b", LEAF))))(iter([1, 2, 3]))
    {'a': [1, 2], 'b': 3}
    """
    if structure is LEAF or structure[0] == "number":
        return next
    kind, content = structure[0], structure[-1]
    if kind == "static":
        return lambda leaves: content
    if kind == "dict":
        keys = tuple(key for key, _ in content)
        if all(item is LEAF for _, item in content):
            return lambda leaves: {key: next(leaves) for key in keys}
        pairs = [(key, builder(item)) for key, item in content]
        return lambda leaves: {key: build(leaves) for key, build in pairs}
    items = [builder(item) for item in content]
    if kind == "named":
        return lambda leaves: structure[1](*[build(leaves) for build in items])
    if kind == "list":
        return lambda leaves: [build(leaves) for build in items]
    return lambda leaves: tuple([build(leaves) for build in items])


def has_sizes(structure: Any) -> bool:
    """Whether dynamic sizes stand in a tree, beside its tensors."""
    if structure is LEAF or structure[0] == "static":
        return structure is not LEAF and isinstance(structure[-1], Dim)
    pairs = structure[0] == "dict"
    return any(has_sizes(item[1] if pairs else item) for item in structure[-1])


def with_sizes(structure: Any, sizes: Mapping[str, int]) -> Any:
    """The structure with numbers in place of dynamic sizes, where these are known.

    >>> with_sizes(("tuple", (LEAF, ("static", "Dim", 2 * Dim("n", 1, 8)))), {"n": 4})
    ('tuple', (*, ('static', 'int', 8)))
    """
    if structure is LEAF:
        return LEAF
    kind, content = structure[0], structure[-1]
    if kind == "static":
        known = isinstance(content, Dim) and content.symbols.keys() <= sizes.keys()
        return ("static", "int", evaluate(content, sizes)) if known else structure
    if kind == "dict":
        return (kind, tuple((key, with_sizes(item, sizes)) for key, item in content))
    return (*structure[:-1], tuple(with_sizes(item, sizes) for item in content))


def described(structure: Any) -> str:
    """A structure for people: how it is written, with a star for each tensor."""
    text = repr(unflatten(structure, repeat(LEAF)))
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "..."


def unhashable(structure: Any, path: str) -> str | None:
    """Which part of a tree cannot be part of a key, and what it is."""
    if structure is LEAF:
        return None
    kind, content = structure[0], structure[-1]
    if kind == "static":
        try:
            hash(structure)
        except TypeError:
            return f"{path}, of type {type(content).__name__},"
        return None
    names = structure[1]._fields if kind == "named" else range(len(content))
    items = content if kind == "dict" else zip(names, content, strict=True)
    return next(filter(None, (unhashable(item, f"{path}[{key!r}]") for key, item in items)), None)


def is_flat(structure: Any) -> bool:
    """Whether a tree is one tensor, a tuple of tensors, or holds none."""
    if structure is LEAF or structure[0] == "static":
        return True
    return bool(structure[0] == "tuple" and all(item is LEAF for item in structure[1]))


def arranged(structure: Any, leaves: Sequence[Any]) -> Any:
    """The tree with these leaves."""
    return unflatten(structure, iter(leaves))


def arranger(structure: Any) -> Callable[[Sequence[Any]], Any] | None:
    """As `arranged`, for one structure; None where a tuple of the leaves, or the only one, is the tree."""
    build = builder(structure)
    return None if is_flat(structure) else lambda leaves: build(iter(leaves))
