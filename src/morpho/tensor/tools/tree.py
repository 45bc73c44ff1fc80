"""`mo.tree`: nested tuples, lists and dicts, and what stands at their ends.

Tuples, named tuples, lists and dicts are branches, in the order they have; None is a branch with nothing on it. All
else is a leaf: tensors, arrays, numbers, strings, objects. `is_leaf(x)` may say that a branch is a leaf too.

>>> mo.tree.map(lambda x: x * 2, {"a": 1, "b": [2, (3,)]})
{'a': 2, 'b': [4, (6,)]}
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from morpho.base.errors import ArgumentError, fail
from morpho.base.trees import refuse_depth
from morpho.tensor.tools.foreign_calls import hint_calls
from morpho.tensor.tools.foreign_names import module_attribute

__all__ = ["Structure", "flatten", "leaves", "map", "reduce", "structure", "transpose", "unflatten"]

IsLeaf = Callable[[Any], bool]
_EMPTY = object()


class Structure:
    """The form of a tree without its leaves; two are equal where the trees are arranged alike.

    >>> mo.tree.structure([1, {"a": 2}])
    Structure([*, {'a': *}])
    """

    __slots__ = ("_content", "_keys", "_kind", "count")

    count: int

    def __init__(self, kind: Any, keys: tuple[Any, ...], content: tuple[Structure, ...]) -> None:
        self._kind, self._keys, self._content = kind, keys, content  # kind: a class, or None for a leaf
        self.count = 1 if kind is None else sum(one.count for one in content)

    def build(self, items: Iterator[Any]) -> Any:
        """The tree with these leaves, in order."""
        if self._kind is None:
            return next(items)
        parts = [one.build(items) for one in self._content]
        if self._kind is type(None):
            return None
        if issubclass(self._kind, dict):
            return self._kind(zip(self._keys, parts, strict=True))
        return self._kind(*parts) if hasattr(self._kind, "_fields") else self._kind(parts)

    def _identity(self) -> tuple[Any, ...]:
        return self._kind, self._keys, self._content

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        return f"Structure({self.build(iter([_Star()] * self.count))!r})"

    def matched(self, tree: Any, operation: str) -> list[Any]:
        """Values of a tree at the positions of this one's leaves."""
        if self._kind is None:
            return [tree]
        keys, content = _branches(tree)
        if type(tree) is not self._kind or keys != self._keys or len(content) != len(self._content):
            raise fail(ArgumentError, operation, f"a tree of {_told(tree)} is not arranged like {self!r}")
        return [leaf for one, part in zip(self._content, content, strict=True) for leaf in one.matched(part, operation)]


class _Star:
    def __repr__(self) -> str:
        return "*"


def _told(tree: Any) -> str:
    return f"{type(tree).__name__}" + (f" with {len(tree)} items" if hasattr(tree, "__len__") else "")


def _branches(tree: Any) -> tuple[tuple[Any, ...], Sequence[Any]]:
    """The keys of a dict, and what hangs on a branch; a leaf has nothing to say."""
    if tree is None:
        return (), ()
    if isinstance(tree, dict):
        return tuple(tree), list(tree.values())
    return ((), tree) if isinstance(tree, tuple | list) else ((_EMPTY,), ())


def _taken(tree: Any, found: list[Any], is_leaf: IsLeaf | None) -> Structure:
    keys, content = _branches(tree)
    if keys == (_EMPTY,) or (is_leaf is not None and is_leaf(tree)):
        found.append(tree)
        return Structure(None, (), ())
    return Structure(type(tree), keys, tuple([_taken(item, found, is_leaf) for item in content]))


def flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], Structure]:
    """The leaves of a tree, and its structure.

    >>> mo.tree.flatten({"a": 1, "b": [2, None]})
    ([1, 2], Structure({'a': *, 'b': [*, None]}))
    """
    found: list[Any] = []
    try:
        return found, _taken(tree, found, is_leaf)
    except RecursionError:
        refuse_depth(tree, "tree.flatten")
        raise


def unflatten(structure: Structure, leaves: Sequence[Any]) -> Any:
    """The tree again, from a structure and leaves in order.

    >>> leaves, form = mo.tree.flatten((1, [2]))
    >>> mo.tree.unflatten(form, ["one", "two"])
    ('one', ['two'])
    """
    if not isinstance(structure, Structure):
        raise fail(ArgumentError, "tree.unflatten", f"{type(structure).__name__} is not a structure",
                   "the order is mo.tree.unflatten(structure, leaves); mo.tree.flatten gives both")
    items = list(leaves)
    if len(items) != structure.count:
        raise fail(ArgumentError, "tree.unflatten", f"{len(items)} leaves for a structure of {structure.count}")
    return structure.build(iter(items))


def leaves(tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """The leaves of a tree, in order.

    >>> mo.tree.leaves({"a": 1, "b": (2, 3)})
    [1, 2, 3]
    """
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: IsLeaf | None = None) -> Structure:
    """The structure of a tree.

    >>> mo.tree.structure([1, 2]) == mo.tree.structure(["a", "b"])
    True
    """
    return flatten(tree, is_leaf)[1]


def map(function: Callable[..., Any], tree: Any, *others: Any, is_leaf: IsLeaf | None = None) -> Any:
    """A tree of what the function makes of each leaf, and of what other trees have in its place.

    >>> mo.tree.map(lambda w, g: w - 0.5 * g, {"w": 1.0}, {"w": 4.0})
    {'w': -1.0}
    """
    found, form = flatten(tree, is_leaf)
    columns = [form.matched(other, "tree.map") for other in others]
    return form.build(iter([function(*row) for row in zip(found, *columns, strict=True)]))


def reduce(function: Callable[[Any, Any], Any], tree: Any, initial: Any = _EMPTY,
           is_leaf: IsLeaf | None = None) -> Any:
    """The leaves combined from left to right, two at a time, beginning with `initial` where it is given.

    >>> mo.tree.reduce(lambda a, b: a + b, {"a": 1, "b": [2, 3]}, 0)
    6
    """
    found = leaves(tree, is_leaf)
    if initial is not _EMPTY:
        return functools.reduce(function, found, initial)
    if not found:
        raise fail(ArgumentError, "tree.reduce", "a tree without leaves has no value", "give an initial one")
    return functools.reduce(function, found)


def transpose(outer: Structure, inner: Structure, tree: Any) -> Any:
    """A tree of structure `outer` with trees of structure `inner` on it, turned inside out.

    >>> pairs = {"a": (1, 2), "b": (3, 4)}
    >>> mo.tree.transpose(mo.tree.structure({"a": 0, "b": 0}), mo.tree.structure((0, 0)), pairs)
    ({'a': 1, 'b': 3}, {'a': 2, 'b': 4})
    """
    for name, one in (("outer", outer), ("inner", inner)):
        if not isinstance(one, Structure):
            raise fail(ArgumentError, "tree.transpose", f"{name} is {type(one).__name__}, not a structure",
                       "mo.tree.structure(tree) gives one")
    rows = [inner.matched(part, "tree.transpose") for part in outer.matched(tree, "tree.transpose")]
    return inner.build(iter([outer.build(iter(column)) for column in zip(*rows, strict=True)]))


def __dir__() -> list[str]:
    return __all__


hint_calls(globals(), [name for name in __all__ if name != "Structure"])
__getattr__ = module_attribute("tree", __name__)  # a hint for names of other libraries
