"""From the names in a file to the names in a model: tables of rules, one error that lists all that does not fit.

>>> from morpho.weights import Rule, match, transpose, split
>>> table = [
...     Rule("(transformer.)h.{i}.attn.weight", ["blocks.{i}.query", "blocks.{i}.key"], transpose, split(0)),
...     Rule("(transformer.)ln_f.{what}", "norm.{what}"),
...     Rule("{any:*}.mask", None),
... ]
>>> file = {"transformer.h.0.attn.weight": mo.ones((3, 8)), "ln_f.scale": mo.ones(3), "h.0.mask": mo.ones(1)}
>>> wanted = {"blocks.0.query": (4, 3), "blocks.0.key": (4, 3), "norm.scale": (3,)}
>>> {name: tensor.shape for name, tensor in match(file, wanted, table).items()}
{'blocks.0.query': (4, 3), 'blocks.0.key': (4, 3), 'norm.scale': (3,)}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from morpho.base.errors import ArgumentError, MorphoError, fail
from morpho.weights.errors import NameFault
from morpho.weights.transforms import Transform, Weight

SHOWN = 10  # of each kind of misfit
_PLACE = re.compile(r"\{([a-z_]+)(:\*)?\}")
_HOLES = {None: r"[^.]+", ":*": r".+"}


class Rule:
    """One line of a table: a name in the file (or several) becomes a name in the model (or several, or none).

    In a pattern `{i}` stands for a part of the name without a dot, `{rest:*}` for anything, `(prefix.)` for what may be
    missing; the replacement repeats them. `transforms` are done one after another: `transpose`, `reshape(...)`,
    `split(axis)` for one name that becomes several, `concat(axis)` for several that become one, `unpermute(heads)`.

    >>> from morpho.weights import Rule, concat
    >>> Rule(["q.{i}.w", "k.{i}.w", "v.{i}.w"], "layers.{i}.qkv", concat(0)).targets
    ('layers.{i}.qkv',)
    """

    def __init__(self, pattern: str | Sequence[str], replacement: str | Sequence[str] | None,
                 *transforms: Transform) -> None:
        self.patterns = (pattern,) if isinstance(pattern, str) else tuple(pattern)
        self.targets = () if replacement is None else (
            (replacement,) if isinstance(replacement, str) else tuple(replacement))
        self.transforms = transforms
        holes = [{hole for hole, _ in _PLACE.findall(text)} for text in (*self.patterns, *self.targets)]
        if not self.patterns or (self.targets and any(found != holes[0] for found in holes)):
            raise fail(ArgumentError, "Rule", f"{pattern!r} and {replacement!r} do not have the same places in braces")

    def sources(self, name: str) -> tuple[tuple[str, ...], dict[str, str]] | None:
        """If the name fits: the names this rule takes together, with optional parts as this name has them, and what
        the places hold."""
        for pattern in self.patterns:
            found = _compiled(pattern).fullmatch(name)
            if found:
                places = {hole: found[hole] for hole, _ in _PLACE.findall(pattern)}
                present = {key: value is not None for key, value in found.groupdict().items() if key.startswith("opt")}
                return tuple(_filled(each, places, present) for each in self.patterns), places
        return None


def match(weights: Mapping[str, Weight], wanted: Mapping[str, Any], rules: Iterable[Rule] = (), *,
          optional: Iterable[str] = ()) -> dict[str, Weight]:
    """The tensors a model wants, by the model's own names and in its order.

    `wanted` maps names to shapes (or to tensors of those shapes). The first rule that fits a name in the file is used;
    a name that no rule fits is taken as it is. Wanted names that fit an `optional` pattern may be missing, as a tied
    output matrix. Anything missing, left over or of another shape is one error that lists it.

    >>> mo.weights.match({"w": mo.ones((2, 3))}, {"w": (2, 3)})["w"].shape
    (2, 3)
    >>> mo.weights.match({"w": mo.ones((2, 3))}, {"w": (3, 2), "b": (3,)})
    Traceback (most recent call last):
    ...
    morpho.weights.errors.NameFault: [match] the weights do not fit: 1 missing (b); 1 of another shape (w is (2, 3), \
not (3, 2)). At ...
    """
    shapes = {name: tuple(getattr(shape, "shape", shape)) for name, shape in wanted.items()}
    found, misfits = _renamed(weights, shapes, list(rules))
    misfits["of another shape"] = [f"{name} is {tuple(tensor.shape)}, not {shapes[name]}"
                                   for name, tensor in found.items() if tuple(tensor.shape) != shapes[name]]
    may_miss = [_compiled(pattern) for pattern in optional]
    noted = misfits.pop("missing")  # with what is known about why
    for name in shapes:
        if name not in found and name not in noted and not any(pattern.fullmatch(name) for pattern in may_miss):
            noted[name] = name
    misfits = {"missing": list(noted.values()), **misfits}
    if any(misfits.values()):
        raise fail(NameFault, "match", "the weights do not fit: " + "; ".join(
            _listed(kind, items) for kind, items in misfits.items() if items))
    return {name: found[name] for name in shapes if name in found}


def rename(weights: Mapping[str, Weight], rules: Sequence[Rule]) -> dict[str, Weight]:
    """All tensors under the names that rules give them; a name that no rule fits stays.

    >>> from morpho.weights.mapping import Rule, rename
    >>> [*rename({"a.0.w": mo.ones(2), "b": mo.ones(1)}, [Rule("a.{i}.w", "c.{i}")])]
    ['c.0', 'b']
    """
    found: dict[str, Weight] = {}
    done: set[str] = set()
    for name in weights:
        if name not in done:
            rule, sources, targets = choose(name, rules)
            done.update(sources)
            found.update(zip(targets, _transformed(rule, [weights[each] for each in sources], targets), strict=True))
    return found


def _renamed(weights: Mapping[str, Weight], shapes: Mapping[str, Any],
             rules: Sequence[Rule]) -> tuple[dict[str, Weight], dict[str, Any]]:
    found: dict[str, Weight] = {}
    misfits: dict[str, Any] = {"missing": {}, "left over": [], "there twice": []}
    done: set[str] = set()
    for name in weights:
        if name in done:
            continue
        rule, sources, targets = choose(name, rules)
        done.update(sources)
        absent = [source for source in sources if source not in weights]
        if absent:
            for target in targets:
                misfits["missing"][target] = f"{target}, for which the file has no {absent[0]}"
        elif rule is not None and not targets:
            continue
        elif any(target not in shapes for target in targets):
            misfits["left over"] += sources
        elif any(target in found for target in targets):
            misfits["there twice"] += [f"{target} from {name}" for target in targets if target in found]
        else:
            found.update(zip(targets, _transformed(rule, [weights[source] for source in sources], targets)))
    return found, misfits


def choose(name: str, rules: Sequence[Rule]) -> tuple[Rule | None, tuple[str, ...], tuple[str, ...]]:
    """The rule that a name in a file falls under, the names it takes together, and those they become."""
    for rule in rules:
        fits = rule.sources(name)
        if fits is not None:
            return rule, fits[0], tuple(_filled(target, fits[1], {}) for target in rule.targets)
    return None, (name,), (name,)


def _transformed(rule: Rule | None, tensors: list[Weight], targets: Sequence[str]) -> list[Weight]:
    for transform in rule.transforms if rule is not None else ():
        try:
            tensors = transform(tensors, len(targets))
        except MorphoError as error:
            raise fail(NameFault, "match", f"{' and '.join(targets)} cannot be made: {error}") from error
    if len(tensors) != len(targets):
        raise fail(NameFault, "match", f"{len(tensors)} tensors of the file do not become {', '.join(targets)}",
                   "the rule lacks a split or a concat")
    return tensors


def _listed(kind: str, items: Sequence[str]) -> str:
    rest = f", and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return f"{len(items)} {kind} ({', '.join(items[:SHOWN])}{rest})"


# -- patterns ----------------------------------------------------------------------------------------------------------
_PARTS = re.compile(r"\{[a-z_]+(?::\*)?\}|\([^()]*\)|[^{}()]+")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern as a regular expression: named groups for places, and one for each optional part."""
    parts = _PARTS.findall(pattern)
    if not pattern or "".join(parts) != pattern:
        raise fail(ArgumentError, "Rule", f"{pattern!r} is not a pattern",
                   "write {i} for a part, (x.) for an optional one")
    seen: set[str] = set()
    made = []
    for number, part in enumerate(parts):
        hole = _PLACE.fullmatch(part)
        if hole and hole[1] in seen:
            made.append(f"(?P={hole[1]})")
        elif hole:
            seen.add(hole[1])
            made.append(f"(?P<{hole[1]}>{_HOLES[hole[2]]})")
        elif part.startswith("("):
            made.append(f"(?P<opt{number}>{re.escape(part[1:-1])})?")
        else:
            made.append(re.escape(part))
    return re.compile("".join(made))


def _filled(pattern: str, places: Mapping[str, str], present: Mapping[str, bool]) -> str:
    """A name out of a pattern: places filled in, optional parts kept where they are present."""
    made = []
    for number, part in enumerate(_PARTS.findall(pattern)):
        hole = _PLACE.fullmatch(part)
        if hole:
            made.append(places[hole[1]])
        elif part.startswith("("):
            made.append(part[1:-1] if present.get(f"opt{number}", True) else "")
        else:
            made.append(part)
    return "".join(made)
