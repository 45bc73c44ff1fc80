"""Claims that nothing is better: shown from stored duals, or by a search, or left unproven and said so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from morpho.plan.predict.plan import Plan
from morpho.plan.verify.certificate import latency_certified, period_certified, too_much
from morpho.plan.verify.placement import CLOSE
from morpho.plan.verify.report import Report
from morpho.plan.verify.scaled import Request, Scaled
from morpho.plan.verify.search import TooLarge, plan_below, plan_within

BETTER = Fraction(1, 10**8)  # nothing beats an optimal plan by more, relatively


class Claims:
    """The claims of one plan; requests are worked out once for each number of copies."""

    def __init__(self, plan: Plan, report: Report, prove: bool) -> None:
        self.plan, self.report, self.prove = plan, report, prove
        self.requests: dict[int, Request] = {}

    def request(self, data: int) -> Request:
        """The request, for so many copies of the pipeline."""
        if data not in self.requests:
            plan = self.plan
            self.requests[data] = Request(plan.card, plan.cluster, plan.constraints, data)
        return self.requests[data]

    def degrees(self) -> list[int]:
        """Numbers of copies that the cluster has nodes for."""
        largest = max(map(len, self.request(1).groups), default=0)
        return list(range(1, min(self.plan.constraints.data, largest) + 1))

    def proofs(self, data: int) -> list[Mapping[str, Any]]:
        """The stored duals for a number of copies: any of them may prove a bound, whichever time it was found for."""
        return [proof for proof in self.plan.witness.get("proofs", ()) if proof["data"] == data] or [{}]

    def stated_bound(self, value: Fraction) -> bool:
        """The bound is not above the value; where the plan is called optimal they are equal."""
        bound = Fraction(self.plan.lower_bound_s)
        if self.plan.optimal:
            return self.report.note(abs(bound - value) <= CLOSE * value, "called optimal: bound and value are equal",
                                    "they differ")
        return bound <= value * (1 + CLOSE) or self.report.note(False, "lower bound", "it is above the plan's value")

    def no_latency_below(self, value_s: Fraction, what: str, optimal: bool) -> bool:
        """Show that no plan has a latency below a value (by more than a hair, for one that is attained)."""
        return self._show(self.request(1), value_s, what, optimal, latency_certified, plan_below)

    def no_period_below(self, value_s: Fraction, what: str, optimal: bool) -> bool:
        """Show that no plan has a period below a value, with any number of copies."""
        return all([self._show(self.request(data), value_s * data, what + (f" with {data} copies" if data > 1 else ""),
                               optimal, period_certified, plan_within) for data in self.degrees()])

    def _show(self, request: Request, value_s: Fraction, what: str, optimal: bool,
              certified: Callable[[Scaled, Mapping[str, Any]], bool], search: Callable[..., bool]) -> bool:
        if value_s <= 0 or not request.kinds:
            return self.report.note(True, f"{what}: nothing is below")
        scaled, proofs = Scaled(request, value_s * (1 - BETTER) if optimal else value_s), self.proofs(request.data)
        if too_much(scaled):
            self.report.unproven(what, "the request is too large to look through")
        elif any(certified(scaled, proof) for proof in proofs):
            return self.report.note(True, f"{what}: follows from the stored duals")
        elif not optimal:
            return self.report.note(False, what, "does not follow from the stored duals")
        elif not self.prove:
            self.report.leave(f"{what}: does not follow from the stored duals, and was not searched")
        else:
            return self._search(what, lambda: search(scaled, proofs[0]))
        return False

    def _search(self, what: str, search: Callable[[], bool]) -> bool:
        try:
            beaten = search()
        except TooLarge:
            self.report.unproven(what, "there are more states than the checker looks at")
            return False
        return self.report.note(not beaten, f"{what}: nothing beats it by more than {float(BETTER):g} (searched)",
                                "a better plan exists")

    def no_score_below(self, score: Fraction, latency_s: Fraction, period_s: Fraction) -> None:
        """Show that no plan is nearer to both optima."""
        if not self.prove:
            self.report.leave("score: was not searched")
            return

        def search() -> bool:
            less = score * (1 - BETTER)
            return any(plan_below(Scaled(self.request(data), latency_s * less), self.proofs(data)[0],
                                  Scaled(self.request(data), period_s * less * data))
                       for data in self.degrees() if self.request(data).kinds)

        self._search(f"score {float(score):.6g}", search)
