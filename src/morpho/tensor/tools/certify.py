"""`mo.certify`: a bound of |computed - real| for a program, with a certificate that a separate checker accepts."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from morpho.base.dtypes import DType, as_dtype
from morpho.base.errors import ArgumentError, ValueFault, fail
from morpho.ir.graph import Graph
from morpho.tensor.convert import asarray
from morpho.tensor.core import Tensor
from morpho.tensor.jit.compile import compile
from morpho.tensor.tools import bound_checker

CHECKER: Any = bound_checker  # it has no types: it stands alone, and short
OTHERS = ("float64", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Range:
    """Tensors of a shape and dtype whose elements lie between `least` and `most`; `mo.within` makes one."""

    shape: tuple[int, ...]
    least: float
    most: float
    dtype: DType


def within(shape: Sequence[int], least: float, most: float, dtype: Any = "float32") -> Range:
    """The tensors of a shape whose elements lie between two numbers, for `mo.certify`.

    >>> mo.within((2, 3), -1, 1).most
    1.0
    """
    least, most = float(least), float(most)
    if not (math.isfinite(least) and math.isfinite(most) and least <= most):
        raise fail(ArgumentError, "within", f"{least} to {most} is no range of finite numbers")
    kind = as_dtype(dtype)
    low, high = (float(asarray(np.float64(value)).astype(kind).astype("float64").item()) for value in (least, most))
    return Range(tuple(shape), min(least, low), max(most, high), kind)


@dataclass(frozen=True)
class Certificate:
    """A bound of a program's errors, and its derivation's input: `document` is what the checker reads.

    `errors` has for each output the most that a computed element may be off from its value in real numbers, and
    `ranges` the range of that value. `parts` says how much of the first output's error each operation brings, largest
    first; `others` what the error would be in other dtypes, or why there is no bound.
    """

    errors: tuple[float, ...]
    ranges: tuple[tuple[float, float], ...]
    parts: tuple[tuple[str, float], ...]
    others: dict[str, float | str]
    document: dict[str, Any]

    @property
    def error(self) -> float:
        """The bound of the output, or of the worst of several."""
        return max(self.errors)

    def __str__(self) -> str:
        total = self.errors[0] or 1.0
        lines = [f"|computed - real| <= {error:.4g} for results from {low:.4g} to {high:.4g}"
                 for error, (low, high) in zip(self.errors, self.ranges, strict=True)]
        lines += ["of the first, by operation",
                  *(f"  {100 * part / total:5.1f} %  {name}" for name, part in self.parts[:8])]
        lines += ["in other dtypes", *(f"  {name:8s}  {value if isinstance(value, str) else f'{value:.4g}'}"
                                       for name, value in self.others.items())]
        return "\n".join(lines)

    def save(self, path: str | Path) -> None:
        """Write the certificate, for `morpho certificate FILE` or the checker alone."""
        Path(path).write_text(json.dumps(self.document, indent=1), encoding="utf-8")


def certify(function: Callable[..., Any], /, *ranges: Any) -> Certificate:
    """Bound the difference between what a program computes and its value in real numbers, for all inputs in ranges.

    The bound follows from running error analysis over the graph that `mo.compile` runs: roundings, orders of sums and
    precision of functions are those of docs/numerics.md. Captured tensors and parameters of modules have their own
    ranges. An operation that the analysis does not know is an error that names it.

    Args:
        function: Of as many tensors as there are ranges.
        ranges: For each argument `mo.within(shape, least, most, dtype)`, or a tensor for that tensor's own range.

    Returns:
        A `Certificate`; a separate checker accepts it.

    Raises:
        ValueFault: There is no bound: an operation has no rule, may overflow, or divides by a range that holds 0.

    >>> bound = mo.certify(lambda x: mo.softmax(x, axis=-1), mo.within((4, 64), -1, 1))
    >>> 1e-9 < bound.error < 2e-7
    True
    >>> mo.certify(lambda x: 1 / x, mo.within((3,), -1, 1))
    Traceback (most recent call last):
        ...
    morpho.base.errors.ValueFault: [certify] operation 4 (divide): the divisor may be 0...
    """
    given = [each if isinstance(each, Range) else _range_of(each) for each in ranges]
    compiled = compile(function)
    samples = [asarray(np.full(each.shape, (each.least + each.most) / 2)).astype(each.dtype) for each in given]
    compiled(*samples)
    chosen = compiled.current
    graph = chosen.plan.graph
    values = {number: _facts(each) for number, each in enumerate(given)}
    held = [*(state.value for state in _states(chosen)), *chosen.captured]
    for number, tensor in enumerate(held, len(given)):
        values[number] = _facts_of(tensor)
    return certificate_of(graph, values)


def _states(chosen: Any) -> list[Any]:
    return list(chosen.states.states) if chosen.states.count else []


def _range_of(tensor: Any) -> Range:
    tensor = asarray(tensor)
    array = tensor.astype("float64").numpy()
    if not array.size or not np.isfinite(array).all():
        raise fail(ArgumentError, "certify", "a tensor without elements or with infinite ones has no range",
                   "give mo.within(shape, least, most)")
    return Range(tuple(array.shape), float(array.min()), float(array.max()), tensor.dtype)


def _facts(given: Range) -> dict[str, Any]:
    return {"range": [given.least.hex(), given.most.hex()]}


def _facts_of(tensor: Tensor) -> dict[str, Any]:
    """Range of a captured tensor, the largest sum of magnitudes along each axis, and the hash of its elements."""
    facts = _facts(_range_of(tensor))
    array = np.abs(tensor.astype("float64").numpy())
    sums = {str(axis): math.nextafter(float(array.sum(axis).max()) * (1 + size * 2.0 ** -52), math.inf).hex()
            for axis, size in enumerate(array.shape)}
    digest = hashlib.sha256(np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8).data).hexdigest()
    return {**facts, "sums": sums, "sha256": digest}


def certificate_of(graph: Graph, values: dict[int, dict[str, Any]]) -> Certificate:
    """The certificate of a graph whose parameters have these facts."""
    program, outputs = _program(graph)
    used = {str(node["attributes"]["index"]) for node in program if node["op"] == "parameter"}
    document: dict[str, Any] = {"format": CHECKER.FORMAT, "graph": graph.digest(), "program": program,
                                "inputs": {str(n): facts for n, facts in values.items() if str(n) in used},
                                "outputs": outputs}
    try:
        derived = CHECKER.Program(program, document["inputs"]).values
    except bound_checker.Refused as reason:
        raise fail(ValueFault, "certify", str(reason), "narrow the ranges, or leave that part out") from None
    results = [derived[place] for place in outputs]
    document["bounds"] = [{"range": [_float(v.lo, -math.inf).hex(), _float(v.hi, math.inf).hex()],
                           "error": _float(v.error, math.inf).hex()} for v in results]
    document["hash"] = CHECKER.program_hash(document)
    CHECKER.check(document)
    parts = sorted(((_name(program, number), float(part)) for number, part in results[0].parts.items()),
                   key=lambda each: -each[1])
    return Certificate(tuple(_float(v.error, math.inf) for v in results),
                       tuple((_float(v.lo, -math.inf), _float(v.hi, math.inf)) for v in results),
                       tuple(parts), _others(program, document["inputs"], outputs), document)


def _program(graph: Graph) -> tuple[list[dict[str, Any]], list[int]]:
    """The nodes of a graph as the checker reads them."""
    numbers: dict[int, int] = {}
    program = []
    for number, node in enumerate(graph.nodes):
        numbers[node.serial] = number
        if not all(isinstance(size, int) for spec in node.outputs for size in spec.shape):
            raise fail(ValueFault, "certify", f"{node.op.name} has a size that is known only when it runs",
                       "give plain sizes")
        attributes = {name: _plain(value) for name, value in node.attributes.items() if name not in ("dtype", "spec")}
        program.append({"op": node.op.name, "inputs": [numbers[child.serial] for child in node.inputs],
                        "dtype": str(node.dtype), "shape": [*node.shape], "attributes": attributes})
    return program, [numbers[output.serial] for output in graph.outputs]


def _plain(value: Any) -> Any:
    if isinstance(value, bool | str | int) or value is None:
        return value
    if isinstance(value, float | np.floating):
        return float(value).hex()
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return str(value)


def _name(program: list[dict[str, Any]], number: int) -> str:
    node = program[number]
    return f"{node['op']} {node['dtype']}{node['shape']} (operation {number})"


def _others(program: list[dict[str, Any]], inputs: dict[str, Any], outputs: list[int]) -> dict[str, float | str]:
    """Errors of the same program with its most frequent float dtype replaced."""
    kinds = [node["dtype"] for node in program if node["dtype"] in OTHERS]
    if not kinds:
        return {}
    usual = max(set(kinds), key=kinds.count)
    errors: dict[str, float | str] = {}
    for other in OTHERS:
        if other == usual:
            continue
        changed = [{**node, "dtype": other if node["dtype"] == usual else node["dtype"]} for node in program]
        try:
            values = CHECKER.Program(changed, inputs).values
            errors[other] = max(_float(values[place].error, math.inf) for place in outputs)
        except bound_checker.Refused as reason:
            errors[other] = f"no bound: {reason}"
    return errors


def _float(value: Fraction, toward: float) -> float:
    """The nearest float64 in that direction, or the number itself."""
    nearest = float(value)
    if Fraction(nearest) == value or (Fraction(nearest) > value) == (toward > 0):
        return nearest
    return math.nextafter(nearest, toward)
