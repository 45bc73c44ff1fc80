"""What a program must satisfy, as functions that raise `Mismatch`; shared by the tests and `benchmarks/fuzz.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import complex_oracle
import numpy as np
import oracle
from programs import Program, as_python, elements, minimise, random_program, substitute
from running import Native, difference, equal_bits, fixed, leaf_of, parameter, readable, stored

import morpho as mo
from morpho.backends.code.compiler.code import current_isa
from morpho.backends.reference import reference
from morpho.base.dtypes import bfloat16, float64
from morpho.ir.graph import Graph
from morpho.ir.node import Node, toposort
from morpho.ops import batching
from morpho.passes import pipeline
from morpho.passes.canonical import inline
from morpho.passes.complex.split import split_complex
from morpho.passes.fusion.candidates import is_native
from morpho.runtime.memory.buffer import borrow
from morpho.runtime.plans import evaluate as evaluation
from morpho.tensor.core import Tensor

Array = Any
PASSES_OFF = ("", "simplify", "cse", "views,tidy", "stencils", "fold", "inline", "fuse", "epilogue", "prologue",
              "memory")


class Mismatch(AssertionError):
    """Two ways of computing a program disagree."""


def fails_with(kind: type[Exception], check: Callable[[], object]) -> bool:
    """Whether a smaller program fails in the same way; one that fails in another way does not."""
    try:
        check()
    except Exception as error:
        return isinstance(error, kind)
    return False


def same(found: Sequence[Array], wanted: Sequence[Array], outputs: Sequence[Node], how: str) -> None:
    for number, (a, b, node) in enumerate(zip(found, wanted, outputs, strict=True)):
        if not equal_bits(a, b, node.dtype):
            raise Mismatch(f"output {number} ({node!r}) {how}: {difference(a, b, node.dtype)}")


def explain_failure(program: Program, outputs: Sequence[Node], arrays: Sequence[Array],
                    check: Callable[[Sequence[Node], Sequence[Array]], None], error: Exception) -> str:
    """The seed, the disagreement and a minimised program, ready to be pasted."""

    def fails(nodes: Sequence[Node], values: Sequence[Array]) -> bool:
        try:
            check(nodes, values)
        except Mismatch:
            return True
        return False

    small, given = minimise(outputs, arrays, fails)
    return f"seed {program.seed}: {error}\n{as_python(small, given)}"


# -- values by the reference, with one order for every sum -----------------------------------------------------------
def evaluate_exactly(outputs: Sequence[Node], leaf: reference.Leaf) -> list[Array]:
    """Like `reference.run_graph`, but sums and products see contiguous memory, so NumPy's order does not depend on
    how passes moved views."""
    values: dict[int, Any] = {}
    for node in toposort(outputs):
        if node.op.name in ("parameter", "data", "dimension"):
            values[node.serial] = leaf(node)
            continue
        arrays = [values[child.serial] for child in node.inputs]
        if "body" in node.attributes:
            arrays = [np.ascontiguousarray(a).reshape(a.shape) for a in arrays]
            found = evaluate_exactly(node["body"].outputs, _body_leaf(reference.body_arrays(node, arrays)))
            values[node.serial] = tuple(found) if len(found) > 1 else found[0]
            continue
        if node.op.kind != "move":
            arrays = [np.ascontiguousarray(a).reshape(a.shape) for a in arrays]
        values[node.serial] = reference.run_node(node, arrays)
    return [values[node.serial] for node in outputs]


def _body_leaf(arrays: Sequence[Array]) -> reference.Leaf:
    return lambda leaf: arrays[leaf["index"]]


def check_passes(program: Program, n: int, level: int, off: str) -> Graph:
    """The optimised graph is legal, and has the value of the original by the reference, bit for bit."""
    before = pipeline.checking
    pipeline.checking = True
    try:
        pipeline.optimise(Graph(program.outputs), level, off)  # dynamic: legal
        # A fused op's reference is wider than its composition, and that of complex numbers rounds otherwise.
        plain = split_complex(inline(Graph(program.static(n))))
        optimised, _ = pipeline.optimise(plain, level, off)
    finally:
        pipeline.checking = before
    for node in optimised.nodes:
        if is_native(node):
            raise Mismatch(f"seed {program.seed} level {level} off {off!r}: {node!r} stands in no group\n"
                           + as_python(plain.outputs))
    leaf = leaf_of(program.inputs(n))
    with np.errstate(all="ignore"):
        wanted = evaluate_exactly(plain.outputs, leaf)
        found = evaluate_exactly(optimised.outputs, leaf)
    for node, a, b in zip(plain.outputs, found, wanted, strict=True):
        one, two = (reference.encode(x, node.dtype) for x in (a, b))
        if not equal_bits(one, two, node.dtype):
            raise Mismatch(f"seed {program.seed} level {level} off {off!r}: {node!r} "
                           f"{difference(one, two, node.dtype)}\n{as_python(plain.outputs)}")
    return optimised


# -- native code, node by node ---------------------------------------------------------------------------------------
def check_values(outputs: Sequence[Node], arrays: Sequence[Array]) -> None:
    """Every value of a static program equals its op applied to the native values of its inputs; no error can grow."""
    graph = inline(Graph(tuple(outputs)))
    wanted = [node for node in graph.nodes if node.op.kind != "source" and len(node.outputs) == 1]
    for native in (Native(wanted), Native(graph.outputs)):
        for step in native.program.steps:
            if getattr(step, "fallback", False):
                raise Mismatch(f"{step.label} fell back to NumPy")
    values = dict(zip([node.serial for node in wanted], Native(wanted)(arrays), strict=True))
    for node in graph.nodes:
        if node.op.name == "parameter":
            values[node.serial] = arrays[node["index"]]
        elif node.op.kind == "source":
            values[node.serial] = reference.encode(reference.run_node(node, []), node.dtype)
    for node in wanted:
        inputs = [reference.decode(values[child.serial], child.dtype) for child in node.inputs]
        _check_node(node, inputs, values[node.serial])
    if wanted:
        found = Native(graph.outputs)(arrays)
        same(found, [values[node.serial] for node in graph.outputs], graph.outputs, "alone and among all values")


def _check_node(node: Node, inputs: list[Array], got: Array) -> None:
    name, dtype = node.op.name, node.dtype
    numbers = readable(got, dtype)
    if node.op.kind == "elementwise" and any(spec.dtype.is_complex for spec in (node.spec, *(
            child.spec for child in node.inputs))):
        complex_oracle.check(name, node.op.reference, node.attributes, [np.asarray(x).reshape(-1) for x in inputs],
                             np.asarray(got).reshape(-1))
        return
    if node.op.kind == "reduce" and not dtype.is_complex:
        want = oracle.reduce_by_rule(name, inputs[0], node["axes"], dtype, oracle.identity_of(name, dtype))
    elif name in ("cumulative_sum", "cumulative_prod"):
        want = oracle.scan_by_rule(name.removeprefix("cumulative_"), inputs[0], node["axis"], dtype)
    elif name == "matmul":
        want = _matmul(node, inputs)
        if dtype is bfloat16 and current_isa().matrix_units and not equal_bits(got, stored(want, dtype), dtype):
            want = _matmul(node, inputs, flushes=True)
    elif name == "conv":
        want = oracle.conv_by_rule(node, *inputs, dtype)
    elif "polynomial" in node.op.numerics and dtype.is_float:
        _check_polynomial(node, inputs, numbers)
        return
    else:
        with np.errstate(all="ignore"):
            want = reference.run_node(node, inputs)
        want = want if dtype is not bfloat16 else readable(reference.encode(want, dtype), dtype)
    if not equal_bits(got, stored(want, dtype), dtype):
        raise Mismatch(f"{node!r}: {difference(got, stored(want, dtype), dtype)}")


def _matmul(node: Node, inputs: list[Array], flushes: bool = False) -> Array:
    pairs = zip(*[x.reshape(-1, *x.shape[-2:]) for x in inputs], strict=True)
    parts = [oracle.matmul_by_rule(a, b, node.dtype, flushes) for a, b in pairs]
    return np.stack(parts).reshape(node.shape) if parts else np.zeros(node.shape)


def _check_polynomial(node: Node, inputs: list[Array], numbers: Array) -> None:
    """Against the reference in float64: a few last places for float32, a relative error for float64."""
    dtype = node.dtype
    wide = [x.astype(np.float64) for x in inputs]
    with np.errstate(all="ignore"):
        true = np.asarray(node.op.reference(node.attributes, *wide), np.float64)
        if node.op.name in ("sin", "cos", "tan", "logaddexp") and dtype is float64:
            calm = (np.abs(wide[0]) < 2.0**40) & (np.abs(true) > 1e-2)
            true, numbers = true[calm], numbers[calm]
        if node.op.name == "logaddexp":
            calm = np.abs(true) > 1e-2
            true, numbers = true[calm], numbers[calm]
        if node.op.name == "gelu_slope":  # passes through zero near -0.75, where its error is relative to Phi
            calm = ~((wide[0] > -1.25) & (wide[0] < -0.25))
            true, numbers = true[calm], numbers[calm]
        if dtype is float64:
            wrong = ~((np.abs(numbers - true) <= 1e-11 * np.abs(true) + 1e-300) | (numbers == true)
                      | (np.isnan(numbers) & np.isnan(true)))
        else:
            most = 5.01 if node.op.name == "gelu_slope" else 2.01
            wrong = oracle.ulps(numbers, true, dtype) > (most if dtype.itemsize == 4 else 0.52)
    if np.any(wrong):
        place = np.flatnonzero(wrong.reshape(-1))[0]
        shown = [x.reshape(-1)[place] for x in wide] if true.shape == wide[0].shape else "?"
        raise Mismatch(f"{node!r} at {shown}: {numbers.reshape(-1)[place]!r}, true {true.reshape(-1)[place]!r}")


# -- the same bits ---------------------------------------------------------------------------------------------------
def run_lazily(outputs: Sequence[Node], arrays: Sequence[Array]) -> list[Array]:
    """Through `realise`, from data leaves."""
    leaves = {node["index"]: _tensor(node, arrays).node for node in Graph(tuple(outputs)).parameters}
    with mo.settings():
        found = evaluation.realise(substitute(outputs, leaves))
    return [buffer.numpy() for buffer in found]


def _tensor(node: Node, arrays: Sequence[Array]) -> Tensor:
    return Tensor.of_buffer(borrow(np.asarray(arrays[node["index"]], order="C"), node.dtype))


def run_compiled(outputs: Sequence[Node], arrays: Sequence[Array]) -> list[Array]:
    """Through `mo.compile`."""
    parameters = Graph(tuple(outputs)).parameters
    positions = {node["index"]: place for place, node in enumerate(parameters)}

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        leaves = {index: tensors[place].node for index, place in positions.items()}
        return tuple(Tensor.of_node(node) for node in substitute(outputs, leaves))

    found = mo.compile(function)(*[_tensor(node, arrays) for node in parameters])
    return [tensor.realise().buffer().numpy() for tensor in found]


def check_bits(outputs: Sequence[Node], arrays: Sequence[Array], isas: Sequence[str], off: str = "") -> None:
    """Levels, ISAs, switched-off passes, lazily and compiled, fused or taken apart: all the same bits."""
    wanted = Native(outputs)(arrays)
    for level in (0, 1, 2):
        with mo.settings(level=level):
            same(Native(outputs)(arrays), wanted, outputs, f"level {level} and 3")
    with mo.settings(level=0):
        apart = inline(Graph(tuple(outputs))).outputs
        same(Native(apart)(arrays), wanted, outputs, "taken apart and fused")
    with mo.settings(passes_off=off):
        same(Native(outputs)(arrays), wanted, outputs, f"without {off} and with")
    for isa in isas:
        with mo.settings(isa=isa):
            same(Native(outputs)(arrays), wanted, outputs, f"isa {isa} and native")
    same(run_lazily(outputs, arrays), wanted, outputs, "lazily and planned")
    same(run_compiled(outputs, arrays), wanted, outputs, "compiled and planned")


def check_dynamic(program: Program, n: int) -> None:
    """A dynamic size and the number give the same bits."""
    dynamic = Native(program.outputs)(program.inputs(n), {"n": n})
    static = program.static(n)
    same(dynamic, Native(static)(program.inputs(n)), static, f"dynamic and static n={n}")


def check_rows(program: Program, n: int, rows: Sequence[int]) -> None:
    """A row alone and the row inside a batch."""
    arrays = program.inputs(n)
    whole = Native(program.outputs)(arrays, {"n": n})
    parameters = {node["index"]: node for node in program.graph.parameters}

    def leads(node: Node) -> bool:
        return bool(node.shape) and not isinstance(node.shape[0], int)

    for row in rows:
        one = [array[row:row + 1].copy() if i in parameters and leads(parameters[i]) else array
               for i, array in enumerate(arrays)]
        found = Native(program.outputs)(one, {"n": 1})
        wanted = [w[row:row + 1] if leads(node) else w for w, node in zip(whole, program.outputs, strict=True)]
        same(found, [np.asarray(w, order="C") for w in wanted], fixed(program.outputs, {"n": 1}), f"row {row} alone")


def check_batch(program: Program, n: int, rows: int) -> None:
    """The program on a batch, some of its inputs with rows, and on each row alone."""
    static = program.static(n)
    parameters = Graph(static).parameters
    drawn = [replace(program, seed=program.seed + 1_000_003 * row).inputs(n) for row in range(rows)]
    chosen = {node["index"] for place, node in enumerate(parameters) if place == 0 or (program.seed >> place) & 1}
    count = len(drawn[0])
    leaves = {node.serial: parameter(count + node["index"], (rows, *node.shape), node.dtype)
              for node in parameters if node["index"] in chosen}
    whole = [batching.in_front(*one, rows) for one in batching.batch_of(static, leaves, rows)]
    stacked = [np.stack([arrays[index] for arrays in drawn]) for index in range(count)]
    found = Native(whole)([*drawn[0], *stacked])
    alone = Native(static)
    for row in range(rows):
        arrays = [drawn[row if index in chosen else 0][index] for index in range(count)]
        same([np.asarray(one[row], order="C") for one in found], alone(arrays), static, f"row {row} of a batch")


def check_threads(program: Program, n: int) -> int:
    """One thread and two; gives the number of kernels that were divided."""
    arrays, static = program.inputs(n), program.static(n)
    found = []
    divided = 0
    for threads in (1, 2):
        with mo.settings(threads=threads):
            native = Native(static)
            before = native.plan.native_code.workers.runs
            found.append(native(arrays))
            divided = native.plan.native_code.workers.runs - before
    same(found[1], found[0], static, f"two threads and one, seed {program.seed}")
    return divided


def large_n(program: Program, most: int = 3_000_000) -> int:
    """A leading size at which the largest value has about `most` elements, or some fewer where sizes multiply."""
    n = most
    while n > 1 and elements(program.outputs, n) > most:
        n = max(1, n * 2 // 3)
    return n


def run_seed(seed: int, isas: Sequence[str]) -> None:
    """Everything about one seed; raises `Mismatch` with a minimised program."""
    rng = np.random.default_rng(seed)
    program = random_program(seed, rowwise=bool(seed % 3 == 0))
    n = int(rng.integers(1, 9))
    for level in (1, 2, 3):
        check_passes(program, n, level, PASSES_OFF[int(rng.integers(0, len(PASSES_OFF)))])
    arrays, static = program.inputs(n), program.static(n)
    off = PASSES_OFF[int(rng.integers(0, len(PASSES_OFF)))]
    for check in (check_values, lambda nodes, values: check_bits(nodes, values, isas, off)):
        guarded(program, static, arrays, check)
    check_dynamic(program, n)
    if program.rowwise:
        check_rows(program, n, [0, n - 1])


def guarded(program: Program, outputs: Sequence[Node], arrays: Sequence[Array],
            check: Callable[[Sequence[Node], Sequence[Array]], None]) -> None:
    """Run a check; on a mismatch minimise the program first."""
    try:
        check(outputs, arrays)
    except Mismatch as error:
        raise Mismatch(explain_failure(program, outputs, arrays, check, error)) from error
