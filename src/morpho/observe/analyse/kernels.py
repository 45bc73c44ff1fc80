"""Rules about kernels: arithmetic, memory, threads."""

from __future__ import annotations

from morpho.observe.analyse.facts import FEW_CALLS, LONG_S, UNEVEN, Facts, idle_by_parts, percent, place
from morpho.observe.analyse.verdict import Verdict
from morpho.observe.trace.model import OpRow

NARROWER = {"float64": ("float32", 0.5), "float32": ("bfloat16", 0.5), "complex128": ("complex64", 0.5),
            "int64": ("int32", 0.5)}
LARGE_FLOPS = 1e9  # a product of 800 squared: large enough for every core
WIDE_WINDOW, FEW_CHANNELS = 49, 4  # 7 x 7 places; fewer channels leave most of a vector empty
WELL = 0.5  # of the limit: a kernel that reaches this is as good as it gets; only less work helps


def _weight(facts: Facts, row: OpRow) -> float:
    """A kernel's time on the calling thread's clock."""
    total = sum(other.seconds for other in facts.trace.ops if other.kind == "kernel")
    return row.seconds * facts.seconds("kernels") / total if total else 0.0


def _is_wide_window(row: OpRow) -> bool:
    """Whether a convolution has many places in its window and next to no channels: its sizes are results, places and
    channels."""
    sizes = row.sizes.split(" x ")
    return row.name.startswith("conv") and len(sizes) == 3 and sizes[1].isdigit() and sizes[2].isdigit() \
        and int(sizes[1]) >= WIDE_WINDOW and int(sizes[2]) < FEW_CHANNELS


def compute(facts: Facts) -> Verdict | None:
    """Kernels bound by arithmetic."""
    rows = facts.bound.get("compute")
    device_s = 0.0 if facts.is_fetched else facts.seconds("device")
    if device_s > facts.kernel_s("compute"):
        return Verdict("compute", device_s, facts.wall_s, f"{percent(device_s / facts.wall_s)} of the time waits for a "
                       "device that computes", "narrower dtypes or fewer operations there", 0.3 * device_s)
    if not rows:
        return None
    top, seconds = rows[0], facts.kernel_s("compute")
    top_s = _weight(facts, top)
    narrower = NARROWER.get(top.dtype)
    amx = "amx" in str(facts.trace.machine.get("isa", ""))
    if top.dtype == "float64":
        advice, gain = "computing in float32", 0.5
    elif _is_wide_window(top):
        advice, gain = "the window as a row and a column in turn, where it is their product, or mo.fft,", 0.6
    elif top.product and top.dtype == "float32" and amx:
        advice, gain = "bfloat16 operands (`with mo.amp.autocast():`), which the matrix units take", 0.6
    elif top.product and narrower and top.share >= WELL:
        advice, gain = f"fewer operations: a smaller or {narrower[0]} product, or one with a low-rank factor", 0.3
    elif top.product and top.flops / max(top.calls, 1) >= LARGE_FLOPS:  # its size is not the cause
        advice, gain = "an idle machine (other processes may hold its cores), or fewer operations,", 0.3
    elif top.product:
        advice, gain = "a larger product: several of these as one batch", min(0.5, 1 - top.share)
    else:
        advice, gain = "computing it once and keeping the value, or a cheaper function", 0.4
    finding = (f"{percent(seconds / facts.wall_s)} of the time is arithmetic, most of it {place(top)} at "
               f"{percent(top.share)} of the machine's peak")
    cores, threads = int(facts.trace.machine.get("cores", 0)), int(facts.trace.machine.get("threads", 0))
    if 0 < threads < cores and top.seconds / max(top.calls, 1) >= LONG_S:  # a setting, not the program, binds it
        finding += f", on {threads} of {cores} cores"
        advice = f"the other cores: the setting `threads` is {threads},"
        gain = 1 - threads / cores
    return Verdict("compute", seconds, facts.wall_s, finding, advice, gain * top_s, top.line)


def _in_turn(rows: list[OpRow]) -> list[OpRow]:
    """The longest kernel, and those of other compiled functions that are called as often: steps of one loop, which hand
    each other arrays through memory. One for each function, by its line where it has no name; functions that compute
    alike are one, called several times as often. A product waits for its operand, which stays where it is."""
    top = rows[0]
    if top.calls < FEW_CALLS or top.product:
        return []
    others = {row.line if row.program == "<lambda>" else row.program: row for row in reversed(rows)
              if row.calls and max(row.calls, top.calls) % min(row.calls, top.calls) == 0 and not row.product}
    if "eager" in others:
        return []
    waiting, chain = list(others.values()), [top]
    for row in chain:
        nearest = [other for other in waiting if _may_hand(row, other)]
        waiting = [other for other in waiting if other not in nearest]
        chain += [other for other in nearest if other is not top]
    return chain


def _may_hand(one: OpRow, other: OpRow) -> bool:
    """Whether a result of one function may be an argument of the other, by dtypes and sizes where they are known."""
    if not (one.takes or one.gives) or not (other.takes or other.gives):
        return True
    return any({*giver.gives.split(", ")} & {*taker.takes.split(", ")} - {""}
               for giver, taker in ((one, other), (other, one)))


def memory(facts: Facts) -> Verdict | None:
    """Kernels bound by memory."""
    rows = facts.bound.get("memory")
    if not rows:
        return None
    top, seconds = rows[0], facts.kernel_s("memory")
    top_s = _weight(facts, top)
    eager = [row for row in rows if row.program == "eager"]
    eager_s = sum(_weight(facts, row) for row in eager)
    in_turn = _in_turn(rows)
    turn_s = sum(_weight(facts, row) for row in in_turn)
    narrower = NARROWER.get(top.dtype)
    if top.name.startswith("pack") and len(rows) > 1:
        advice, gain_s = "weights that Morpho owns (mo.asarray(w, copy=True), outside the function), packed once", top_s
    elif top.name in ("cast", "astype") and top.program != "eager":
        advice, gain_s = "the value kept in the dtype it is used in, cast once outside the loop,", top_s
    elif top.apart:
        advice = ("what is read side by side (a transposed copy, made once), or all columns in one pass, as memory "
                  "moves whole cache lines,")
        gain_s = 0.6 * top_s
    elif top.gathers:
        advice, gain_s = "sorted or repeated indices taken once (mo.unique), or slices instead of a gather", 0.4 * top_s
    elif len(eager) >= 2 and eager_s > 0.6 * seconds:
        advice = "one function around these operations (mo.compile), which keeps intermediates in registers,"
        gain_s = eager_s * (1 - 1 / len(eager))
    elif len(in_turn) >= 2 and turn_s > 0.6 * seconds:
        advice = f"one compiled function around these {len(in_turn)}, if results of one are arguments of another,"
        gain_s = 0.5 * turn_s * (1 - 1 / len(in_turn))
    elif top.product:
        advice, gain_s = "several vectors at once (as columns of a matrix), or narrower weights,", 0.5 * top_s
    elif narrower is not None:
        advice, gain_s = f"{narrower[0]} values", narrower[1] * top_s
    else:
        advice, gain_s = "reading the data once: several results of one pass in the same function", 0.3 * top_s
    rate = top.bytes / top.seconds if top.seconds else 0.0
    finding = (f"{percent(seconds / facts.wall_s)} of the time waits for memory, most of it {place(top)} at "
               f"{percent(top.share)} of memory bandwidth ({1e-9 * rate:.1f} GB/s)")
    if top.apart:
        finding += ", which it reads across rows"
    return Verdict("memory", seconds, facts.wall_s, finding, advice, gain_s, top.line)


def imbalance(facts: Facts) -> Verdict | None:
    """Kernels whose threads wait."""
    rows = facts.bound.get("imbalance")
    if not rows:
        return None
    top, seconds = rows[0], facts.kernel_s("imbalance")
    idle = 1 - min(1.0, top.busy_s / (top.seconds * top.threads))
    if top.shared_s < 0.5 * top.seconds:
        how = f"runs on one of {top.threads} threads"
        advice = ("several of these beside each other, xs of shape (steps, batch, ...)," if top.name.startswith("scan")
                  else "several of these as one batch, whose rows are divided,")
    elif idle_by_parts(top) > UNEVEN:
        how = f"has {top.parts} rows for {top.threads} threads"
        advice = "more rows than threads (each cut into blocks, whose results are put together),"
    else:
        how = f"keeps {top.threads_busy:.1f} of {top.threads} threads at work"
        advice = "rows of equal cost (sorted by length, or cut into equal parts), and more of them than threads,"
    finding = f"{percent(seconds / facts.wall_s)} of the time threads wait: {place(top)} {how}"
    return Verdict("imbalance", seconds, facts.wall_s, finding, advice, idle * _weight(facts, top), top.line)
