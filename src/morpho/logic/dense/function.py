"""A program as a differentiable function of tensors: predicates in, predicates out, weights on rules and facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.logic.analysis.strata import Stratum
from morpho.logic.dense.contract import TensorSemiring, tensor_semiring
from morpho.logic.dense.domains import Axes
from morpho.logic.dense.formulas import Interpretation, check_rounds
from morpho.logic.dense.rules import DenseRule, is_dense
from morpho.logic.model import Model
from morpho.logic.semantics.truth_values import Logic, logic
from morpho.logic.syntax.errors import fault
from morpho.logic.syntax.parser import parse_formula
from morpho.logic.syntax.terms import Formula, Value
from morpho.logic.tuples.codes import decode
from morpho.logic.tuples.relation import Relation


class TensorProgram:
    """A logic program as a differentiable function: call it with tensors for some predicates, and it gives those that
    rules derive.

    >>> program = mo.logic.Program("path(X, Y) :- edge(X, Y). path(X, Z) :- path(X, Y), edge(Y, Z).")
    >>> program.add("edge", [("a", "b"), ("b", "c")], weights=[0.9, 0.5])
    >>> f = program.tensors(semantics="max_times", rounds=3)
    >>> f.facts["edge"].shape, f.axis("edge", 0)
    ((3, 3), ['a', 'b', 'c'])
    >>> float(f()["path"][0, 2])
    0.449...
    >>> slope = mo.grad(lambda edge: f({"edge": edge})["path"][0, 2])(f.facts["edge"])
    >>> float(slope[0, 1]), float(slope[1, 2])
    (0.5, 0.899...)
    """

    def __init__(self, model: Model, rounds: int, dtype: str = "float32") -> None:
        self.model, self.rounds = model, check_rounds(rounds)
        ring = model.evaluator.semiring
        self.semiring: TensorSemiring = tensor_semiring(ring)
        for rule in model.compiled.rules:
            if not is_dense(rule):
                raise fault(f"a rule of {rule.head.predicate.lstrip('_')} has arithmetic, an aggregate or a subquery, "
                            f"which has no tensor form", rule.head.place, "run it on tuples")
        self.axes = Axes(model.compiled, model.base, model.symbols, model.compiled.rules)
        self.dtype = "bool" if ring.crisp else dtype
        self.rules = {id(rule): DenseRule(rule, self.axes, self.semiring, self.dtype,
                                          model.compiled.variables[id(rule)])
                      for rule in model.compiled.rules}
        self.facts: dict[str, Any] = {}
        for name in model.compiled.columns:
            relation = model.base.get(name) or Relation.empty(len(model.compiled.columns[name]), ring)
            self.facts[name] = mo.asarray(self.axes.dense(name, relation, self.dtype, ring.zero, ring.one))

    @property
    def weights(self) -> Any:
        """The weights of the program's rules, in their order; 1 where a rule has none (the semiring's one)."""
        rules = [rule for rule in self.model.rules]
        one = self.semiring.ring.one
        listed = [one if rule.weight is None else rule.weight for rule in rules]
        return mo.asarray(listed, dtype=getattr(mo, self.dtype))

    def axis(self, name: str, column: int) -> list[Value]:
        """The values along an axis of a predicate's tensor."""
        return decode(self.axes.of(name, column), self.model.compiled.columns[name][column], self.model.symbols)

    def __call__(self, tensors: Mapping[str, Any] | None = None, weights: Any = None) -> dict[str, Any]:
        """All predicates: those given, facts, and what `rounds` rounds of the rules derive.

        tensors: in place of the program's facts, by predicate
        weights: one for each rule, in place of those of the text; a tensor, so that it can be learned
        """
        known = {**self.facts, **self._checked(tensors or {})}
        for stratum in self.model.compiled.strata:
            known.update(self._stratum(stratum, known, weights))
        return {name: tensor for name, tensor in known.items() if not name.startswith("_")}

    def _checked(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        for name, tensor in tensors.items():
            if name not in self.facts:
                raise fail(ArgumentError, "logic", f"there is no predicate {name}",
                           f"those are {', '.join(self.facts)}")
            if tuple(tensor.shape) != self.axes.shape(name):
                raise fail(ShapeError, "logic",
                           f"the tensor of {name} has shape {tuple(tensor.shape)}, and its domains have "
                           f"{self.axes.shape(name)} values")
        return dict(tensors)

    def _stratum(self, stratum: Stratum, known: dict[str, Any], weights: Any) -> dict[str, Any]:
        names = sorted(stratum.predicates)
        facts = [known[name] for name in names]

        def turn(_: Any, totals: Sequence[Any]) -> Any:
            total = dict(zip(names, totals))
            found = dict(zip(names, facts))
            for rule in stratum.rules:
                weight = None if weights is None or rule.number < 0 or rule.head.predicate.startswith("_") \
                    else weights[rule.number]
                new = self.rules[id(rule)].run(lambda name, _: total.get(name, known.get(name)), weight)
                name = rule.head.predicate
                found[name] = self.semiring.plus(found[name], mo.astype(new, found[name].dtype))
            return tuple(found[name] for name in names)

        if not stratum.recursive:
            return dict(zip(names, turn(0, tuple(facts))))
        return dict(zip(names, mo.fori_loop(0, self.rounds, turn, tuple(facts))))

    def truth(self, formula: str | Formula, tensors: Mapping[str, Any] | None = None,
              semantics: str | Logic = "product", p: float = 2.0) -> Any:
        """How true a formula is of tensors, with an axis for each of its free variables.

        >>> program = mo.logic.Program("predicate smokes(person). domain person = {ann, bob}.")
        >>> f = program.tensors("product")
        >>> truth = f.truth("forall X in person: smokes(X)", {"smokes": mo.asarray([0.5, 0.8])})
        >>> round(float(truth), 3)
        0.4
        """
        given = {**self.facts, **self._checked(tensors or {})}
        return Interpretation(self.axes, given, logic(semantics, p)).truth(
            parse_formula(formula, "formula") if isinstance(formula, str) else formula)
