"""`p.explain()` and `p.plot()`: functions of a plan that need the solvers, set as methods of `Plan` from above."""

from __future__ import annotations

from morpho.plan.predict.plan import Plan
from morpho.plan.show.explanation import explain
from morpho.plan.show.pictures import plot

Plan.explain = explain  # type: ignore[assignment, method-assign]
Plan.plot = plot  # type: ignore[assignment, method-assign]
