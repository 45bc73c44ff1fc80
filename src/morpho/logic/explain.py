"""Explanation of a run: rule -> core rules -> plan -> kernels."""

from __future__ import annotations

from morpho.base.python.notebook import Page
from morpho.logic.analysis.core import CoreRule
from morpho.logic.analysis.magic import ASK
from morpho.logic.analysis.strata import Stratum
from morpho.logic.model import Model
from morpho.logic.tuples.plan import RulePlan


def explained(model: Model) -> Page:
    """A text with a part for each stratum."""
    lines = [f"{len(model.compiled.rules)} core rules in {len(model.compiled.strata)} strata, "
             f"semantics {model.evaluator.semiring.name}"]
    for number, stratum in enumerate(model.compiled.strata):
        lines += _stratum(number, stratum, model)
    work = model.counters
    lines.append(f"work: {work['rounds']} rounds, {work['rules']} rules run on tuples, {work['tuples']} tuples derived")
    return Page("\n".join(lines))


def _stratum(number: int, stratum: Stratum, model: Model) -> list[str]:
    choice = model.choices.get(stratum.predicates)
    names = ", ".join(sorted(stratum.predicates))
    kind = "recursive" if stratum.recursive else "once"
    lines = [f"stratum {number}: {names} ({kind})"]
    if choice is not None:
        lines.append(f"  engine: {choice.engine} ({choice.why})")
    written = None
    for rule in stratum.rules:
        if rule.source is not None and rule.source is not written:
            written = rule.source
            lines.append(f"  rule {written}")
        lines.append(f"    {_what(rule)}: {rule}")
        if choice is None or choice.engine == "tuples":
            for plan in _plans(rule, model):
                lines.append(f"      plan{'' if plan.delta is None else f' for new {plan.rule.body[plan.delta]}'}")
                lines += [f"        {step}" for step in plan.steps]
    native = model.natives.get(stratum.predicates)
    if native is not None and native.function is not None:
        lines.append(f"  one native function, {native.rounds} turns of its loop")
        lines += [f"    {line}" for line in _kernels(native.function.explain())]
    return lines


def _plans(rule: CoreRule, model: Model) -> list[RulePlan]:
    found = {plan.delta: plan for plan in model.evaluator.plans if plan.rule is rule}
    return [found[delta] for delta in sorted(found, key=lambda one: -1 if one is None else one)]


def _what(rule: CoreRule) -> str:
    if rule.head.predicate.startswith(ASK):
        return "asked (magic set)"
    return "auxiliary" if rule.head.predicate.startswith("_") else "core"


def _kernels(text: str) -> list[str]:
    """The steps of a compiled function's explanation."""
    lines = text.splitlines()
    first = lines.index("steps") + 1 if "steps" in lines else 0
    last = lines.index("cost") if "cost" in lines else len(lines)
    return [line.strip() for line in lines[first:last]]
