"""Inputs of a plan by content: hashes of its model and its machines, and differences from the given ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from morpho.plan.cluster.cluster import Cluster
from morpho.plan.model.card import ModelCard
from morpho.plan.predict.content import content_hash, content_of
from morpho.plan.predict.plan import Plan
from morpho.plan.verify.report import Report


def first_difference(stated: Any, given: Any, where: str = "") -> str:
    """The first place where two pieces of plain data differ, with both values; empty where they are equal.

    >>> first_difference({"a": [1, 2]}, {"a": [1, 3]}, "it")
    'it.a[1] is 2 in the plan and 3 in what was given'
    """
    if isinstance(stated, Mapping) and isinstance(given, Mapping):
        for key in sorted({*stated, *given}, key=str):
            if key not in stated or key not in given:
                return f"{where}.{key} is only in {'the plan' if key in stated else 'what was given'}"
            if found := first_difference(stated[key], given[key], f"{where}.{key}"):
                return found
        return ""
    if isinstance(stated, list) and isinstance(given, list):
        if len(stated) != len(given):
            return f"{where} has {len(stated)} entries in the plan and {len(given)} in what was given"
        return next((found for number, (a, b) in enumerate(zip(stated, given))
                     if (found := first_difference(a, b, f"{where}[{number}]"))), "")
    if stated == given:
        return ""
    return f"{where} is {json.dumps(stated)[:60]} in the plan and {json.dumps(given)[:60]} in what was given"


def check_inputs(plan: Plan, report: Report, card: ModelCard | None, cluster: Cluster | None) -> None:
    """The stored hashes are those of the plan's own model and machines, and these are the ones given."""
    for what, own, given in (("model", plan.card, card), ("cluster", plan.cluster, cluster)):
        stated = plan.inputs.get(what)
        if stated is not None:
            report.note(stated == content_hash(own), f"hash of the {what}", "it is another one's")
        if given is None:
            report.leave(f"the {what} is the one that the plan states; give --{what} to compare it with yours")
        else:
            difference = first_difference(content_of(own), content_of(given), f"the {what}")
            report.note(not difference, f"the {what} is the one given ({content_hash(given)[:23]}...)", difference)
