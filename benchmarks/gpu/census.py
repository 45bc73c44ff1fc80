"""Which kernel a GPU runs for each public call: a grid of its own, a thread for a row, few threads, or the host.

`python -m benchmarks.gpu.census [word ...]` prints a line for every call whose name has the word (all without one),
worst first, from the lowering alone: it needs no GPU and runs nothing. `tests/backends/cuda/test_census.py` has the
calls that may not be worse than they are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import morpho as mo
from morpho.backends.cuda.codegen.generic import GenericKernel
from morpho.backends.cuda.codegen.kernels import ISA, Sizes
from morpho.backends.cuda.codegen.select import device_kernel
from morpho.backends.cuda.gradients.scatter_lines import ScatterLines
from morpho.backends.cuda.lowering import lowered
from morpho.base import dtypes
from morpho.base.dims import upper
from morpho.base.errors import MorphoError
from morpho.base.machine import foreign_machine
from morpho.base.target import Target
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, rebuild, toposort
from morpho.program.program import Control, HostStep, Program, Step
from morpho.tensor.core import Tensor

KINDS = ("grid", "rows", "few", "host", "eager")  # from best to worst
BUSY, FEW = 1 << 13, 1 << 10  # threads that keep a GPU busy, alone and together in a block
MUCH = 1 << 10  # operations of a thread, when there are fewer
M = 1 << 20
LINE, ROWS, MIDDLE, MATRIX = (M,), (1024, 1024), (64, 256, 64), (1024, 1024)
MATRICES: dict[str, Callable[..., Any]] = {
    "cholesky": lambda a: mo.linalg.cholesky(a), "inv": lambda a: mo.linalg.inv(a),
    "det": lambda a: mo.linalg.det(a), "slogdet": lambda a: mo.linalg.slogdet(a)[1],
    "lu": lambda a: mo.linalg.lu(a), "qr": lambda a: mo.linalg.qr(a), "eigh": lambda a: mo.linalg.eigh(a),
    "svd": lambda a: mo.linalg.svd(a), "expm": lambda a: mo.linalg.expm(a), "pinv": lambda a: mo.linalg.pinv(a),
    "solve": lambda a: mo.linalg.solve(a, a), "lstsq": lambda a: mo.linalg.lstsq(a, a)[0],
    "solve_triangular": lambda a: mo.linalg.solve_triangular(a, a)}
Call = tuple[Callable[..., Any], tuple[Any, ...]]  # function, shapes (float32) or (shape, dtype)


@dataclass(frozen=True)
class Finding:
    """A step that is no grid of its own."""

    kind: str
    label: str
    threads: int
    each: int  # operations of a thread

    def __str__(self) -> str:
        return f"{self.label}: {self.threads} threads, {self.each} each" if self.threads else self.label


def finding(step: Any) -> Finding | None:
    """Return the finding of a step, or None for a launch of a grid of its own."""
    if isinstance(step, HostStep):
        return Finding("host", step.label, 0, 0)
    if isinstance(step, Control) and step.kind != "size":
        return Finding("few", f"loop ({step.kind})", 0, 0)
    if not isinstance(step, Step):
        return None
    kernel = device_kernel(step)
    values = tuple(map(upper, step.values))
    launch = kernel.launch(Sizes(upper(step.rows), upper(step.columns), values))
    threads, work = launch.geometry.blocks * launch.geometry.threads, max(1, upper(step.cost.flops))
    generic = isinstance(kernel, GenericKernel)
    if generic:
        threads = min(threads, max(1, upper(step.rows) * launch.pieces))
    if threads < (BUSY if generic or isinstance(kernel, ScatterLines) else FEW) and work // threads >= MUCH:
        return Finding("few", f"{step.label} by {type(kernel).__name__}", threads, work // threads)
    if not generic:
        return None
    return Finding("rows", f"{step.label} by {type(step.kernel).__name__}", threads, work // threads)


def program_of(function: Callable[..., Any], shapes: tuple[Any, ...]) -> Program:
    """The program of a call on arrays of these shapes."""
    inputs = []
    for number, shape in enumerate(shapes):
        shape, dtype = shape if isinstance(shape[-1], str) else (shape, "float32")
        inputs.append(Tensor.of_node(build("parameter", index=number, shape=shape, dtype=getattr(dtypes, dtype))))
    results = function(*inputs)
    flat = results if isinstance(results, (tuple, list)) else [results]
    target = Target("cuda", ISA, foreign_machine("nvptx64", frozenset({"wgmma"})), 1)
    return lowered(open_graph([one.node for one in flat if isinstance(one, Tensor)], len(inputs)), 2, target, "H200")


def open_graph(outputs: list[Node], inputs: int) -> Graph:
    """A graph whose arrays from the outside are parameters behind its own."""
    done: dict[int, Node] = {}
    for node in toposort(outputs):
        if node.op.name == "data":
            done[node.serial] = build("parameter", index=inputs, shape=node.shape, dtype=node.dtype)
            inputs += 1
        else:
            done[node.serial] = rebuild(node, [done[child.serial] for child in node.inputs])
    return Graph(tuple(done[node.serial] for node in outputs))


def census(calls: dict[str, Call]) -> Iterator[tuple[str, str, list[Finding]]]:
    """Name, kind and findings of every call."""
    for name, (function, shapes) in calls.items():
        try:
            found = [one for one in map(finding, program_of(function, shapes).steps) if one is not None]
        except (MorphoError, TypeError) as error:
            yield name, "eager", [Finding("eager", str(error).split(". At ")[0][:90], 0, 0)]
            continue
        yield name, max((one.kind for one in found), key=KINDS.index, default="grid"), found


def slope(function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of the sum of a function by its first operand."""
    return lambda *arrays: mo.grad(lambda x: (function(x, *arrays[1:]) * 1.5).sum())(arrays[0])


def with_axes(name: str, function: Callable[..., Any]) -> dict[str, Call]:
    """A function of an axis: along a long line, the rows, the first and the middle axis."""
    return {f"{name} line": (lambda x: function(x, 0), (LINE,)), f"{name} rows": (lambda x: function(x, 1), (ROWS,)),
            f"{name} first": (lambda x: function(x, 0), (ROWS,)),
            f"{name} middle": (lambda x: function(x, 1), (MIDDLE,))}


def every_call() -> dict[str, Call]:
    """The calls, by name."""
    calls: dict[str, Call] = {}
    along: dict[str, Callable[..., Any]] = {
        "cumsum": lambda x, a: mo.cumulative_sum(x, axis=a), "cumprod": lambda x, a: mo.cumulative_prod(x, axis=a),
        "cummax": lambda x, a: mo.cummax(x, axis=a), "logcumsumexp": lambda x, a: mo.logcumsumexp(x, axis=a),
        "sort": lambda x, a: mo.sort(x, axis=a), "argsort": lambda x, a: mo.argsort(x, axis=a),
        "topk": lambda x, a: mo.topk(x, 5, axis=a), "median": lambda x, a: mo.median(x, axis=a),
        "quantile": lambda x, a: mo.quantile(x, 0.3, axis=a), "argmax": lambda x, a: mo.argmax(x, axis=a),
        "sum": lambda x, a: mo.sum(x, axis=a), "max": lambda x, a: mo.max(x, axis=a),
        "var": lambda x, a: mo.var(x, axis=a), "softmax": lambda x, a: mo.softmax(x, axis=a),
        "logsumexp": lambda x, a: mo.logsumexp(x, axis=a), "flip": lambda x, a: mo.flip(x, axis=a),
        "diff": lambda x, a: mo.diff(x, axis=a), "fft": lambda x, a: mo.fft.fft(x, axis=a),
        "rfft": lambda x, a: mo.fft.rfft(x, axis=a), "roll": lambda x, a: mo.roll(x, 3, axis=a),
        "cumulative_trapezoid": lambda x, a: mo.cumulative_trapezoid(x, axis=a)}
    for name, function in along.items():
        calls |= with_axes(name, function)
    for name in ("cumsum", "cumprod", "cummax", "logcumsumexp", "sort", "sum", "softmax", "max"):
        own = along[name]
        calls |= {f"{key} gradient": (slope(call), shapes) for key, (call, shapes) in with_axes(
            name, lambda x, a, own=own: own(x, a)).items() if key.endswith(("line", "rows"))}
    table, rows, mask = (50000, 256), ((8192,), "int64"), (LINE, "bool_")
    calls |= {
        "take rows": (lambda x, i: mo.take(x, i, axis=0), (table, rows)),
        "take rows gradient": (slope(lambda x, i: mo.take(x, i, axis=0)), (table, rows)),
        "embedding gradient": (slope(lambda x, i: mo.embedding(x, i)), (table, rows)),
        "take_along_axis gradient": (slope(lambda x, i: mo.take_along_axis(x, i, axis=1)), (ROWS, (ROWS, "int64"))),
        "scatter_add line": (lambda x, i, v: mo.scatter_add(x, i, v, axis=0), (LINE, (LINE, "int64"), LINE)),
        "segment_sum": (lambda x, i: mo.segment_sum(x, i, num_segments=1000), (LINE, (LINE, "int64"))),
        "segment_sum rows": (lambda x, i: mo.segment_sum(x, i, num_segments=1000), ((8192, 256), rows)),
        "segment_max": (lambda x, i: mo.segment_max(x, i, num_segments=1000), (LINE, (LINE, "int64"))),
        "bincount": (lambda i: mo.bincount(i, length=1000), ((LINE, "int64"),)),
        "histogram": (lambda x: mo.histogram(x, bins=64, range=(0.0, 1.0)), (LINE,)),
        "searchsorted": (lambda x, v: mo.searchsorted(x, v), (LINE, LINE)),
        "nonzero": (lambda x: mo.nonzero(x), (LINE,)), "unique": (lambda x: mo.unique(x), (LINE,)),
        "boolean index": (lambda x, m: x[m], (LINE, mask)),
        "where mask": (lambda x, m: mo.where(m, x, 0), (LINE, mask)),
        "x.T copied": (lambda x: mo.permute_dims(x, (1, 0)).reshape(-1), ((4096, 4096),)),
        "cdist": (lambda x, y: mo.cdist(x, y), ((1024, 64), (1024, 64))),
        "pdist": (lambda x: mo.pdist(x), ((1024, 64),)),
        "fft2": (lambda x: mo.fft.fft2(x), (MATRIX,)), "fft prime": (lambda x: mo.fft.fft(x), ((1000003,),)),
        "fft complex128": (lambda x: mo.fft.fft(x), ((LINE, "complex128"),)),
        "stft": (lambda x: mo.stft(x, 512, hop_length=128), (LINE,)),
        "matmul float32": (mo.matmul, (MATRIX, MATRIX)), "matvec": (mo.matmul, (MATRIX, (1024,))),
        "matmul float64": (mo.matmul, ((MATRIX, "float64"),) * 2),
        "matmul bfloat16": (mo.matmul, ((MATRIX, "bfloat16"),) * 2),
        "matmul complex64": (mo.matmul, ((MATRIX, "complex64"),) * 2),
        "matmul int32": (mo.matmul, ((MATRIX, "int32"),) * 2),
        "batched matmul": (mo.matmul, ((512, 64, 64), (512, 64, 64))),
        "einsum": (lambda x, y: mo.einsum("bij,bkj->bik", x, y), ((64, 128, 64), (64, 96, 64))),
        "kron": (mo.kron, ((32, 32), (32, 32))), "outer": (mo.outer, ((1024,), (1024,))),
        "attention": (mo.attention, ((2, 8, 1024, 64),) * 3),
        "attention gradient": (slope(mo.attention), ((2, 8, 1024, 64),) * 3),
        "attention gradient bfloat16": (slope(mo.attention), (((2, 8, 1024, 64), "bfloat16"),) * 3),
        "conv2d 3x3": (mo.conv2d, ((8, 64, 56, 56), (64, 64, 3, 3))),
        "conv2d 1x1": (mo.conv2d, ((8, 64, 56, 56), (64, 64, 1, 1))),
        "conv2d depthwise": (lambda x, w: mo.conv2d(x, w, groups=64), ((8, 64, 56, 56), (64, 1, 3, 3))),
        "conv2d gradient x": (slope(mo.conv2d), ((8, 64, 56, 56), (64, 64, 3, 3))),
        "conv2d gradient w": (slope(lambda w, x: mo.conv2d(x, w)), ((64, 64, 3, 3), (8, 64, 56, 56))),
        "conv1d": (mo.conv1d, ((8, 64, 1024), (64, 64, 3))),
        "conv3d": (mo.conv3d, ((2, 16, 16, 32, 32), (16, 16, 3, 3, 3))),
        "conv_transpose2d": (mo.conv_transpose2d, ((8, 64, 28, 28), (64, 64, 3, 3))),
        "max_pool2d": (lambda x: mo.max_pool2d(x, 2), ((8, 64, 56, 56),)),
        "max_pool2d gradient": (slope(lambda x: mo.max_pool2d(x, 2)), ((8, 64, 56, 56),)),
        "avg_pool2d": (lambda x: mo.avg_pool2d(x, 3), ((8, 64, 56, 56),)),
        "interpolate": (lambda x: mo.nn.interpolate(x, size=(112, 112), mode="bilinear"), ((8, 64, 56, 56),)),
        "grid_sample": (mo.grid_sample, ((4, 16, 64, 64), (4, 64, 64, 2))),
        "unfold": (lambda x: mo.unfold(x, 3), ((8, 64, 56, 56),)),
        "fold": (lambda x: mo.fold(x, (56, 56), 2, stride=2), ((8, 256, 784),)),
        "layer_norm gradient": (slope(lambda x, w, b: mo.layer_norm(x, w, b)), (ROWS, (1024,), (1024,))),
        "batch_norm_training": (lambda x: mo.var(x, axis=(0, 2, 3)), ((32, 64, 56, 56),)),
        "cross_entropy gradient": (slope(lambda x, i: mo.cross_entropy(x, i)), ((1024, 50000), ((1024,), "int64"))),
        "random normal": (lambda x: mo.random.normal(mo.random.key(0), (M,)) + x, (LINE,)),
        "random permutation": (lambda x: mo.random.permutation(mo.random.key(0), 1 << 16) + x, (((1 << 16,)),)),
        "repeat": (lambda x: mo.repeat(x, 3), (LINE,)), "tile": (lambda x: mo.tile(x, (3,)), (LINE,)),
        "pad": (lambda x: mo.pad(x, ((1, 1), (2, 2))), (ROWS,)),
        "concat": (lambda x, y: mo.concat([x, y]), (ROWS, ROWS)),
        "tril": (mo.tril, (ROWS,)), "diag": (mo.diag, (ROWS,)), "trace": (mo.linalg.trace, (ROWS,)),
        "interp": (mo.interp, (LINE, (1000,), (1000,))), "convolve": (mo.convolve, ((4096,), (128,))),
        "associative_scan": (lambda x: mo.associative_scan(lambda a, b: a + b, x), ((65536,),)),
        "scan": (lambda x: mo.scan(lambda c, v: (c * 0.5 + v, c), mo.zeros(64), x)[1], ((512, 64),)),
        "all": (lambda m: mo.all(m), (mask,)), "count_nonzero": (lambda x: mo.count_nonzero(x), (LINE,)),
        "one_hot": (lambda i: mo.one_hot(i, 1000), (((8192,), "int64"),)),
        "polyval": (lambda x, p: mo.polyval(p, x), (LINE, (6,))),
    }
    for name, function in MATRICES.items():
        calls |= {f"{name} 512x32": (function, ((512, 32, 32),)), f"{name} 64x128": (function, ((64, 128, 128),)),
                  f"{name} 1024": (function, ((1024, 1024),))}
    calls |= {"cholesky gradient 512x32": (slope(mo.linalg.cholesky), ((512, 32, 32),)),
              "inv gradient 512x32": (slope(mo.linalg.inv), ((512, 32, 32),))}
    unary = ("exp", "erfinv", "lgamma", "digamma", "log1p", "mish", "asinh", "gelu", "sin", "tanh", "erf")
    calls |= {name: (getattr(mo, name), (LINE,)) for name in unary}
    return calls | {"pow": (mo.pow, (LINE, LINE)), "gcd": (mo.gcd, ((LINE, "int64"),) * 2)}


def main() -> None:
    words = sys.argv[1:]
    calls = {name: call for name, call in every_call().items() if not words or any(word in name for word in words)}
    lines = sorted(census(calls), key=lambda line: -KINDS.index(line[1]))
    for name, kind, found in lines:
        print(f"{kind:5} {name:28} " + "; ".join(dict.fromkeys(map(str, found)))[:200])
    counts = {kind: sum(line[1] == kind for line in lines) for kind in KINDS}
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))


if __name__ == "__main__":
    main()
