"""Report on a compiled function, as numbers and in words."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from morpho.backends.driver import threads
from morpho.base.dims import evaluate, upper
from morpho.base.target import current_isa
from morpho.base.units import format_bytes
from morpho.program.program import Control, HostStep, Program, Step
from morpho.tensor.jit.compiled_function import CompiledFunction
from morpho.tensor.jit.specialise import Specialisation


def statistics(compiled: CompiledFunction) -> dict[str, Any]:
    """The plain dict behind `f.stats`; figures of the last signature, counts of all."""
    backend = "cpu" if compiled.current is None else compiled.current.plan.device
    is_compiled = backend == "cpu"
    result: dict[str, Any] = {
        "calls": compiled.calls, "native_calls": compiled.native_calls, "recompiles": compiled.recompiles,
        "fallbacks": compiled.fallbacks, "specialisations": len(compiled.specialisations), "dropped": compiled.dropped,
        "isa": current_isa().name if is_compiled else backend, "threads": threads.wanted_threads()}
    if compiled.current is None:
        return result
    plan = compiled.current.plan
    program = plan.program
    after = plan.after
    change = {name: after[name] - plan.before[name] for name in after}
    result |= {
        "passes": {name: dict(row) for name, row in plan.report.passes.items()},
        "program": {name: dict(row) for name, row in plan.report.program.items()},
        "rules": dict(plan.report.rules),
        "kernels": program.kernels if is_compiled else 0,
        "host_steps": sum(isinstance(s, HostStep) for s in program.steps),
        "products": _products(program),
        "co_scheduled_launches": 0 if plan.executable is None else plan.executable.co_scheduled_launches,
        "copies": program.copies, **plan.figures(),
        "arena_bytes": program.arena_bytes, "liveness_bytes": program.liveness_bytes,
        "reused_bytes": program.reused_bytes,
        "predicted_peak_bytes": compiled.current.footprint.total,
        "predicted_bytes": asdict(compiled.current.footprint),
        "recomputed": None if plan.report.recomputed is None else asdict(plan.report.recomputed),
        "prepared_steps": len(program.prepare),
        "prepared_bytes": sum(program.slots[slot].nbytes for slot, read in program.kept.items() if read),
        "compile_ms": dict(plan.milliseconds) | {"generate": change["generate_ms"], "llvm": change["compile_ms"],
                                                 "load": change["load_ms"]},
        "cache": {"memory": int(change["memory_hits"]), "disk": int(change["disk_hits"]),
                  "compiled": int(change["compiled"]), "plan": int(change["plan_hits"])},
    }
    return result


def _products(program: Program) -> dict[str, int]:
    """How many products go which way: with the right operand packed, or read as it lies, or through NumPy's BLAS."""
    kernels = [step for step in program.steps if isinstance(step, Step)]
    direct = sum(step.kernel.role == "gemv" for step in kernels)
    return {"packed": sum(step.is_product for step in kernels) - direct, "unpacked": direct,
            "blas": sum(isinstance(step, HostStep) and step.label == "matmul_blas" for step in program.steps)}


def _product_lines(program: Program) -> list[str]:
    """A line per product and convolution: the kernel that was taken, and those that could have been."""
    found = [f"  {number:3d} {step.label}: {step.choice}" for number, step in enumerate(program.steps)
             if isinstance(step, Step) and step.choice]
    return ["products", *found] if found else []


def _way_lines(program: Program) -> list[str]:
    """A line per op: the rows of the lowering's table that its nodes took."""
    def row(way: str, count: int) -> str:
        return way if count == 1 else f"{way} x{count}"

    lines = [f"  {op}: {'; '.join(row(*pair) for pair in rows.items())}" for op, rows in sorted(program.ways.items())]
    return ["lowering", *lines] if lines else []


def predicted_seconds(compiled: CompiledFunction) -> list[float]:
    """Predicted seconds of each step of the last signature at the machine's measured limits, which are those of
    float32, and at the sizes that were measured; 0 for steps of the host."""
    from morpho.runtime.measure import machine_profile

    assert compiled.current is not None
    if not compiled.current.plan.native:
        return []
    profile, sizes = machine_profile(), compiled.current.sizes

    def seconds(step: Step) -> float:
        cost = step.traffic_at(lambda size: evaluate(size, sizes) if sizes else upper(size))
        return profile.seconds(cost._replace(flops=int(cost.flops * step.width)))

    return [seconds(step) if isinstance(step, Step) else 0.0 for step in compiled.current.plan.program.steps]


def _step_lines(compiled: CompiledFunction) -> list[str]:
    """The steps; with times and the share of the machine's limit once `measure` has run."""
    assert compiled.current is not None
    steps, seconds = compiled.current.plan.program.steps, compiled.current.seconds
    lines = ["steps"]
    predicted = predicted_seconds(compiled) if seconds else []
    for number, step in enumerate(steps):
        kind = {HostStep: "host  ", Control: "      "}.get(type(step), "kernel")
        sizes = (step.sizes or (step.rows, step.columns)) if isinstance(step, Step) else ()
        size = "  " * bool(sizes) + " x ".join(map(str, sizes))
        times = ""
        if seconds:
            known = predicted[number] and seconds[number]
            share = f"{100 * predicted[number] / seconds[number]:4.0f} %" if known else "     -"
            times = f" {1e6 * predicted[number]:9.1f} us {1e6 * seconds[number]:9.1f} us {share}"
        others = step.together - 1 if isinstance(step, Step) else 0
        more = f"  co-scheduled with the next {others}" if others > 0 else ""
        label = _control_label(step) if isinstance(step, Control) else step.label
        lines.append(f"  {number:3d} {kind}{times} {label}{size}{more}"
                     + (f"  ({step.origin})" if step.origin else ""))
    if seconds:
        lines.insert(1, "               at the limit    measured  share")
        total, limit = sum(seconds), sum(predicted)
        known = sum(second for second, at_limit in zip(seconds, predicted, strict=True) if at_limit)
        share = f"{100 * limit / known:4.0f} %" if known else "     -"
        lines.append(f"  all        {1e6 * limit:9.1f} us {1e6 * total:9.1f} us {share}")
    return lines


def _control_label(step: Control) -> str:
    """A loop or branch in words."""
    if step.kind == "loop":
        return f"{step.label}: " + ("turns until its test fails" if step.turns is None else f"{step.turns} turns")
    if step.kind == "memory":
        return f"memory {step.number}, where {step.label} says"
    return f"size {step.turns}, as counted" if step.kind == "size" else f"{step.kind} of {step.label}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _peak_lines(stats: dict[str, Any]) -> list[str]:
    """Lines on a call's peak memory, and on values computed again for a budget."""
    parts = ", ".join(f"{name} {format_bytes(nbytes)}" for name, nbytes in stats["predicted_bytes"].items() if nbytes)
    lines = [f"  a call holds {format_bytes(stats['predicted_peak_bytes'])}: {parts}"]
    found = stats["recomputed"]
    if found is not None:
        kernels = ", ".join(f"{label} x{count}" for label, count in sorted(found["kernels"].items())) or "nothing"
        lines.append(f"  for a budget of {format_bytes(found['budget_bytes'])}, "
                     f"{format_bytes(found['plain_bytes'])} without: computed again {kernels}; "
                     f"{found['flops']:.3g} operations, about {100 * found['extra_time']:.0f} % more time")
    return lines


def _packed_anew(chosen: Specialisation) -> int:
    """How many captured tensors are packed at every call, as they are or converted, since NumPy owns them and may
    change them. What is made of captured tensors that Morpho owns is packed once, and not among these steps."""
    program, first = chosen.plan.program, chosen.arguments + chosen.states.count
    borrowed = [not tensor.elements().writable for tensor in chosen.captured]
    made: dict[int, set[int]] = {}  # slots made of captured tensors alone -> which of them are borrowed
    for number, slot in enumerate(program.slots):
        if slot.kind == "input" and 0 <= slot.index - first < len(borrowed):
            made[number] = {slot.index} if borrowed[slot.index - first] else set()
    mixed: set[int] = set()  # slots that something else is written to
    found: set[int] = set()
    for step in program.steps if chosen.plan.native else ():
        if not isinstance(step, Step):
            continue
        position = {"pack": 0, "gemm": 1}.get(step.kernel.role)
        packed = None if position is None else step.views[position]
        if packed is not None:
            found |= made.get(packed.slot, set())
        reads, targets = {place.slot for place in step.reads}, {place.slot for place in step.written}
        if reads <= made.keys() and not targets & mixed:
            for target in targets:
                made.setdefault(target, set()).update(*(made[read] for read in reads))
        else:
            mixed |= targets
            for target in targets:
                made.pop(target, None)
    return len(found)


def _other_lines(chosen: Specialisation, by: str) -> list[str]:
    """The steps of another backend, as far as it tells them."""
    from morpho.runtime.plans import on_device

    found = on_device.executable(chosen.plan.graph, chosen.plan.device)
    return ["steps", f"  each operation by {by}", *[f"  {line}" for line in getattr(found, "said", ())]]


def explain_text(compiled: CompiledFunction, bounds: bool = False) -> str:
    """A page in words, with lower bounds of kernels where asked for."""
    stats = statistics(compiled)
    if compiled.current is None:
        return f"{compiled.__name__} has not been called yet: nothing is compiled."
    steps = f"{_count(stats['kernels'], 'kernel')}, {_count(stats['host_steps'], 'host step')}"
    lines = [f"{compiled.__name__}{compiled.signature}: {steps}, {stats['isa']}, {_count(stats['threads'], 'thread')}"]
    lines.append("passes")
    for name, row in stats["passes"].items():
        lines.append(f"  {name:10s} {row['before']:4.0f} -> {row['after']:4.0f} nodes  {row['ms']:7.2f} ms")
    for turns in compiled.current.plan.report.rolled:
        lines.append(f"  a Python loop became one of the program: {turns} turns of the same operations")
    if stats["rules"]:
        applied = ", ".join(f"{name} x{count}" for name, count in sorted(stats["rules"].items()))
        lines.append(f"  rules applied: {applied}")
    if stats["program"]:
        lines.append("program")
    for name, row in stats["program"].items():
        lines.append(f"  {name:11s} {row['before']:3.0f} -> {row['after']:4.0f} steps  {row['ms']:7.2f} ms")
    by = "NumPy" if stats["isa"] == "reference" else f"the backend {stats['isa']}"
    lines += _step_lines(compiled) if compiled.current.plan.native else _other_lines(compiled.current, by)
    if bounds:
        from morpho.tensor.jit.bounds import bound_lines

        lines += bound_lines(compiled)
    if stats["prepared_steps"]:
        lines.append(f"  once, on constants: {_count(stats['prepared_steps'], 'step')}, "
                     f"{format_bytes(stats['prepared_bytes'])} kept")
    packed = _packed_anew(compiled.current)
    if packed:
        lines.append(f"  packed at every call: {_count(packed, 'captured tensor')} borrowed from NumPy; "
                     "mo.asarray(weight, copy=True), outside the function, is packed once")
    if compiled.current.notes:
        lines.append("choices\n  " + "\n  ".join(compiled.current.notes))
    lines.append(f"cost\n  {stats['flops']:.3g} operations, {format_bytes(stats['bytes_moved'])} through memory")
    lines += _way_lines(compiled.current.plan.program)
    lines += _product_lines(compiled.current.plan.program)
    lines.append("memory")
    lines.append(f"  intermediates kept in registers: {format_bytes(stats['bytes_avoided'])}; arena "
                 f"{format_bytes(stats['arena_bytes'])} (at least {format_bytes(stats['liveness_bytes'])}), "
                 f"written in place {format_bytes(stats['reused_bytes'])}; copies for layout {stats['copies']}")
    lines += _peak_lines(stats)
    parts = ", ".join(f"{name} {ms:.1f} ms" for name, ms in stats["compile_ms"].items())
    cache = stats["cache"]
    whole = "the whole plan from disk; " if cache["plan"] else ""
    lines.append(f"compile\n  {parts}; {whole}code from memory {cache['memory']}, disk {cache['disk']}, "
                 f"LLVM {cache['compiled']}")
    lines.append(f"calls\n  {stats['calls']} ({stats['native_calls']} through the native entry), "
                 f"{stats['recompiles']} recompiles, {stats['fallbacks']} fallbacks")
    return "\n".join(lines)
