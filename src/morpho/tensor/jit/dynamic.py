"""`dynamic=` of `mo.compile`: which sizes of the arguments may change, and what follows from it.

A parameter that is a tensor takes a dict of axis to `mo.Dim`; one that is a tuple, list or dict of tensors takes the
same form with such a dict, or None, in place of each tensor.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from morpho.base.checks import as_whole
from morpho.base.dims import Dim, Size, bounds, evaluate
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.base.trees import LEAF
from morpho.ir.graph import Graph
from morpho.ir.node import Node

Axes = Mapping[int, Dim]
_FORM = "use dynamic={'x': {0: mo.Dim('n', 1, 4096)}}: parameter, axis, size"


class Owner(NamedTuple):
    """Where a leaf of the arguments comes from: `x`, or `x[0]['w']` inside a tree, and its dynamic axes."""

    name: str
    axes: Axes


class Needed(NamedTuple):
    """A size that must not be 0, on an axis of what a node reads."""

    size: Dim
    axis: int
    node: Node


# -- declarations ----------------------------------------------------------------------------------------------------
def dynamic_sizes(given: Any, signature: inspect.Signature) -> dict[str, Any]:
    """The declaration, checked."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise fail(ArgumentError, "compile", f"dynamic={given!r} is not a dict of parameters", _FORM)
    dims: list[Dim] = []
    for name, form in given.items():
        if name not in signature.parameters:
            raise fail(ArgumentError, "compile", f"dynamic= names {name!r}, which is not a parameter of {signature}")
        _collect(form, name, dims)
    _check_symbols(dims)
    return dict(given)


def _is_tree(form: Any) -> bool:
    """Whether a form stands for several tensors, and not for the axes of one."""
    inner = form.values() if isinstance(form, Mapping) else ()
    return isinstance(form, list | tuple) or any(i is None or isinstance(i, Mapping | list | tuple) for i in inner)


def _collect(form: Any, path: str, dims: list[Dim]) -> None:
    if form is None:
        return
    if _is_tree(form):
        for key, inner in form.items() if isinstance(form, Mapping) else enumerate(form):
            _collect(inner, f"{path}[{key!r}]", dims)
        return
    if not isinstance(form, Mapping):
        raise fail(ArgumentError, "compile", f"dynamic= of {path}, {form!r}, is not a dict of axis to mo.Dim", _FORM)
    for axis, dim in form.items():
        if as_whole(axis) is None:
            raise fail(ArgumentError, "compile", f"dynamic= of {path} names {axis!r}, which is not an axis", _FORM)
        if not isinstance(dim, Dim):
            raise fail(ArgumentError, "compile", f"dynamic size {dim!r} of {path} is not a Dim",
                       "use mo.Dim('n', 1, 4096)")
        dims.append(dim)


def _check_symbols(dims: list[Dim]) -> None:
    """Every symbol must be found from the size of some axis, and has one pair of bounds."""
    known: dict[str, tuple[int, int]] = {}
    for dim in dims:
        for name, limits in dim.symbols.items():
            if known.setdefault(name, limits) != limits:
                raise fail(ArgumentError, "compile", f"the dynamic size {name} has bounds {known[name]} and {limits}",
                           "make one mo.Dim and use it for every axis of that size")
    check_bound(dims, "compile")


def check_bound(dims: Sequence[Dim], operation: str) -> None:
    """Every symbol must be found from the size of an axis: it, or a multiple of it and a number."""
    found = {dim.line.symbol for dim in dims if dim.line is not None}
    for dim in dims:
        missing = [name for name in dim.symbols if name not in found]
        if missing:
            raise fail(ArgumentError, operation, f"the dynamic size {dim} does not tell what {missing[0]} is, and no "
                                                 f"axis is of size {missing[0]} or a multiple of it",
                       "use a symbol of its own for this axis")


# -- arguments -------------------------------------------------------------------------------------------------------
def owners(structure: Any, dynamic: Mapping[str, Any], operation: str) -> list[Owner]:
    """The owner of every leaf of a call's arguments, in order."""
    found: list[Owner] = []
    for name, tree in structure:
        _walk(tree, dynamic.get(name), name, operation, found)
    return found


def _walk(tree: Any, form: Any, path: str, operation: str, found: list[Owner]) -> None:
    if tree is LEAF:
        if form is not None and _is_tree(form):
            raise fail(ArgumentError, operation, f"dynamic= of {path} has the form of a tree, but {path} is a tensor",
                       _FORM)
        found.append(Owner(path, form or {}))
        return
    kind, content = tree[0], tree[-1]
    if kind == "number" and not form:
        found.append(Owner(path, {}))
        return
    if kind == "static" or kind == "number":
        if form and content is not None:
            raise fail(ArgumentError, operation, f"dynamic= names sizes of {path}, which is {content!r} and no tensor")
        return
    names = tree[1]._fields if kind == "named" else range(len(content))
    children = dict(content) if kind == "dict" else dict(zip(names, content, strict=True))
    forms = _matched(form, children, path, operation, "dict" if kind == "dict" else "tuple or list")
    for key, child in children.items():
        _walk(child, forms.get(key), f"{path}[{key!r}]", operation, found)


def _matched(form: Any, children: Mapping[Any, Any], path: str, operation: str, kind: str) -> Mapping[Any, Any]:
    """Entries of a form for each child."""
    if not form:
        return {}
    if not _is_tree(form):
        raise fail(ArgumentError, operation, f"dynamic= names axes of {path}, which is a {kind} of {len(children)}",
                   f"give it the same form, with a dict of axis to mo.Dim, or None, in place of each tensor of {path}")
    forms = form if isinstance(form, Mapping) else dict(zip(children, form, strict=False))
    wrong = [key for key in forms if key not in children]
    if wrong or (not isinstance(form, Mapping) and len(form) != len(children)):
        what = f"has no {wrong[0]!r}" if wrong else f"has {len(children)} parts and not {len(form)}"
        raise fail(ArgumentError, operation, f"dynamic= does not have the form of {path}, which {what}")
    return forms


# -- sizes that must not be 0 ----------------------------------------------------------------------------------------
def needed_elements(graph: Graph) -> list[Needed]:
    """Where an operation that has no value for no elements meets a size that may turn out 0."""
    found = []
    for node in graph.nodes:
        for axis in node["axes"] if "needs elements" in node.op.properties else ():
            size = node.inputs[0].shape[axis]
            if isinstance(size, Dim) and bounds(size)[0] <= 0:
                found.append(Needed(size, axis, node))
    return found


def check_elements(needed: Sequence[Needed], sizes: Mapping[str, int]) -> None:
    """The error of a static empty axis, once sizes are known."""
    for size, axis, node in needed:
        if evaluate(size, sizes) <= 0:
            raise fail(ShapeError, node.op.name, f"the dynamic size {size} of axis {axis} turns out 0, and "
                                                 f"{node.op.name} has no value for no elements",
                       "give its mo.Dim a lower bound of 1", line=node.origin)


def sure_bounds(needed: Sequence[Needed]) -> dict[str, int] | None:
    """Lower bounds of symbols that make every needed size positive; None where no such bounds are simple to say."""
    least: dict[str, int] = {}
    for size, _, _ in needed:
        terms = dict(size.terms)
        constant = terms.pop((), 0)
        (monomial, factor), *rest = terms.items()
        if not rest and len(monomial) == 1 and factor > 0:  # factor * n + constant > 0
            wanted = {monomial[0][0]: -constant // factor + 1}
        elif constant >= 0 and all(coefficient > 0 for coefficient in terms.values()):
            wanted = dict.fromkeys(size.symbols, 1)
        else:
            return None
        for name, value in wanted.items():
            least[name] = max(value, least.get(name, value))
    return least


def symbols_of(shapes: Sequence[Sequence[Size]]) -> list[Dim]:
    """Every dynamic size among shapes."""
    return [size for shape in shapes for size in shape if isinstance(size, Dim)]
