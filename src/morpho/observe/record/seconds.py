"""Where the calling thread's time went: every second of the profile in one category."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from morpho.observe.trace.model import CATEGORIES, OpRow, SpanRow

OF_SPANS = {"data": "data", "transfer": "transfer", "network": "network", "device": "device", "compile": "compile",
            "trace": "trace"}
OF_OPS = {"kernel": "kernels", "host": "host", "collective": "network"}


def self_seconds(spans: Sequence[SpanRow]) -> list[float]:
    """The time of each span of one thread without that of the spans inside it."""
    found = [span.seconds for span in spans]
    open_spans: list[int] = []
    for number in sorted(range(len(spans)), key=lambda n: (spans[n].start_s, -spans[n].seconds)):
        while open_spans and _end(spans[open_spans[-1]]) <= spans[number].start_s:
            open_spans.pop()
        if open_spans:
            found[open_spans[-1]] -= spans[number].seconds
        open_spans.append(number)
    return found


def _end(span: SpanRow) -> float:
    return span.start_s + span.seconds


def by_category(wall_s: float, run_s: float, ops: Sequence[OpRow], spans: Sequence[SpanRow],
                runs: np.ndarray) -> dict[str, float]:
    """Seconds by category; they add up to `wall_s`. `ops` and `spans` are the calling thread's, `runs` the beginnings
    and durations of its programs as far as they are known one by one."""
    found = dict.fromkeys(CATEGORIES, 0.0)
    for op in ops:
        found[OF_OPS[op.kind]] += op.seconds
    found["launch"] = max(0.0, run_s - sum(op.seconds for op in ops))
    starts = runs[:, 0] if len(runs) else np.empty(0)
    before = np.concatenate([[0.0], np.cumsum(runs[:, 1])]) if len(runs) else np.zeros(1)
    outer = [span for span in spans if not span.detail.get("in_step") and not span.detail.get("on_device")]
    for span, seconds in zip(outer, self_seconds(outer), strict=True):
        category = OF_SPANS.get(span.kind)
        if category is None:
            continue
        first, last = np.searchsorted(starts, [span.start_s, _end(span)])  # programs that ran inside it
        found[category] += max(0.0, seconds - float(before[last] - before[first]))
    known = sum(found.values())
    if known > wall_s > 0:  # clocks of threads that were interrupted: never more than there was
        found = {name: seconds * wall_s / known for name, seconds in found.items()}
    found["python"] = max(0.0, wall_s - sum(found.values()))
    return found
