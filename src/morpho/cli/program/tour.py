"""`morpho tour`: follow one expression from the call to the machine code.

    morpho tour                                        # the prepared example
    morpho tour 'mo.softmax(x / 8, axis=-1)'           # an expression of your own in x, y, mo and np

`stages` makes the tour as data, `show` prints it. `x` and `y` are float32 arrays of shape (4096, 1024).
"""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable, Iterator
from types import CodeType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from morpho.backends.kernels.generators import generate
from morpho.base.errors import ArgumentError, MorphoError, fail
from morpho.base.units import format_bytes

EXAMPLE = "mo.gelu(x * 2 + 1).sum(axis=-1)"
SHAPE = (4096, 1024)
MOST_LINES = 40  # of a graph
HEAD, TAIL = 12, 6  # lines of generated code at the start and the end of its hot block
TIMED_S = 0.3

# What each pass is for, in a line; a pass that is not listed is shown without one.
MEANINGS = {
    "inline": "fused operations become plain ones",
    "fold": "arithmetic on constants is done now",
    "simplify": "rules that keep every bit of the result",
    "cse": "equal subexpressions are one node; this gives a+b and b+a one order",
    "views": "views move down to the inputs, where they cost nothing",
    "tidy": "simplify once more, after the views have moved",
    "fuse": "chains and reductions become groups, one kernel each",
    "epilogue": "a group that follows a product becomes part of it",
    "prologue": "a group that only a product reads may be computed by it",
    "schedule": "the order of the kernels, so that little memory is alive at once",
    "single": "without fusion every operation is a kernel of its own",
}


class Stage(NamedTuple):
    """One stop of the tour: a title, what happens here, and what it looks like."""

    title: str
    note: str
    text: str
    language: str = ""


class Expression(NamedTuple):
    """The user's line, and the function of the inputs it uses."""

    source: str
    names: tuple[str, ...]
    code: CodeType

    def function(self, library: Any) -> Callable[..., Any]:
        """The expression as a function of its inputs, with `mo` meaning this library."""
        return lambda *arrays: eval(self.code, {"mo": library, "np": np, **dict(zip(self.names, arrays))})


def parse(source: str) -> Expression:
    """The expression, or an error in one sentence."""
    try:
        tree = ast.parse(source.strip(), "<your expression>", "eval")
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise _wrong(f"{source!r} is not a Python expression: {reason}") from None
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    inputs = tuple(name for name in ("x", "y") if name in names)
    if not inputs:
        raise _wrong(f"{source!r} uses neither x nor y")
    return Expression(source.strip(), inputs, compile(tree, "<your expression>", "eval"))


def _wrong(message: str) -> MorphoError:
    return fail(ArgumentError, "tour", message, f"write an expression in x, y, mo and np, such as {EXAMPLE!r}", line="")


# --------------------------------------------------------------------------------------------------------- the stages


def stages(source: str | None = None) -> Iterator[Stage]:
    """Every stop, in order. The expression is compiled and run on the way."""
    import morpho as mo

    expression = parse(source or EXAMPLE)
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal(SHAPE, dtype=np.float32) for _ in expression.names]
    tensors = [mo.asarray(array) for array in arrays]
    compiled = _compiled(expression)
    yield Stage("the call", "The names are Morpho tensors that borrow NumPy's memory; nothing is copied.",
                "\n".join([*(f"{name} : float32{list(SHAPE)}" for name in expression.names), "", expression.source]),
                "python")
    started = time.perf_counter()
    result = _call(compiled, tensors, expression)
    first_ms = 1e3 * (time.perf_counter() - started)
    plan = compiled.current.plan
    yield from _graph_stages(plan)
    yield from _kernel_stages(plan.lowered)
    yield Stage("the memory plan", "Every temporary has its place in one arena, fixed before the first call.",
                memory_text(plan.program))
    yield Stage("the result", "One native call ran everything above.", repr(result))
    yield Stage("time", "A look, not a measurement: `morpho bench core` measures.",
                _time_text(expression, compiled, arrays, tensors, result, first_ms))
    yield Stage("explain()", "The same report for any compiled function: f.explain(), or f.stats as a dict.",
                compiled.explain())


def _compiled(expression: Expression) -> Any:
    import morpho as mo

    call = expression.function(mo)
    arguments = ", ".join(expression.names)
    functions: dict[str, Any] = {}
    exec(f"def expression({arguments}): return call({arguments})", {"call": call}, functions)
    return mo.compile(functions["expression"])


def _call(compiled: Any, tensors: list[Any], expression: Expression) -> Any:
    try:
        return compiled(*tensors)
    except MorphoError:
        raise
    except Exception as error:
        raise _wrong(f"{expression.source!r} raised {type(error).__name__}: {error}") from error


def _graph_stages(plan: Any) -> Iterator[Stage]:
    texts, report = plan.texts(), plan.report
    before = texts.pop("traced")
    yield Stage("the traced graph", "Shapes and dtypes were checked on your line; each operation is an interned node.",
                _shortened(before))
    idle: list[str] = []
    for name, text in texts.items():
        row, meaning = report.passes[name], MEANINGS.get(name, "")
        if text == before:
            idle.append(f"{name:10}{meaning}")
            continue
        if idle:
            yield Stage("passes that find nothing to do here", "Each is switched off by MORPHO_PASSES_OFF.",
                        "\n".join(idle))
            idle = []
        counts = f"{row['before']:.0f} -> {row['after']:.0f} nodes, {row['ms']:.2f} ms"
        yield Stage(f"after the pass `{name}`", f"{meaning} ({counts})".strip(), _shortened(text))
        before = text
    if idle:
        yield Stage("passes that find nothing to do here", "Each is switched off by MORPHO_PASSES_OFF.",
                    "\n".join(idle))


def _kernel_stages(program: Any) -> Iterator[Stage]:
    from morpho.backends.code.compiler import llvm
    from morpho.base.target import current_isa
    from morpho.program.program import Step

    kernels = [step for step in program.steps if isinstance(step, Step)]
    yield Stage("the steps", "Kernels run one after the other in one native function; host steps run in NumPy between.",
                steps_text(program))
    if not kernels:
        return
    step = max(kernels, key=lambda s: s.kernel.flops)
    isa = current_isa()
    yield Stage("the loop kernel", f"The kernel of `{step.label}` as data; sizes and strides are arguments of it.",
                kernel_text(step.kernel))
    text = generate(step.kernel, isa, "kernel")
    yield Stage("LLVM", f"Written by Morpho as text for {isa.name}: {_lines(text)}; this is the hot block.",
                excerpt(hot_block(text)), "llvm")
    machine_code = llvm.assembly(text, isa)
    yield Stage("machine code", f"LLVM's work, inside this process: {_lines(machine_code)}; again the hot block.",
                excerpt(hot_block(machine_code)), "gas")


# -------------------------------------------------------------------------------------------------------- their texts


def steps_text(program: Any) -> str:
    """One line a step."""
    lines = []
    for number, step in enumerate(program.steps):
        size = f"{step.rows} rows x {step.columns} columns" if hasattr(step, "kernel") else "on the host, in NumPy"
        lines.append(f"{number}: {step.label}   {size}")
    return "\n".join(lines) or "no steps: the result is a view of the input"


def kernel_text(kernel: Any) -> str:
    """A loop kernel in words: accesses, instructions, and the walks over a row; other kernels as they are."""
    if not hasattr(kernel, "instructions"):
        return repr(kernel)
    lines = [f"loops: {kernel.outer_rank} over rows, {kernel.inner_rank} over columns"
             + (", lanes along the rows" if kernel.transposed else "")
             + (f", part {kernel.part!r} of two" if kernel.part else "")]
    for number, access in enumerate(kernel.accesses):
        lines.append(f"access {number}: {access.kind} {access.dtype}, {access.pattern} step along the columns")
    for number, instruction in enumerate(kernel.instructions):
        arguments = ", ".join(f"v{i}" for i in instruction.inputs)
        extra = "" if instruction.extra is None else _extra(instruction)
        each = "per column" if instruction.full else "per row"
        lines.append(f"v{number} = {instruction.name}({arguments}{extra})".ljust(34) + f" {instruction.dtype} {each}")
    for store in kernel.stores:
        lines.append(f"store v{store.instruction} through access {store.access}")
    for number, walk in enumerate(kernel.passes):
        done = [f"v{i} = {kernel.instructions[i].name}" for i in walk.reductions]
        done += [f"store v{store.instruction}" for store in walk.stores]
        lines.append(f"walk {number + 1} over a row: " + ", ".join(done))
    return "\n".join(lines)


def _extra(instruction: Any) -> str:
    if instruction.name == "constant":
        text = instruction.extra
        return f"{float.fromhex(text):g}" if instruction.dtype.is_float else text
    return f"{', ' if instruction.inputs else ''}access {instruction.extra}"


def memory_text(program: Any) -> str:
    """Slots: where inputs, results and temporaries lie."""
    lines = []
    for number, slot in enumerate(program.slots):
        place = f" at arena + {slot.offset}" if slot.kind == "temporary" else ""
        lines.append(f"slot {number}: {slot.kind} {slot.dtype}, {format_bytes(slot.nbytes)}{place}")
    lines.append(f"arena {format_bytes(program.arena_bytes)}; no plan could do with less than "
                 f"{format_bytes(program.liveness_bytes)}; written in place {format_bytes(program.reused_bytes)}")
    return "\n".join(lines)


def hot_block(text: str) -> list[str]:
    """The longest run of instructions after a label: the unrolled body of the inner loop."""
    blocks: list[list[str]] = [[]]
    for line in text.splitlines():
        label = re.match(r"[.\w]+:", line)
        if label:
            blocks.append([label[0]])
        elif line.strip() and not line.lstrip().startswith((".", ";", "//", "#")):
            blocks[-1].append(line.rstrip().expandtabs(8))
    return max(blocks, key=len)


def excerpt(lines: list[str]) -> str:
    """The first and the last lines, with the number of those left out."""
    if len(lines) <= HEAD + TAIL + 1:
        return "\n".join(lines)
    return "\n".join([*lines[:HEAD], f"        ... {len(lines) - HEAD - TAIL} lines more ...", *lines[-TAIL:]])


def _lines(text: str) -> str:
    return f"{len(text.splitlines())} lines"


def _shortened(text: str) -> str:
    lines = text.splitlines()
    if len(lines) <= MOST_LINES:
        return text
    return "\n".join([*lines[:MOST_LINES], f"... {len(lines) - MOST_LINES} lines more ..."])


# --------------------------------------------------------------------------------------------------- result and time


def _time_text(expression: Expression, compiled: Any, arrays: list[Any], tensors: list[Any], result: Any,
               first_ms: float) -> str:
    import morpho as mo

    lines = [f"first call, compiling what no cache had   {first_ms:9.2f} ms"]
    out: dict[str, Any] = {"out": mo.empty(result.shape, dtype=result.dtype)} if isinstance(result, mo.Tensor) else {}
    _best_ms(lambda: compiled(*tensors, **out), 1 / 4)
    morpho_ms = _best_ms(lambda: compiled(*tensors, **out))
    lines.append(f"later calls{', with out=' if out else ''}".ljust(42) + f"{morpho_ms:9.2f} ms")
    plain = expression.function(_numpy_library())
    try:
        expected = plain(*arrays)
        numpy_ms = _best_ms(lambda: plain(*arrays))
    except Exception as error:
        lines.append(f"NumPy cannot run this line as it stands ({type(error).__name__}: {error})")
        return "\n".join(lines)
    lines.append(f"NumPy, one operation after the other      {numpy_ms:9.2f} ms  ({numpy_ms / morpho_ms:.1f}x)")
    if "gelu" in expression.source:
        lines.append("NumPy has no erf, so its gelu here is the tanh formula: it does less work, less precisely.")
    elif isinstance(result, mo.Tensor) and np.shape(expected) == result.shape and result.dtype.is_float:
        apart = np.max(np.abs(np.asarray(expected, np.float64) - result.numpy()), initial=0.0)
        lines.append(f"largest difference between the two: {apart:.3g}")
    return "\n".join(lines)


def _best_ms(call: Callable[[], Any], share: float = 1.0) -> float:
    """The shortest of the calls made in a short while, or a share of it, at least three."""
    best, ended, count = float("inf"), time.perf_counter() + share * TIMED_S, 0
    while count < 3 or time.perf_counter() < ended:
        started = time.perf_counter()
        call()
        best, count = min(best, time.perf_counter() - started), count + 1
    return 1e3 * best


def _numpy_library() -> SimpleNamespace:
    """NumPy under the names of Morpho, with what it lacks written out in its own operations."""

    def softmax(x: Any, axis: int = -1) -> Any:
        powers = np.exp(x - x.max(axis=axis, keepdims=True))
        return powers / powers.sum(axis=axis, keepdims=True)

    def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        top = x.max(axis=axis, keepdims=True)
        total = top + np.log(np.exp(x - top).sum(axis=axis, keepdims=True))
        return total if keepdims else np.squeeze(total, axis=axis)

    def layer_norm(x: Any, weight: Any = 1, bias: Any = 0, eps: float = 1e-5, axis: int = -1) -> Any:
        centred = x - x.mean(axis=axis, keepdims=True)
        return centred / np.sqrt((centred * centred).mean(axis=axis, keepdims=True) + eps) * weight + bias

    def rms_norm(x: Any, weight: Any = 1, eps: float = 1e-5, axis: int = -1) -> Any:
        return x / np.sqrt((x * x).mean(axis=axis, keepdims=True) + eps) * weight

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + np.exp(-x))

    def gelu(x: Any, approximate: str = "tanh") -> Any:
        return x * 0.5 * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * (x * x * x))))

    own = {"softmax": softmax, "logsumexp": logsumexp, "layer_norm": layer_norm, "rms_norm": rms_norm, "gelu": gelu,
           "sigmoid": sigmoid, "log_softmax": lambda x, axis=-1: x - logsumexp(x, axis, True),
           "silu": lambda x: x * sigmoid(x), "relu": lambda x: np.maximum(x, 0),
           "softplus": lambda x: np.logaddexp(x, 0), "asarray": np.asarray}
    return SimpleNamespace(**{**{name: getattr(np, name) for name in dir(np) if not name.startswith("_")}, **own})


# ------------------------------------------------------------------------------------------------------------ showing


def show(source: str | None = None) -> None:
    """Print the tour."""
    from rich.console import Console

    _show_with(Console(highlight=False), source)


def _show_with(console: Any, source: str | None) -> None:
    from rich.syntax import Syntax
    from rich.text import Text

    for number, stage in enumerate(stages(source), start=1):
        console.print()
        console.rule(Text(f"{number}. {stage.title}", style="bold cyan"), align="left", style="cyan")
        console.print(Text(stage.note, style="italic"))
        console.print()
        shown = Syntax("", stage.language).highlight(stage.text) if stage.language else Text(stage.text)
        shown.rstrip()
        console.print(shown, soft_wrap=True)
    console.print()
    console.print(Text("Another line: morpho tour 'mo.softmax(x / 8, axis=-1)'. As a page: docs/tour.md."))

