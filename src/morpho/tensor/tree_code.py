"""Python functions written for one structure of arguments or results, which take a fraction of the time of walking it.

`gatherer` makes the one that takes a call's arguments as the function itself would, looks whether they are arranged as
they were when the function was compiled, and returns their tensors in order; the native entry calls it where tensors
are not simply given by position. `arranger` makes the one that puts results into lists, dicts and tuples again.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from morpho.tensor.trees import LEAF, is_flat

COMPARED = (int, str, bytes)  # constants of these types may be other objects of the same value
_Kind = inspect.Parameter
_KINDS = (_Kind.POSITIONAL_ONLY, _Kind.POSITIONAL_OR_KEYWORD, _Kind.VAR_POSITIONAL, _Kind.KEYWORD_ONLY,
          _Kind.VAR_KEYWORD)  # in the order in which Python writes them


class _Unknown(Exception):
    """A structure for which no function is written: calls with it go through Python."""


class _Writer:
    """Lines of one function, and the objects that they name. A name made here is longer than any that is taken."""

    def __init__(self, taken: list[str]) -> None:
        self.mark = max(("", *taken), key=len) + "_"
        self.objects: dict[str, Any] = {}
        self.known: dict[int, str] = {}
        self.lines: list[str] = []
        self.count = 0

    def name(self, thing: Any) -> str:
        """What an object is called in the function."""
        if id(thing) not in self.known:
            self.known[id(thing)] = made = self.fresh()
            self.objects[made] = thing
        return self.known[id(thing)]

    def fresh(self) -> str:
        self.count += 1
        return f"{self.mark}{self.count}"

    def line(self, text: str) -> None:
        self.lines.append(f"    {text}")

    def function(self, head: str) -> Any:
        exec(f"def {self.mark}({head}):\n" + "\n".join(self.lines), self.objects)
        return self.objects.pop(self.mark)


# -- arguments -------------------------------------------------------------------------------------------------------
def gatherer(signature: inspect.Signature, structure: Any, result: Any) -> Callable[..., tuple[Any, ...] | None] | None:
    """A function that is called as one of this signature is, besides with `out=`. For arguments of this structure it
    returns what `out=` is, or None, and then their tensors; else None, or an exception where the signature does not
    allow the call. Where the result's tensors are not in a plain tuple, targets are returned in one.

    >>> structure = (("pair", ("tuple", (LEAF, LEAF))), ("scale", ("static", "int", 2)))
    >>> gather = gatherer(inspect.signature(lambda pair, scale=2: pair), structure, LEAF)
    >>> gather(("a", "b")), gather(scale=2, pair=("c", "d"), out="e"), gather(["a", "b"])
    ((None, 'a', 'b'), ('e', 'c', 'd'), None)
    """
    parameters = signature.parameters
    if not all(name.isidentifier() and not keyword.iskeyword(name) for name in parameters):
        return None
    writer = _Writer([*parameters, "out"])
    try:
        leaves = [leaf for name, tree in structure for leaf in _take(writer, tree, name)]
        target = "None" if "out" in parameters else _target(writer, result)
    except _Unknown:
        return None
    writer.line(f"return ({', '.join([target, *leaves])},)")
    return writer.function(_head(writer, parameters.values()))  # type: ignore[no-any-return]


def _head(writer: _Writer, parameters: Iterable[inspect.Parameter]) -> str:
    """The parameters as Python writes them, with `out` among those that have names only."""
    parts: dict[Any, list[str]] = {kind: [] for kind in _KINDS}
    stars = {_Kind.VAR_POSITIONAL: "*", _Kind.VAR_KEYWORD: "**"}
    names = []
    for parameter in parameters:
        default = "" if parameter.default is parameter.empty else f"={writer.name(parameter.default)}"
        parts[parameter.kind].append(stars.get(parameter.kind, "") + parameter.name + default)
        names.append(parameter.name)
    if "out" not in names:
        parts[_Kind.KEYWORD_ONLY].append("out=None")
    if parts[_Kind.POSITIONAL_ONLY]:
        parts[_Kind.POSITIONAL_ONLY].append("/")
    if parts[_Kind.KEYWORD_ONLY] and not parts[_Kind.VAR_POSITIONAL]:
        parts[_Kind.VAR_POSITIONAL].append("*")
    return ", ".join(part for kind in parts.values() for part in kind)


def _target(writer: _Writer, result: Any) -> str:
    """What `out=` is: as it is given, or the tensors of a tree in a tuple."""
    if is_flat(result):
        return "out"
    inner = _Writer([])
    leaves = _take(inner, result, "out")
    inner.line(f"return ({', '.join(leaves)},)")
    function, target = writer.name(inner.function("out")), writer.fresh()
    writer.line(f"{target} = None if out is None else {function}(out)")
    writer.line(f"if {target} is None and out is not None: return None")
    return target


def _take(writer: _Writer, tree: Any, source: str) -> list[str]:
    """Check that what is named `source` has this structure; expressions for its tensors, in order."""
    if tree is LEAF:
        return [source]
    kind, content = tree[0], tree[-1]
    if kind == "static":
        writer.line(f"if {_differs(writer, content, source)}: return None")
        return []
    items = source
    if kind == "dict":  # the keys are looked at first, then all values are read at once
        keys = tuple(key for key, _ in content)
        content = tuple(child for _, child in content)
        writer.line(f"if not {writer.name(isinstance)}({source}, {writer.name(dict)}) "
                    f"or {writer.name(tuple)}({source}) != {writer.name(keys)}: return None")
        if len(keys) == 1:
            items = f"({source}[{writer.name(keys[0])}],)"
        elif keys:
            items = f"{writer.name(itemgetter(*keys))}({source})"
    else:
        if kind not in ("tuple", "list", "named"):
            raise _Unknown  # a class derived from these, known by its name alone
        wanted = tree[1] if kind == "named" else {"tuple": tuple, "list": list}[kind]
        writer.line(f"if {writer.name(type)}({source}) is not {writer.name(wanted)} "
                    f"or {writer.name(len)}({source}) != {len(content)}: return None")
    if not content:
        return []
    if all(child is LEAF for child in content):
        return [f"*{items}"]
    names = [writer.fresh() for _ in content]
    writer.line(f"{', '.join(names)}, = {items}")
    return [leaf for name, child in zip(names, content, strict=True) for leaf in _take(writer, child, name)]


def _differs(writer: _Writer, constant: Any, source: str) -> str:
    """Whether what is named `source` is another constant than the one that code was compiled for; it may be another
    object of the same value where that is simple to say."""
    other = f"{source} is not {writer.name(constant)}"
    kind = type(constant)
    if kind is not float and kind not in COMPARED:
        return other
    # 0.0 and -0.0 are equal, and have other texts.
    value = f"{writer.name(repr)}({source}) != {writer.name(repr(constant))}"
    if kind is not float:
        value = f"{source} != {writer.name(constant)}"
    return f"{other} and ({writer.name(type)}({source}) is not {writer.name(kind)} or {value})"


# -- results ---------------------------------------------------------------------------------------------------------
def arranger(structure: Any) -> Callable[[tuple[Any, ...]], Any] | None:
    """A function that makes the tree of a tuple of its leaves, as `trees.arranged` does; None where that tuple, or the
    only leaf, is the tree.

    >>> arranger(("dict", (("a", ("list", (LEAF, LEAF))), ("b", LEAF))))((1, 2, 3))
    {'a': [1, 2], 'b': 3}
    """
    if is_flat(structure):
        return None
    writer = _Writer([])
    names: list[str] = []
    unpacked = len(writer.lines)
    tree = _build(writer, structure, names)
    writer.lines.insert(unpacked, f"    {', '.join(names)}, = leaves" if names else "    pass")
    writer.line(f"return {tree}")
    return writer.function("leaves")  # type: ignore[no-any-return]


def _build(writer: _Writer, tree: Any, leaves: list[str]) -> str:
    """The name of a tree; that of each leaf is added to `leaves`."""
    if tree is LEAF:
        leaves.append(writer.fresh())
        return leaves[-1]
    kind, content = tree[0], tree[-1]
    if kind == "static":
        return writer.name(content)
    made = writer.fresh()
    if kind == "dict":
        pairs = [f"{writer.name(key)}: {_build(writer, child, leaves)}" for key, child in content]
        writer.line(f"{made} = {{{', '.join(pairs)}}}")
        return made
    items = ", ".join([_build(writer, child, leaves) for child in content])
    if kind == "named":
        writer.line(f"{made} = {writer.name(tree[1])}({items})")
    elif kind == "list":
        writer.line(f"{made} = [{items}]")
    else:
        writer.line(f"{made} = ({items},)" if items else f"{made} = ()")
    return made
