"""From a trace to verdicts, the one that binds most of the time first."""

from __future__ import annotations

from collections.abc import Callable

from morpho.observe.analyse import kernels, waiting
from morpho.observe.analyse.facts import Facts
from morpho.observe.analyse.verdict import Verdict
from morpho.observe.trace.model import Trace

RULES: tuple[Callable[[Facts], Verdict | None], ...] = (
    kernels.compute, kernels.memory, kernels.imbalance, waiting.python, waiting.recompiles, waiting.cold,
    waiting.host, waiting.transfers, waiting.data, waiting.network)
LEAST_SHARE = 0.02  # of the time: less is no bottleneck


def analyse(trace: Trace) -> list[Verdict]:
    """Find the bottlenecks of a program: verdicts by the time that each binds, the longest first.

    >>> from morpho.observe.trace.model import SpanRow
    >>> waits = [SpanRow("data", "make a batch", 1, 0.0, 0.8)]
    >>> found = analyse(Trace(wall_s=1.0, seconds={"data": 0.8, "python": 0.2}, spans=waits))
    >>> [verdict.kind for verdict in found]
    ['data', 'python']
    """
    facts = Facts(trace)
    found = [verdict for rule in RULES if (verdict := rule(facts)) is not None]
    return sorted((one for one in found if one.share >= LEAST_SHARE), key=lambda one: -one.seconds)


def headline(trace: Trace) -> str:
    """The verdict in a sentence.

    >>> headline(Trace(wall_s=0.0))
    'Nothing was recorded.'
    """
    found = analyse(trace)
    return str(found[0]) if found else "Nothing was recorded."
