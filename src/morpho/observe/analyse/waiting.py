"""Rules about everything but kernels: Python, compilations, host steps, copies, data, the network."""

from __future__ import annotations

import linecache
from collections import Counter
from os.path import basename

from morpho.base.units import format_seconds
from morpho.observe.analyse.facts import Facts, function_of, percent, place
from morpho.observe.analyse.verdict import Verdict
from morpho.observe.record.sampler import MORPHO
from morpho.runtime.trace.spans import FROM_ARRAY

LONG_S = 100e-6  # of Python for a call: more than making one takes
MOST_OF_IT = 0.5
COUNTERPARTS = {"numpy": "NumPy", "scipy": "SciPy", "torch": "PyTorch", "pandas": "pandas"}  # of what arrays need


def python(facts: Facts) -> Verdict | None:
    """Python between kernels, and kernels so short that starting them is most of it."""
    seconds = facts.seconds("python", "launch") + facts.kernel_s("python")
    calls = facts.count("native_calls") + facts.count("slow_calls")
    eager, syncs = facts.count("realisations"), facts.count("syncs")
    if seconds <= 0:
        return None
    if not (facts.trace.ops or calls or eager or facts.compile_spans):  # waiting for ranks or data is no work of ours
        return _nothing_of_ours(facts, seconds)
    lines = Counter(span.detail.get("line", "") for span in facts.trace.spans if span.kind == "realise")
    line = lines.most_common(1)[0][0] if lines else ""
    if eager > calls:
        what = f"{eager:.0f} evaluation{'' if eager == 1 else 's'} of lazy tensors"
        advice = "the loop's body as one compiled function (mo.compile)"
        if syncs > 0.5 * eager:
            advice = "results kept as tensors and read once at the end, in one compiled function (mo.compile),"
    elif calls:
        what = f"{calls:.0f} calls of compiled functions, {format_seconds(seconds / calls)} around each"
        advice = "the loop itself in the compiled function (mo.fori_loop, mo.scan), or a batch of these calls as one"
    else:
        what, advice = "no kernel of Morpho's", "tensor operations instead of Python and NumPy ones"
    if (long_line := _long_line(facts, seconds, calls + eager)) is not None:
        line, at, advice = long_line
        what += f", most of it {at}"
    finding = f"{percent(seconds / facts.wall_s)} of the time is Python around kernels: {what}"
    return Verdict("python", seconds, facts.wall_s, finding, advice, 0.8 * seconds, line)


def _long_line(facts: Facts, seconds: float, calls: float) -> tuple[str, str, str] | None:
    """The line that most of the Python between calls is in, where it is more than making them: line, words, advice."""
    if not facts.trace.lines or seconds < LONG_S * calls:
        return None
    place, sampled_s = max(facts.trace.lines.items(), key=lambda pair: pair[1])
    if sampled_s - facts.seconds("kernels") < MOST_OF_IT * seconds:  # a native call has no frame of its own
        return None
    line, _, library = place.partition(" ")
    where = f"in {basename(line)}"
    if library in COUNTERPARTS:
        return line, f"{COUNTERPARTS[library]} {where}", \
            "the same with Morpho's operations, inside the compiled function,"
    if not library and _converts(line):  # done in C, whose time the line that asks for it has
        return line, f"the conversion of arrays {where}", \
            "the array converted once, outside of the loop, or made in the dtype that it is used in,"
    return line, f"{library or 'Python'} {where}", \
        "less of it there, or beside the kernels: a DataLoader with num_workers, mo.tasks,"


def _converts(line: str) -> bool:
    """Whether the source of a line, where it can be read, asks for a conversion."""
    path, _, number = line.rpartition(":")
    source = linecache.getline(path, int(number)) if number.isdigit() else ""
    return ".astype(" in source or "asarray(" in source


def _nothing_of_ours(facts: Facts, seconds: float) -> Verdict:
    """A script that asks Morpho for nothing, or for single elements: where its time went is all that can be said."""
    frames: Counter[str] = Counter()
    for stack, sampled_s in facts.trace.stacks.items():
        frames[stack.rpartition(";")[2]] += sampled_s  # type: ignore[assignment]
    hottest = f", most of it in {frames.most_common(1)[0][0]}" if frames else ""
    finding = f"no kernel of Morpho ran: {format_seconds(seconds)} are Python and other libraries{hottest}"
    advice = "there is no gain to promise: use tensor operations there, or a profiler of Python"
    return Verdict("python", seconds, facts.wall_s, finding, advice, 0.0)


def recompiles(facts: Facts) -> Verdict | None:
    """The same function compiled again and again."""
    seconds = facts.recompile_s
    if seconds <= 0:
        return None
    compilations: Counter[tuple[str, str]] = Counter()
    for (name, line, _), times in facts.compilations.items():
        compilations[name, line] += 0 if line.startswith(MORPHO) else times
    (name, line), times = compilations.most_common(1)[0]
    traced = [span for span in facts.trace.spans if span.kind == "trace" and function_of(span)[:2] == (name, line)]
    if name and len(traced) > 1 and all(span.detail.get("recompiles") == 0 for span in traced):  # each another object
        what = f"{name} was made and compiled {times} times"
        advice = "mo.compile called once, outside the loop, and what changes as an argument of the function,"
    elif name:
        what = f"{name} was compiled {times} times"
        advice = "dynamic={...: mo.Dim(...)} for the size that changes, or sizes rounded up to a few,"
    else:
        what = f"uncompiled, new program each time: {times} programs"
        if (unrecorded := facts.count("unrecorded")) > 0:
            what += f", and {unrecorded:.0f} operations that are not recorded"
        advice = "the same operations and shapes at every turn, or a compiled function with what changes as tensors,"
    finding = f"{percent(seconds / facts.wall_s)} of the time is compiling again: {what}"
    return Verdict("recompiles", seconds, facts.wall_s, finding, advice, 0.95 * seconds, line)


def cold(facts: Facts) -> Verdict | None:
    """First compilations."""
    seconds = facts.seconds("compile", "trace") - facts.recompile_s
    if seconds <= 0:
        return None
    made = facts.count("code_compiled")
    count, unit = (made, "kernel") if made else (sum(facts.compilations.values()), "program")
    what = f"{count:.0f} {unit}{'' if count == 1 else 's'}{' by LLVM' if made else ''}"
    advice = "a warm-up call before what is measured"
    if made or not (facts.count("code_disk_hits") or facts.count("code_plan_hits")):
        advice += ", and a cache folder that is kept (MORPHO_CACHE_DIR): the next run finds the code there, which"
        how = "compiles for the first time"
    else:
        advice += " (imports and plans are made once in a process)"
        how = "prepares first calls, whose code is in the cache"
    finding = f"{percent(seconds / facts.wall_s)} of the time {how}: {what}"
    return Verdict("cold", seconds, facts.wall_s, finding, advice, 0.8 * seconds)


def host(facts: Facts) -> Verdict | None:
    """Steps in NumPy."""
    seconds, rows = facts.seconds("host"), facts.ops("host")
    if not rows or seconds <= 0:
        return None
    top = rows[0]
    finding = (f"{percent(seconds / facts.wall_s)} of the time runs in NumPy between native steps, most of it "
               f"{place(top)}, {top.calls} times")
    advice = "an operation with native code in its place (f.explain() names host steps; whole=True refuses them)"
    return Verdict("host", seconds, facts.wall_s, finding, advice, 0.7 * seconds, top.line)


def transfers(facts: Facts) -> Verdict | None:
    """Copies between host and device, and of NumPy's arrays."""
    seconds, rows = facts.seconds("transfer", *(["device"] if facts.is_fetched else [])), facts.spans("transfer")
    if not rows or seconds <= 0:
        return None
    moved = sum(span.detail.get("bytes", 0) for span in rows)
    arrays = [span for span in rows if span.name == FROM_ARRAY]
    if sum(span.seconds for span in arrays) > 0.5 * sum(span.seconds for span in rows):
        line = Counter(span.detail.get("line", "") for span in arrays).most_common(1)[0][0]
        at = f" (most often in {basename(line)})" if line else ""
        finding = (f"{percent(seconds / facts.wall_s)} of the time copies {1e-6 * moved:.1f} MB of NumPy arrays in "
                   f"{len(rows)} calls of mo.asarray{at}")
        advice = ("the array itself as an argument of the compiled function, or mo.asarray(array, copy=False), neither "
                  "of which copies,")
        if sum(span.seconds for span in arrays if span.detail.get("converts")) > 0.5 * sum(s.seconds for s in arrays):
            advice = "the array converted once, outside of the loop, or made in the dtype that it is used in,"
        return Verdict("transfers", seconds, facts.wall_s, finding, advice, 0.9 * seconds, line)
    name = Counter(span.name for span in rows).most_common(1)[0][0]
    finding = (f"{percent(seconds / facts.wall_s)} of the time copies {1e-6 * moved:.1f} MB between host and device in "
               f"{len(rows)} copies, mostly {name}")
    return Verdict("transfers", seconds, facts.wall_s, finding,
                   "leaving values on the device between steps, and few large copies instead of many small ones,",
                   0.8 * seconds)


def data(facts: Facts) -> Verdict | None:
    """Waiting for batches."""
    seconds, rows = facts.seconds("data"), facts.spans("data")
    if not rows or seconds <= 0:
        return None
    workers = max((span.detail.get("workers", 0) for span in rows), default=0)
    finding = f"{percent(seconds / facts.wall_s)} of the time waits for data: {len(rows)} batches"
    advice = (f"num_workers={max(2, 2 * workers)} in the DataLoader, or a dataset that does less for an item"
              if workers else "num_workers=2 in the DataLoader, which makes batches while others are computed with,")
    return Verdict("data", seconds, facts.wall_s, finding, advice, 0.7 * seconds)


def network(facts: Facts) -> Verdict | None:
    """Waiting for other ranks."""
    seconds = facts.seconds("network")
    if seconds <= 0:
        return None
    rows, spans = facts.ops("collective"), facts.spans("network")
    named = [span for span in spans if span.name != "wait"] or spans  # a wait is a part of something
    name = rows[0].name if rows else Counter(span.name for span in named).most_common(1)[0][0] if named else ""
    count = sum(row.calls for row in rows) or len(named)
    finding = f"{percent(seconds / facts.wall_s)} of the time waits for other ranks: {count} x {name}"
    advice = ("fewer and larger collectives that go on while others compute (mo.cluster.DistributedDataParallel, "
              "accumulated gradients), or bfloat16 on the wire,")
    if name == "barrier":
        advice = "fewer barriers (collectives wait for each other by themselves), or equal work for ranks,"
    return Verdict("network", seconds, facts.wall_s, finding, advice, 0.5 * seconds, rows[0].line if rows else "")
