"""Random programs, valid by construction, over all ops; their inputs; a minimiser; and programs as Python lines.

A program is a tuple of output nodes over `parameter` leaves. Its leading size may be the symbol `n`; `running.fixed`
puts a number there. In a *row-wise* program nothing mixes rows of the leading axis, so a row may be computed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from case_values import special_values
from elementwise_cases import PLAIN
from running import fixed, leaf_of, stored

from morpho.backends.reference import reference
from morpho.base.dims import Dim, evaluate, is_static, product, upper
from morpho.base.dtypes import DType, bfloat16, bool_, float16, float32, float64, int8, int32, int64, uint8, uint32
from morpho.base.errors import MorphoError
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, make, rebuild, toposort
from morpho.ir.op import Spec
from morpho.ops.algebra import cast, constant, expand, reshape, size_value
from morpho.ops.order import remat_barrier

Array = Any
N = Dim("n", 1, 1000)
SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 64, 65, 67)
DTYPES = (bool_, int8, uint8, int32, int64, uint32, float16, bfloat16, float32, float64)
WEIGHTS = np.array([1, 1, 1, 2, 2, 1, 2, 2, 8, 3], float)
SLOW = frozenset({"remainder", "floor_divide", "pow", "nextafter"})  # long bodies: seldom, or compiling takes over
UNARY = [case for case in PLAIN if case.arity == 1 and case.kinds != "c"]
BINARY = [case for case in PLAIN if case.arity == 2]
CORE = [case for case in PLAIN if case.op in ("add", "subtract", "multiply", "divide", "maximum", "less")]
FUSED = ("softmax", "log_softmax", "logsumexp", "layer_norm", "rms_norm", "cross_entropy")
NAMES = {"unary": 22, "binary": 26, "where": 4, "cast": 5, "reduce": 12, "view": 14, "copying": 8, "gather": 4,
         "scatter": 2, "matmul": 5, "conv": 3, "windows": 4, "scan": 4, "fused": 8, "sort": 2, "source": 4,
         "random": 2, "complex": 1, "remat_barrier": 5}


@dataclass
class Program:
    """Output nodes and how their inputs are drawn."""

    outputs: tuple[Node, ...]
    seed: int
    rowwise: bool

    @property
    def graph(self) -> Graph:
        return Graph(self.outputs)

    def static(self, n: int) -> tuple[Node, ...]:
        """The outputs with a number in place of the dynamic size."""
        return tuple(fixed(self.outputs, {"n": n}))

    def inputs(self, n: int) -> list[Array]:
        """Arguments in stored form; the first rows are the same for every n."""
        arrays: list[Array] = []
        for node in self.graph.parameters:
            while len(arrays) < node["index"]:
                arrays.append(np.zeros(1, np.float32))
            arrays.append(draw(self.seed, node["index"], node.spec, n))
        return arrays


def draw(seed: int, index: int, spec: Spec, n: int) -> Array:
    """One argument: everyday numbers with special values strewn in."""
    rng = np.random.default_rng([seed, index])
    shape = tuple(evaluate(size, {"n": n}) for size in spec.shape)
    count = int(np.prod(shape, dtype=np.int64))
    if spec.dtype is bool_:
        values = rng.random(count) < 0.5
    elif spec.dtype.is_integer:
        low = 0 if spec.dtype.kind == "u" else -20
        values = rng.integers(low, 50, count)
    else:
        values = rng.normal(0, 2, count)
    if count and rng.random() < 0.4:
        special = special_values(spec.dtype)
        places = rng.integers(0, count, max(1, count // 10))
        values[places] = special[rng.integers(0, special.size, places.size)]
    return stored(values.reshape(shape), spec.dtype)


class Maker:
    """Adds one random operation after another to a pool of values."""

    def __init__(self, seed: int, rowwise: bool = False, native: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.seed, self.rowwise, self.native = seed, rowwise, native
        self.pool: list[Node] = []
        self.parameters = 0
        self.sizes = [int(self.rng.choice(SIZES)) for _ in range(2)]

    # -- choices -----------------------------------------------------------------------------------------------------
    def choose(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(0, len(items)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def dtype(self) -> DType:
        return DTYPES[int(self.rng.choice(len(DTYPES), p=WEIGHTS / WEIGHTS.sum()))]

    def value(self, suits: Callable[[Node], bool] = lambda node: True) -> Node | None:
        """A value of the pool, the later ones more often."""
        fitting = [node for node in self.pool if suits(node) and not node.dtype.is_complex]
        if not fitting:
            return None
        return fitting[-1 - int(min(self.rng.geometric(0.35) - 1, len(fitting) - 1))]

    def as_kind(self, node: Node, kinds: str) -> Node:
        """The value in a dtype of these kinds."""
        if node.dtype.kind in kinds:
            return node
        return cast(node, self.choose([dtype for dtype in DTYPES if dtype.kind in kinds]))

    def shape(self) -> tuple[Any, ...]:
        a, b = self.sizes
        return self.choose([(N, a), (N, a), (N, b), (N, a, b), (N,), (N, 1), (a,), (1, a), (), (a, b), (1, a, b)])

    def leading(self, node: Node) -> bool:
        """Whether axis 0 is the one that must be left alone."""
        return self.rowwise and bool(node.shape) and not isinstance(node.shape[0], int)

    def axes(self, node: Node) -> list[int]:
        """Axes that an operation may work along."""
        return list(range(int(self.leading(node)), len(node.shape)))

    # -- building ----------------------------------------------------------------------------------------------------
    def parameter(self, shape: tuple[Any, ...] | None = None, dtype: DType | None = None) -> Node:
        made = build("parameter", index=self.parameters, shape=self.shape() if shape is None else shape,
                     dtype=dtype or self.dtype())
        self.parameters += 1
        self.pool.append(made)
        return made

    def build(self, steps: int) -> Program:
        for _ in range(1 + int(self.rng.integers(0, 3))):
            self.parameter()
        names = list(NAMES)
        weights = np.array(list(NAMES.values()), float)
        while steps > 0:
            name = names[int(self.rng.choice(len(names), p=weights / weights.sum()))]
            try:
                made = getattr(self, name)()
            except MorphoError:
                made = None  # a shape the draw did not fit; draw again
            if made is None or len(made.shape) > 3 or upper(product(made.shape)) > 1000 * 80 * 80:
                continue
            if self.rowwise and self.misplaced(made):
                continue
            self.pool.append(made)
            steps -= 1
        outputs = [self.pool[-1]]
        while self.chance(0.4):
            outputs.append(self.choose(self.pool))
        return Program(tuple(outputs), self.seed, self.rowwise)

    def unary(self) -> Node | None:
        case = self.choose(UNARY)
        node = self.value()
        if node is None:
            return None
        return build(case.op, self.as_kind(node, case.kinds.replace("c", "")))

    def partner(self, node: Node) -> tuple[Node, Node]:
        """The value and another, broadcast to one shape and of one dtype."""
        if self.chance(0.2):
            number = float(self.choose([0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, 1e-3]))
            if node.dtype.kind in "u":
                number = abs(number)
            return node, expand(constant(number, node.dtype), node.shape)
        other = self.value(lambda x: self.common(x.shape, node.shape) is not None) or node
        shape = self.common(other.shape, node.shape)
        assert shape is not None
        return expand(node, shape), expand(cast(other, node.dtype), shape)

    @staticmethod
    def common(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...] | None:
        result: list[Any] = []
        for axis in range(1, max(len(a), len(b)) + 1):
            x, y = (shape[-axis] if axis <= len(shape) else 1 for shape in (a, b))
            if x != y and 1 not in (x, y):
                return None
            result.append(y if x == 1 else x)
        return tuple(reversed(result))

    def binary(self) -> Node | None:
        case = self.choose(CORE if self.chance(0.5) else BINARY)
        if case.op in SLOW and self.chance(0.8):
            return None
        node = self.value()
        if node is None:
            return None
        pair = self.partner(self.as_kind(node, case.kinds.replace("c", "")))
        if self.rowwise and len(pair[0].shape) > len(node.shape) and self.misplaced(pair[0]):
            return None
        return build(case.op, *(pair if self.chance(0.5) else reversed(pair)))

    @staticmethod
    def misplaced(node: Node) -> bool:
        """Whether the dynamic size stands anywhere but in front."""
        return any(not isinstance(size, int) for size in node.shape[1:])

    def where(self) -> Node | None:
        mask, node = self.value(lambda x: x.dtype is bool_), self.value()
        if mask is None or node is None:
            return None
        a, b = self.partner(node)
        shape = self.common(mask.shape, a.shape)
        if shape is None:
            return None
        return build("where", expand(mask, shape), expand(a, shape), expand(b, shape))

    def cast(self) -> Node | None:
        node = self.value()
        return None if node is None else cast(node, self.dtype())

    def reduce(self) -> Node | None:
        name = self.choose(("sum", "sum", "sum", "prod", "max", "min", "any", "all"))
        node = self.value(lambda x: bool(self.axes(x)))
        if node is None:
            return None
        node = self.as_kind(node, "b" if name in ("any", "all") else "iuf")
        free = self.axes(node)
        axes = (free[-1],) if self.chance(0.6) else tuple(axis for axis in free if self.chance(0.5))
        if not axes:
            return None
        made = build(name, node, axes=axes)
        return expand(made, node.shape) if self.chance(0.2) else made

    def view(self) -> Node | None:
        return self.choose((self.permute, self.reshape, self.slice, self.expand))()

    def permute(self) -> Node | None:
        node = self.value(lambda x: len(self.axes(x)) > 1)
        if node is None:
            return None
        free = self.axes(node)
        order = [*range(len(node.shape) - len(free)), *[free[i] for i in self.rng.permutation(len(free))]]
        return build("permute", node, axes=tuple(order))

    def reshape(self) -> Node | None:
        """Merge two neighbours, split one, or add or drop an axis of size 1."""
        node = self.value(lambda x: bool(x.shape))
        if node is None:
            return None
        shape, free = list(node.shape), self.axes(node)
        ones = [axis for axis in free if shape[axis] == 1]
        if ones and self.chance(0.5):
            del shape[self.choose(ones)]
        elif len(free) > 1 and self.chance(0.5):
            axis = self.choose(free[:-1])
            shape[axis:axis + 2] = [shape[axis] * shape[axis + 1]]
        else:
            axis = self.choose([*free, len(shape)])
            size = shape[axis] if axis < len(shape) else 1
            if isinstance(size, int) and size % 2 == 0 and size and axis < len(shape):
                shape[axis:axis + 1] = [size // 2, 2]
            else:
                shape.insert(axis, 1)
        return reshape(node, tuple(shape))

    def slice(self) -> Node | None:
        node = self.value(lambda x: bool(self.axes(x)))
        if node is None:
            return None
        starts, sizes, steps = self.region(node)
        return build("slice", node, starts=starts, sizes=sizes, steps=steps)

    def region(self, node: Node) -> tuple[tuple[Any, ...], ...]:
        """Starts, sizes and steps of a slice; dynamic axes are taken whole, forwards or backwards."""
        starts, sizes, steps = [], [], []
        for axis, size in enumerate(node.shape):
            if isinstance(size, Dim) or size < 2 or self.chance(0.3):
                back = axis in self.axes(node) and self.chance(0.4)
                starts.append(size - 1 if back else 0)
                sizes.append(size)
                steps.append(-1 if back else 1)
                continue
            step = int(self.choose((1, 1, 2, 3, -1, -2)))
            most = (size - 1) // abs(step) + 1
            count = int(self.rng.integers(1, most + 1))
            room = size - 1 - (count - 1) * abs(step)
            first = int(self.rng.integers(0, room + 1))
            starts.append(first if step > 0 else first + (count - 1) * -step)
            sizes.append(count)
            steps.append(step)
        return tuple(starts), tuple(sizes), tuple(steps)

    def expand(self) -> Node | None:
        node = self.value(lambda x: 1 in x.shape or len(x.shape) < 2)
        if node is None:
            return None
        shape = list(node.shape)
        for axis in self.axes(node):
            if shape[axis] == 1 and self.chance(0.7):
                shape[axis] = N if axis == 0 and self.chance(0.5) else self.choose(self.sizes)
        if len(shape) < 3 and self.chance(0.4) and not self.leading(node):
            shape.insert(0, self.choose([N, 2, 3]))
        return expand(node, tuple(shape))

    def remat_barrier(self) -> Node | None:
        """A value once more, after others; mostly with something computed from it."""
        node, *after = (self.choose(self.pool) for _ in range(1 + int(self.rng.integers(0, 3))))
        made = remat_barrier(node, *after)
        if node.op.kind == "elementwise" and self.chance(0.5):  # what is computed a second time
            made = rebuild(node, [remat_barrier(child, *after) for child in node.inputs])
        return made

    def copying(self) -> Node | None:
        name = self.choose(("concatenate", "pad", "update", "copy"))
        node = self.value(lambda x: bool(self.axes(x)))
        if node is None:
            return None
        if name == "copy":
            return build("copy", node)
        axis = self.choose(self.axes(node))
        rank = len(node.shape)
        if name == "pad":
            before, after = [0] * rank, [0] * rank
            before[axis], after[axis] = int(self.rng.integers(0, 3)), int(self.rng.integers(0, 3))
            value = {"b": True, "f": 1.5}.get(node.dtype.kind, 2)
            return build("pad", node, before=tuple(before), after=tuple(after), value=value)
        if name == "concatenate":
            fits = [x for x in self.pool if x.dtype is node.dtype and len(x.shape) == rank and all(
                a == b for i, (a, b) in enumerate(zip(x.shape, node.shape)) if i != axis)
                and not (axis == 0 and self.leading(x))]  # rows joined to others would mix
            return build("concatenate", node, *[self.choose(fits) for _ in range(int(self.rng.integers(1, 3)))],
                         axis=axis)
        starts, sizes, steps = self.region(node)
        fits = [x for x in self.pool if x.dtype is node.dtype and x.shape == sizes]
        value = self.choose(fits) if fits else build("slice", node, starts=starts, sizes=sizes, steps=steps)
        other = build("negative", value) if value.dtype.kind in "iuf" else value
        return build("update", node, other, starts=starts, sizes=sizes, steps=steps)

    def indices(self, like: Node, axis: int) -> Node | None:
        """Indices into an axis of a value: any integers of the same shape, taken modulo its size."""
        whole = self.as_kind(cast(like, int32) if like.dtype is bool_ else like, "iu")
        whole = cast(whole, int64 if whole.dtype.kind == "i" else uint32)
        size = expand(size_value(like.shape[axis], whole.dtype), whole.shape)
        return build("remainder", whole, size)

    def gather(self) -> Node | None:
        node = self.value(lambda x: bool(self.axes(x)))
        if node is None:
            return None
        axis = self.choose(self.axes(node))
        return build("gather", node, self.indices(node, axis), axis=axis)

    def scatter(self) -> Node | None:
        node = self.value(lambda x: bool(self.axes(x)) and x.dtype.kind in "if")
        if node is None or self.native:
            return None
        axis = self.choose(self.axes(node))
        return build("scatter", node, self.indices(node, axis), build("negative", node), axis=axis,
                     mode=self.choose(("set", "add")))

    def matmul(self) -> Node | None:
        left = self.value(lambda x: len(x.shape) in (2, 3) and isinstance(x.shape[-1], int))
        if left is None:
            return None
        left = self.as_kind(left, "iuf")
        inner, columns = left.shape[-1], self.choose(SIZES)
        batch = left.shape[:-2]
        if len(left.shape) == 2 and not self.rowwise and self.chance(0.2):
            right: Node = build("permute", left, axes=(1, 0))
        else:
            right = self.parameter((*batch, inner, columns), left.dtype)
        return build("matmul", left, right)

    def conv(self) -> Node | None:
        """A convolution of lines or images; the kernels are a parameter."""
        node = self.value(lambda x: len(x.shape) in (2, 3) and all(isinstance(size, int) for size in x.shape[1:]))
        if node is None:
            return None
        node = self.as_kind(node, "f")
        count, *rest = node.shape
        channels = rest[0] if len(rest) == 2 and self.chance(0.5) else 1
        image = (1, rest[-1]) if len(rest) == 1 or channels > 1 else tuple(rest)
        x = reshape(node, (count, channels, *image))
        groups = 2 if channels % 2 == 0 and self.chance(0.3) else 1
        lengths = tuple(int(self.rng.integers(1, 4)) for _ in image)
        kernels = int(self.choose((1, 3, 14))) * groups
        weight = self.parameter((kernels, channels // groups * lengths[0] * lengths[1]), node.dtype)
        before, after = (tuple(int(n) for n in self.rng.integers(-1, 3, 2)) for _ in range(2))
        steps, apart = (tuple(int(n) for n in self.rng.integers(1, 3, 2)) for _ in range(2))
        made = build("conv", x, reshape(weight, (kernels, channels // groups, *lengths)), before=before, after=after,
                     steps=steps, dilations=apart, groups=groups)
        return reshape(made, (count, made.shape[1] * made.shape[2], made.shape[3]))

    def windows(self) -> Node | None:
        """Windows over an axis, often padded, and mostly reduced, as in pooling."""
        node = self.value(lambda x: any(isinstance(x.shape[axis], int) for axis in self.axes(x)))
        if node is None:
            return None
        axis = self.choose([axis for axis in self.axes(node) if isinstance(node.shape[axis], int)])
        name = self.choose(("sum", "max", "min", "prod", ""))
        node = self.as_kind(node, "iuf") if name else node
        if self.chance(0.5):
            widths = [tuple(int(self.rng.integers(0, 3)) if d == axis else 0 for d in range(len(node.shape)))
                      for _ in range(2)]
            value = {"b": True, "f": -1.5}.get(node.dtype.kind, 3)
            node = build("pad", node, before=widths[0], after=widths[1], value=value)
        length, step, apart = (int(self.rng.integers(1, most)) for most in (5, 4, 3))
        seen = build("window", node, axes=(axis,), sizes=(length,), steps=(step,), dilations=(apart,))
        return reshape(build(name, seen, axes=(len(node.shape),)), seen.shape[:-1]) if name else seen

    def scan(self) -> Node | None:
        node = self.value(lambda x: bool(self.axes(x)))
        if node is None:
            return None
        return build(self.choose(("cumulative_sum", "cumulative_prod")), self.as_kind(node, "iuf"),
                     axis=self.choose(self.axes(node)))

    def fused(self) -> Node | None:
        node = self.value(lambda x: bool(self.axes(x)))
        if node is None:
            return None
        node = self.as_kind(node, "f")
        free = self.axes(node)
        axes = (free[-1],) if self.chance(0.7) else tuple(sorted({self.choose(free), self.choose(free)}))
        name = self.choose(FUSED)
        if name == "cross_entropy":
            return self.loss(node, axes[0])
        if "norm" not in name:
            return build(name, node, axes=axes)
        others = []
        if self.chance(0.5) and all(isinstance(node.shape[axis], int) for axis in axes):
            shape = tuple(node.shape[axis] for axis in axes)
            others = [self.parameter(shape, node.dtype) for _ in range(2 if name == "layer_norm" else 1)]
        return build(name, node, *others, axes=axes, eps=1e-5)

    def loss(self, node: Node, axis: int) -> Node:
        """Against classes (all 0: an axis may have one element only) or against its own softmax."""
        rows = tuple(1 if i == axis else size for i, size in enumerate(node.shape))
        target = expand(build("constant", value=0, dtype=int64), rows) if self.chance(0.5) \
            else build("softmax", node, axes=(axis,))
        return build("cross_entropy", node, target, axes=(axis,), smoothing=self.choose((0.0, 0.1)),
                     ignore=1 if target.dtype.is_integer and self.chance(0.3) else None)

    def sort(self) -> Node | None:
        node = self.value(lambda x: bool(self.axes(x)))
        if node is None or self.native:
            return None
        name = self.choose(("sort", "argsort", "searchsorted"))
        node = self.as_kind(node, "iuf")
        if name == "searchsorted":
            line = self.parameter((self.choose(SIZES),), node.dtype)
            ordered = build("sort", line, axis=0, descending=False, stable=True)
            return build("searchsorted", ordered, node, side=self.choose(("left", "right")))
        return build(name, node, axis=self.choose(self.axes(node)), descending=self.chance(0.5), stable=True)

    def source(self) -> Node | None:
        kind = self.choose(("constant", "iota", "dimension"))
        dtype = self.dtype()
        if kind == "constant":
            value = {"b": True, "f": float(self.choose((0.0, -0.0, 1.5, np.inf, np.nan)))}.get(dtype.kind, 3)
            return expand(constant(value, dtype), self.shape())
        if dtype.kind == "b":
            return None
        if kind == "iota":
            shape = self.shape()
            free = [axis for axis in range(len(shape)) if not self.rowwise or isinstance(shape[axis], int)]
            return build("iota", shape=shape, axis=self.choose(free), dtype=dtype) if free else None
        return None if self.rowwise else build("dimension", size=N * 2 + 1, dtype=dtype)

    def random(self) -> Node | None:
        node = self.value()
        if node is None:
            return None
        counter = cast(node, uint32)
        keys = [expand(constant(int(self.rng.integers(0, 1 << 32)), uint32), counter.shape) for _ in range(2)]
        return build("threefry", *keys, counter)

    def complex(self) -> Node | None:
        node = self.value(lambda x: x.dtype in (float32, float64))
        if node is None:
            return None
        made = build("complex", node, build("negative", node))
        made = build(self.choose(("conj", "square", "negative", "sign")), made)
        return build(self.choose(("real", "imag", "absolute")), made)


def random_program(seed: int, steps: int | None = None, rowwise: bool = False, native: bool = False) -> Program:
    """The program of a seed; `native` leaves host operations out."""
    maker = Maker(seed, rowwise, native)
    return maker.build(int(maker.rng.integers(2, 14)) if steps is None else steps)


# -- failures --------------------------------------------------------------------------------------------------------
def minimise(outputs: Sequence[Node], arrays: Sequence[Array], fails: Callable[[Sequence[Node], Sequence[Array]], bool],
             budget: int = 200) -> tuple[list[Node], list[Array]]:
    """A smaller static program that still fails: fewer outputs, then inner values turned into arguments."""
    current, given = list(outputs), list(arrays)
    for node in current:
        if len(current) > 1 and _safely(fails, [node], given):
            current = [node]
            break
    progress = True
    while progress and budget > 0:
        progress = False
        for node in reversed(toposort(current)):
            if node.op.kind == "source" or len(node.outputs) > 1:
                continue
            budget -= 1
            tried, values = _cut(current, given, node)
            if tried != current and _safely(fails, tried, values):
                current, given, progress = tried, values, True
                break
    return current, given


def _cut(outputs: Sequence[Node], arrays: Sequence[Array], target: Node) -> tuple[list[Node], list[Array]]:
    """The program with one inner value as an argument of its own."""
    with np.errstate(all="ignore"):
        (value,) = reference.run_graph([target], leaf_of(arrays))
    leaf = build("parameter", index=len(arrays), shape=target.shape, dtype=target.dtype)
    done: dict[int, Node] = {target.serial: leaf}
    for node in toposort(outputs):
        if node.serial not in done:
            done[node.serial] = rebuild(node, [done[child.serial] for child in node.inputs])
    return [done[node.serial] for node in outputs], [*arrays, reference.encode(value, target.dtype).copy()]


def _safely(fails: Callable[..., bool], outputs: Sequence[Node], arrays: Sequence[Array]) -> bool:
    try:
        return fails(outputs, arrays)
    except MorphoError:
        return False


def as_python(outputs: Sequence[Node], arrays: Sequence[Array] = ()) -> str:
    """The program as lines to paste into a test."""
    lines, names = [], {}
    for number, node in enumerate(toposort(outputs)):
        names[node.serial] = f"v{number}"
        inputs = "".join(f", {names[child.serial]}" for child in node.inputs)
        attributes = "".join(f", {name}={_literal(value)}" for name, value in node.attributes.items())
        lines.append(f'v{number} = build("{node.op.name}"{inputs}{attributes})  # {node.dtype}{list(node.shape)}')
        if node.op.name == "parameter" and node["index"] < len(arrays) and arrays[node["index"]].size <= 8:
            lines[-1] += f" = {arrays[node['index']].tolist()}"
    lines.append("outputs = [" + ", ".join(names[node.serial] for node in outputs) + "]")
    return "\n".join(lines)


def _literal(value: Any) -> str:
    if isinstance(value, Spec):
        return f"Spec({value.shape!r}, {value.dtype!r})"
    if isinstance(value, float) and not np.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def substitute(outputs: Sequence[Node], leaves: Mapping[int, Node]) -> list[Node]:
    """The program on other leaves than its parameters."""
    done: dict[int, Node] = {}
    for node in toposort(outputs):
        if node.op.name == "parameter":
            done[node.serial] = leaves[node["index"]]
        else:
            done[node.serial] = make(node.op, [done[child.serial] for child in node.inputs], node.attributes)
    return [done[node.serial] for node in outputs]


def elements(outputs: Sequence[Node], n: int) -> int:
    """The most elements any value of a program has."""
    return max(evaluate(product(node.shape), {"n": n}) for node in toposort(outputs))


def static_only(outputs: Sequence[Node]) -> bool:
    return all(is_static(node.shape) for node in toposort(outputs))
