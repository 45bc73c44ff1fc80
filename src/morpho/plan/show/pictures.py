"""Pictures of a plan: the cluster with its stages, a Gantt chart of a simulation, the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from morpho.base.errors import ArgumentError, fail
from morpho.base.units import format_bits_per_s, format_bytes, format_seconds
from morpho.plan.predict.plan import Plan
from morpho.plan.predict.simulator import Trace, simulate
from morpho.plan.show.drawing import CHARACTER, Drawing

BOX = (190.0, 92.0)  # width and height of a node
MOST_LINKS = 12  # with more nodes than this, only the links a plan uses are drawn
FILLS = ("#ffffff", "#d9d9d9", "#b3b3b3", "#efefef", "#c6c6c6", "#9e9e9e")


def plot(plan: Plan, path: str | Path, what: str = "cluster") -> Path:
    """Draw a plan: what="cluster" (machines, stages, links), "token" (one token), "steady" (Gantt charts) or "front".

    >>> plot(p, "plan.svg")                             # doctest: +SKIP
    """
    if what == "cluster":
        drawing = cluster_picture(plan)
    elif what == "token":
        drawing = gantt(simulate(plan, in_flight=1, passes=1), "one token through the pipeline")
    elif what == "steady":
        drawing = gantt(*steady_window(plan))
    elif what == "front":
        drawing = front_picture(plan)
    else:
        raise fail(ArgumentError, "plot", f"there is no picture {what!r}", "use cluster, token, steady or front")
    return drawing.save(path)


# ---------------------------------------------------------------------------------------------------- the cluster


def cluster_picture(plan: Plan) -> Drawing:
    """Machines on a ring, clockwise in the order of the pipeline; idle ones come last and are dashed."""
    stage_of = {name: position for position, stage in enumerate(plan.stages)
                for copy in stage.replicas for name in copy}
    order = sorted(range(len(plan.cluster.nodes)), key=lambda i: (stage_of.get(plan.cluster.nodes[i].name, 999), i))
    names = [plan.cluster.nodes[i].name for i in order]
    places, width, height = _ring(len(names))
    drawing = Drawing(width, height + 84, f"{plan.card.name} on {plan.cluster.name}")
    where = dict(zip(names, places))
    _links(drawing, plan, where)
    for name in names:
        _node(drawing, plan, name, where[name], stage_of.get(name))
    _flow_labels(drawing, plan, where)
    _caption(drawing, plan)
    return drawing


def _ring(count: int) -> tuple[list[tuple[float, float]], float, float]:
    """Centres of the boxes, and the size of the picture."""
    across, down = max(1.1, 0.42 * count) * BOX[0] * 0.64, max(1.2, 0.36 * count) * BOX[1] * 0.86
    if count <= 2:
        across, down = BOX[0] * (0.95 if count == 2 else 0), 0.0
    centre = (max(across + BOX[0] / 2 + 40, 330), down + BOX[1] / 2 + 64)
    turns = [math.pi * (2 * number / count - 0.5 - (1 / count if count > 2 else 0.5)) for number in range(count)]
    places = [(centre[0] + across * math.cos(turn), centre[1] + down * math.sin(turn)) for turn in turns]
    return places, 2 * centre[0], 2 * centre[1]


def _links(drawing: Drawing, plan: Plan, where: Mapping[str, tuple[float, float]]) -> None:
    """All lines in grey, as wide as their bandwidth says; the ones in use in black with an arrow."""
    cluster, names = plan.cluster, list(where)
    used = {(a, b) for a, b, _ in _flows(plan)}
    wide = [cluster.link(a, b).bandwidth_bytes_per_s for a in names for b in names if a != b]
    most = max(wide, default=1.0) or 1.0
    for i, a in enumerate(names):
        for b in names[:i]:
            bandwidth = max(cluster.link(a, b).bandwidth_bytes_per_s, cluster.link(b, a).bandwidth_bytes_per_s)
            if bandwidth > 0 and len(names) <= MOST_LINKS and not used & {(a, b), (b, a)}:
                drawing.line([where[a], where[b]], "#cfcfcf", _line_width(bandwidth, most) / 2)
    for a, b in used:
        begin, end = _edges(where[a], where[b])
        drawing.line([begin, end], line=_line_width(cluster.link(a, b).bandwidth_bytes_per_s, most), arrow=True)


def _line_width(bandwidth: float, most: float) -> float:
    """1 to 7 pixels; each factor of ten is two pixels less."""
    return max(1.0, 7.0 + 2.0 * math.log10(max(bandwidth, 1.0) / most))


def _flows(plan: Plan) -> list[tuple[str, str, int]]:
    """Sender, receiver and stage of each flow."""
    return [(before[0], after[0], position) for position, (stage, following) in
            enumerate(zip(plan.stages, plan.stages[1:])) for before, after in zip(stage.replicas, following.replicas)]


def _edges(a: tuple[float, float], b: tuple[float, float]) -> tuple[tuple[float, float], tuple[float, float]]:
    """The line between two boxes, from rim to rim."""
    def rim(start: tuple[float, float], end: tuple[float, float]) -> tuple[float, float]:
        dx, dy = end[0] - start[0], end[1] - start[1]
        scale = min(abs((BOX[0] / 2 + 3) / dx) if dx else math.inf, abs((BOX[1] / 2 + 3) / dy) if dy else math.inf, 0.5)
        return start[0] + scale * dx, start[1] + scale * dy

    return rim(a, b), rim(b, a)


def _node(drawing: Drawing, plan: Plan, name: str, place: tuple[float, float], position: int | None) -> None:
    """A box with name, layers, memory bar and time; the bottleneck has a thick frame and says so."""
    x, y = place[0] - BOX[0] / 2, place[1] - BOX[1] / 2
    if position is None:
        drawing.box(x, y, *BOX, dashed=True)
        drawing.words(place[0], place[1] - 4, name, 13, "middle", bold=True)
        drawing.words(place[0], place[1] + 16, "not used", 11, "middle")
        return
    stage = plan.stages[position]
    slowest = position == plan.predicted.bottleneck and stage.binds != "link"
    drawing.box(x, y, *BOX, line=3.5 if slowest else 1.2)
    drawing.words(x + 8, y + 17, shortened(name, 15), 13, bold=True)
    drawing.words(x + BOX[0] - 8, y + 17, f"stage {position + 1}", 11, "end")
    drawing.words(x + 8, y + 35, f"layers [{stage.start}, {stage.end})", 11)
    drawing.words(x + BOX[0] - 8, y + 35, format_seconds(stage.compute_s), 11, "end", bold=True)
    share = min(1.0, stage.memory_needed_bytes / max(1, stage.memory_available_bytes))
    drawing.box(x + 8, y + 43, BOX[0] - 16, 12)
    drawing.box(x + 8, y + 43, (BOX[0] - 16) * share, 12, fill="#b3b3b3", hatch="/")
    memory = f"{format_bytes(stage.memory_needed_bytes)} of {format_bytes(stage.memory_available_bytes)}"
    drawing.words(x + 8, y + 70, memory + (" (tight)" if stage.memory_tight else ""), 10.5)
    note = f"BOTTLENECK: {stage.binds}" if slowest else f"bound by {stage.binds}"
    shared = f", {len(stage.members)} share each layer" if len(stage.members) > 1 else ""
    drawing.words(x + 8, y + 85, shortened(note + shared, 30), 8.8 if slowest else 10.5, bold=slowest)


def _flow_labels(drawing: Drawing, plan: Plan, where: Mapping[str, tuple[float, float]]) -> None:
    """Beside each line in use: its time, and what it is."""
    xs, ys = zip(*where.values())
    centre = ((min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2)
    for a, b, position in _flows(plan):
        stage, link = plan.stages[position], plan.cluster.link(a, b)
        (x0, y0), (x1, y1) = _edges(where[a], where[b])
        slowest = position == plan.predicted.bottleneck and stage.binds == "link"
        x, y = _beside((x0, y0), (x1, y1), centre)
        time = ("BOTTLENECK " if slowest else "") + format_seconds(stage.link_s)
        drawing.words(x, y - 2, time, 11, "middle", bold=True, halo=True)
        drawing.words(x, y + 11, f"{format_bits_per_s(link.bandwidth_bytes_per_s)}, {stage.activation_dtype}", 10,
                      "middle", halo=True)


def _beside(begin: tuple[float, float], end: tuple[float, float], centre: tuple[float, float]) -> tuple[float, float]:
    """Where the label of a line stands: beside its middle, on the side away from the centre of the ring."""
    x, y = (begin[0] + end[0]) / 2, (begin[1] + end[1]) / 2
    length = math.hypot(end[0] - begin[0], end[1] - begin[1]) or 1.0
    across, down = (end[1] - begin[1]) / length, (begin[0] - end[0]) / length
    if (x - centre[0]) * across + (y - centre[1]) * down < -1e-6 or (down > 0.99 and y <= centre[1]):
        across, down = -across, -down
    return x + 46 * across, y + 22 * down


def _caption(drawing: Drawing, plan: Plan) -> None:
    predicted, below = plan.predicted, drawing.height - 64
    drawing.words(20, 28, f"{plan.card.name} ({plan.card.dtype}) on {plan.cluster.name}: {plan.strategy}, "
                  f"{plan.objective}", 15, bold=True)
    latency, first = format_seconds(predicted.latency_s), format_seconds(predicted.first_token_s)
    drawing.words(20, below, f"{predicted.tokens_per_s:.4g} tokens/s, one token in {latency}, first token after "
                  f"{first}", 13)
    drawing.words(20, below + 20, certainty(plan), 12)
    drawing.words(20, below + 40, "Lines: the wider the more bandwidth; arrows are used. Bars: memory needed of what "
                  "may be used.", 10.5)


def certainty(plan: Plan) -> str:
    """How good the plan is known to be, in words."""
    if plan.optimal:
        return "proven optimal"
    if math.isinf(plan.gap):
        return "no bound known"
    bound = f" (bound {format_seconds(plan.lower_bound)})" if plan.objective != "balanced" else ""
    return f"at most {percent(plan.gap)} above the best{bound}"


def batches(count: int) -> str:
    """So many batches in words.

    >>> batches(1), batches(4)
    ('1 batch', '4 batches')
    """
    return f"{count} batch" + ("" if count == 1 else "es")


def percent(share: float) -> str:
    """A share with two digits that count, and no exponent: 0.31 %, 4.6 %, 120 %.

    >>> percent(0.0031), percent(0.0457), percent(1.196)
    ('0.31 %', '4.6 %', '120 %')
    """
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"


def shortened(text: str, most: int) -> str:
    """At most so many letters."""
    return text if len(text) <= most else text[:most - 1] + "…"


# ------------------------------------------------------------------------------------------------------- the Gantt


def steady_window(plan: Plan) -> tuple[Trace, str, float, float]:
    """A simulation, and the last stretch of it in which the pipeline is full: two passes of a batch."""
    trace = simulate(plan, passes=8)
    last = [begin for _, _, begin, _ in trace.passes][-2 * plan.predicted.in_flight:]
    start = min(last, default=0.0)
    length = max(plan.predicted.latency_s, plan.predicted.in_flight * plan.predicted.period_s)
    return trace, "steady state", start, min(trace.end_s, start + length)


def gantt(trace: Trace, title: str, start_s: float = 0.0, end_s: float | None = None) -> Drawing:
    """Time from left to right, a row for each stage and each line; the number in a bar is its micro-batch."""
    end_s = trace.end_s if end_s is None else end_s
    rows = list(dict.fromkeys((span.copy, span.stage, span.kind == "link", span.resource) for span in trace.spans))
    rows.sort(key=lambda row: row[:3])
    names = list(dict.fromkeys(row[3] for row in rows))
    left, right, top, pitch = 30 + 7 * max(map(len, names), default=1), 900.0, 58.0, 26.0
    drawing = Drawing(right + 40, top + pitch * len(names) + 62, title)
    drawing.words(20, 28, f"{trace.plan.card.name} on {trace.plan.cluster.name}: {title}", 15, bold=True)
    scale = (right - left) / max(end_s - start_s, 1e-12)
    bottom = top + pitch * len(names)
    for tick in _ticks(end_s - start_s):
        x = left + tick * scale
        drawing.line([(x, top - 6), (x, bottom)], "#cccccc")
        drawing.words(x, bottom + 16, format_seconds(tick), 10.5, "middle")
    for number, name in enumerate(names):
        drawing.words(left - 8, top + pitch * number + 16, name, 11, "end")
        drawing.line([(left, top + pitch * (number + 1) - 2), (right, top + pitch * (number + 1) - 2)], "#dddddd")
    for span in trace.spans:
        if span.end_s > start_s and span.start_s < end_s:
            begin, end = max(span.start_s, start_s), min(span.end_s, end_s)
            y = top + pitch * names.index(span.resource) + 2
            _bar(drawing, left + (begin - start_s) * scale, y, (end - begin) * scale, pitch - 6, span)
    drawing.words(20, drawing.height - 14, "Plain bars compute, striped bars send, crossed out is lost; the number is "
                  "the micro-batch.", 10.5)
    return drawing


def _bar(drawing: Drawing, x: float, y: float, width: float, height: float, span: Any) -> None:
    hatch = "x" if span.lost else "/" if span.kind == "link" else ""
    fill = "white" if span.kind == "link" else FILLS[span.micro_batch % len(FILLS)]
    drawing.box(x, y, max(width, 0.6), height, fill=fill, hatch=hatch, line=0.8)
    label = str(span.micro_batch + 1)
    if width > 10 * CHARACTER * len(label) + 4:
        drawing.words(x + width / 2, y + height / 2 + 4, label, 10.5, "middle", halo=span.kind == "link")


def _ticks(length: float, wanted: int = 8) -> list[float]:
    """Round times from 0 on."""
    if length <= 0:
        return [0.0]
    rough = length / wanted
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= rough * (1 - 1e-9))
    return [number * step for number in range(int(length / step + 1e-9) + 1)]


# ------------------------------------------------------------------------------------------------- the Pareto front


def front_picture(plan: Plan) -> Drawing:
    """Every plan that none beats in both latency and throughput (and nodes used); the chosen one is ringed."""
    points = plan.front or ({"latency_s": plan.predicted.latency_s, "tokens_per_s": plan.predicted.tokens_per_s,
                             "nodes_used": plan.predicted.nodes_used},)
    drawing = Drawing(760, 480, "Pareto front (sampled)")
    drawing.words(20, 28, f"{plan.card.name} on {plan.cluster.name}: latency against throughput", 15, bold=True)
    left, right, top, bottom = 90.0, 720.0, 56.0, 410.0
    across = _Axis([float(point["latency_s"]) for point in points], left, right)
    upward = _Axis([float(point["tokens_per_s"]) for point in points], bottom, top)
    drawing.box(left, top, right - left, bottom - top)
    for tick in across.ticks():
        drawing.line([(across.at(tick), bottom), (across.at(tick), bottom + 5)])
        drawing.words(across.at(tick), bottom + 19, format_seconds(tick), 10.5, "middle")
    for tick in upward.ticks():
        drawing.line([(left - 5, upward.at(tick)), (left, upward.at(tick))])
        drawing.words(left - 9, upward.at(tick) + 4, f"{tick:.4g}", 10.5, "end")
    drawing.words((left + right) / 2, bottom + 40, "latency of one token", 12, "middle")
    drawing.words(left - 70, top - 10, "tokens/s", 12)
    _front_points(drawing, plan, points, across, upward)
    drawing.words(20, 468, "The number beside a point is how many nodes it uses; the framed one is this plan.", 10.5)
    return drawing


def _front_points(drawing: Drawing, plan: Plan, points: Sequence[Mapping[str, Any]], across: _Axis, upward: _Axis
                  ) -> None:
    places = sorted((across.at(float(point["latency_s"])), upward.at(float(point["tokens_per_s"])), point["nodes_used"])
                    for point in points)
    labels: list[tuple[float, float, list[str]]] = []  # points that lie together share one
    for x, y, nodes in places:
        drawing.box(x - 4, y - 4, 8, 8, fill="black")
        near = next((label for label in labels if abs(label[0] - x) < 24 and abs(label[1] - y) < 16), None)
        if near is None:
            labels.append((x, y, [str(nodes)]))
        elif str(nodes) not in near[2]:
            near[2].append(str(nodes))
    for x, y, numbers in labels:
        drawing.words(x + 11, y + 19, ", ".join(numbers), 11)
    x, y = across.at(plan.predicted.latency_s), upward.at(plan.predicted.tokens_per_s)
    drawing.box(x - 9, y - 9, 18, 18, fill="none", line=2)


class _Axis:
    """Values to pixels, with some room at both ends."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        low, high = min(values), max(values)
        room = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
        self.low, self.high, self.begin, self.end = max(0.0, low - room), high + room, begin, end

    def at(self, value: float) -> float:
        """The pixel of a value."""
        return self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        """Round values inside."""
        steps = _ticks(self.high - self.low, 6)
        step = steps[1] if len(steps) > 1 else self.high
        return [number * step for number in range(math.ceil(self.low / step), int(self.high / step) + 1)]
