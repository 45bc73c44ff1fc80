"""Which kernel computes a matrix product or a convolution: a table of ways, each with its condition, best first.

All ways of one product give the same bits; they differ in what is packed, and when. The first way whose condition holds
is taken; `explain()` shows it with the others that could have been. What a condition may ask is in `MatmulRequest`:
sizes, how operands lie, whether they are there before the first call, who else reads them, and the target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from morpho.backends.kernels.conv.direct_conv import DirectConv, PointwiseConv, is_direct, is_pointwise
from morpho.backends.kernels.conv.implicit_gemm import ImplicitGemmConv, Windows
from morpho.backends.kernels.conv.weight_gradient import WeightGradientConv, is_weight_gradient
from morpho.backends.kernels.gemm.amx.amx import AmxBf16Matmul, AmxInt8Matmul
from morpho.backends.kernels.gemm.gemm import OUTER
from morpho.backends.kernels.gemm.matmul import GemvMatmul, Matmul, Matrix, PackedMatmul, as_matrices, batch_axes
from morpho.backends.kernels.gemm.prologue import PrologueMatmul
from morpho.backends.kernels.gemm.symmetric import SymmetricMatmul, is_symmetric
from morpho.backends.kernels.gemm.tiling import register_tile
from morpho.backends.kernels.gemm.unpacked_gemm import UnpackedMatmul, vectors_of_tile
from morpho.backends.kernels.quantised.int8 import Int8Matmul
from morpho.backends.kernels.quantised.quantised import QuantisedMatmul
from morpho.backends.lowering.groups.lower_group import lower_body
from morpho.backends.lowering.lowering import Lowering, operand_word, operations
from morpho.base.dims import Shape, Size, product, upper
from morpho.base.dtypes import DType, bfloat16
from morpho.base.machine import Isa
from morpho.base.python.lazy import cached_property
from morpho.base.target import Target
from morpho.cost.dispatch_thresholds import GEMV_WAY, DispatchThresholds
from morpho.cost.tuned_choices import PLAIN, Choice, Problem
from morpho.ir.node import Node
from morpho.ir.printing import joined


class MatmulRequest:
    """A product that is to be lowered, and what conditions ask about it. `whole_rows`: what follows needs all columns
    of a row at once."""

    def __init__(self, lowering: Lowering, node: Node, shape: Shape, whole_rows: bool) -> None:
        self.lowering, self.node, self.shape, self.whole_rows = lowering, node, shape, whole_rows

    @property
    def op(self) -> str:
        """`matmul`, `matmul_int8` or `matmul_quantised`."""
        name: str = self.node.attributes.get("by", self.node.op.name)
        return name

    @property
    def k(self) -> Size:
        return self.node.inputs[0].shape[-1]

    @property
    def dtype(self) -> DType:
        return self.node.inputs[0].dtype

    @property
    def target(self) -> Target:
        return self.lowering.target

    @property
    def isa(self) -> Isa:
        return self.target.isa

    @cached_property
    def sizes(self) -> tuple[Size, ...]:
        """Batch, m, k and n."""
        return product(self.shape[:-2]), self.shape[-2], self.k, self.shape[-1]

    @cached_property
    def thresholds(self) -> DispatchThresholds:
        """Those in force, with what the tuner has chosen for this problem."""
        return self.lowering.tuned(self.node, self.problem)

    @cached_property
    def problem(self) -> Problem:
        """This product as the tuner sees it."""
        node, target = self.node, self.target
        left = node.inputs[0]
        while left.op.name == "reshape":
            left = left.inputs[0]
        before, after = left.serial in self.lowering.waiting, node.op.name == "gemm"
        words = [operand_word(self.lowering, node.inputs[1]), *["before"] * before, *["after"] * after,
                 *["rows"] * self.whole_rows]
        key = self.lowering.problem_key(node, self.op, self.dtype.name, self.sizes, " ".join(words))
        plain = self.op in ("matmul", "gemm") and not (self.dtype is bfloat16 and self.isa.matrix_units)
        register = register_tile(self.dtype, self.isa) if plain else None
        sizes = tuple(upper(size) for size in self.sizes)
        return Problem(key, "product", node, sizes, (), ((), 0, 0) if register is None else
                       (register.heights, register.vectors, register.lanes),
                       register is not None and register.prefetches, after and not self.whole_rows, before,
                       target.threads, not words[0].startswith("fixed"))

    @cached_property
    def prologue(self) -> PrologueMatmul | None:
        return fused_prologue(self)

    @cached_property
    def matrices(self) -> list[Matrix]:
        """Both operands; to ask for them has the left one computed, and copied where no kernel reads it as it lies."""
        children = self.node.inputs[:2]
        copies = [lambda place, n=child: self.lowering.copied(place, n) for child in children]
        return as_matrices([self.lowering.view(child) for child in children], copies)

    @property
    def given(self) -> tuple[Any, ...]:
        """Common parts of every product, after its dtype and shape."""
        return (self.k, *self.matrices, self.whole_rows, self.target, self.thresholds)

    @cached_property
    def plain(self) -> Matmul:
        """The product on a packed right operand."""
        return PackedMatmul(self.dtype, self.shape, *self.given)

    @cached_property
    def wide(self) -> Matmul:
        """The product with the register tile of the instruction set, however few its columns: a kernel that packs the
        right operand itself has no other."""
        return Matmul(self.dtype, self.shape, *self.given)

    def changes(self, matrix: Matrix) -> bool:
        """Whether an operand changes from call to call, so that packing it is paid for at every call."""
        return not self.lowering.is_fixed(matrix.view)

    def packs_itself(self, found: Matmul) -> bool:
        """Whether the kernel should pack the right operand: it changes, no other product reads it packed, and rows are
        not many."""
        return not (self.whole_rows or vectors_of_tile(found, found.tiling) is None or not self.changes(found.b)
                    or self.lowering.is_shared(self.node))


def fused_prologue(request: MatmulRequest) -> PrologueMatmul | None:
    """The product together with the group on its left: the one place that decides whether they are one kernel.

    That they may be was found by the pass (`passes/fusion/prologue.py`, `product_after`), which the lowering asks
    again and then lets the group wait. Here it is decided whether it pays on this target.
    """
    lowering, node = request.lowering, request.node
    left = group = node.inputs[0]
    while group.op.name == "reshape":
        group = group.inputs[0]
    if request.thresholds.choice.prologue == "split":
        return None
    if group.serial not in lowering.waiting or (left.dtype is bfloat16 and request.isa.matrix_units):
        return None
    if request.shape[-1] == 1 or not isinstance(k := request.k, int) or k < 2:
        return None
    inputs, right = [lowering.view(child) for child in group.inputs], lowering.view(node.inputs[1])
    if all(lowering.is_fixed(place) for place in inputs):  # computed once, before the first call
        return None
    if len(batch_axes(right)) > 1 + OUTER:  # to be copied, by whichever product it is
        return None
    (b,) = as_matrices([right], [])
    found = PrologueMatmul(left.dtype, request.shape, k, b, request.whole_rows, request.target, request.thresholds)
    found.before = lower_body(group, inputs, [found.rows_as(group.shape)], 1)
    if not found.pays or request.packs_itself(found):
        return None
    lowering.waiting.discard(group.serial)
    found.label = joined(operations(group)) + "+"
    return found


@dataclass(frozen=True, slots=True)
class Way:
    """A row of the table: a name, when it can be taken, and how."""

    name: str
    applies: Callable[[MatmulRequest], bool]
    make: Callable[[MatmulRequest], Matmul]


def _is_gemv(request: MatmulRequest) -> bool:
    """Few rows times a matrix that changes: packing it would take longer than the product."""
    plain = request.plain
    return plain.has_few_rows and request.changes(plain.b) and not request.lowering.is_shared(request.node)


def _is_symmetric(request: MatmulRequest) -> bool:
    """A matrix times its transpose; what follows runs on blocks of both sides of the diagonal."""
    a, b = request.matrices
    return (not request.whole_rows and request.target.kind != "cuda"
            and is_symmetric(a, b, request.shape[-2], request.shape[-1], request.k))


def _is_pointwise(request: MatmulRequest) -> bool:
    a, b = request.matrices
    return (not request.whole_rows and not request.changes(a)
            and is_pointwise(request.dtype, request.shape, request.k, a, b, request.isa))


def _pointwise(request: MatmulRequest) -> Matmul:
    a, b = request.matrices
    assert isinstance(request.k, int)
    return PointwiseConv(request.shape, request.k, a, b, request.target)


def _of_bytes(request: MatmulRequest, kind: type[Int8Matmul]) -> Matmul:
    return kind([child.dtype for child in request.node.inputs[:2]], request.shape, *request.given)


def _quantised(request: MatmulRequest) -> Matmul:
    a, b = request.matrices
    if b.columns != 1:
        place = request.lowering.copied(b.view, request.node)
        b = replace(b, view=place, rows=place.strides[-2], columns=place.strides[-1])
    return QuantisedMatmul(request.node["kind"], request.dtype, request.shape, request.k, a, b, request.whole_rows,
                            request.target, request.thresholds)


# For integers in bytes and quantised weights, and for float and integer matrices: best first.
WAYS: Mapping[str, tuple[Way, ...]] = {
    "matmul_int8": (
        Way("int8 gemm on matrix units", lambda r: r.isa.matrix_units, lambda r: _of_bytes(r, AmxInt8Matmul)),
        Way("int8 gemm", lambda r: True, lambda r: _of_bytes(r, Int8Matmul)),
    ),
    "matmul_quantised": (Way("gemm on quantised weights", lambda r: True, _quantised),),
    "matmul": (
        Way("pointwise convolution by a constant left operand", _is_pointwise, _pointwise),
        Way("bfloat16 gemm on matrix units", lambda r: r.dtype is bfloat16 and r.isa.matrix_units,
            lambda r: AmxBf16Matmul(r.dtype, r.shape, *r.given)),
        Way(GEMV_WAY, _is_gemv, lambda r: GemvMatmul(r.dtype, r.shape, *r.given)),
        Way("gemm of a matrix and its transpose", _is_symmetric,
            lambda r: SymmetricMatmul(r.dtype, r.shape, *r.given)),
        Way("gemm that packs B itself", lambda r: r.packs_itself(r.wide),
            lambda r: UnpackedMatmul(r.dtype, r.shape, *r.given)),
        Way("gemm on a packed B", lambda r: True, lambda r: r.plain),
    ),
}


def choose_matmul(request: MatmulRequest) -> Matmul:
    """The product by the first way that applies. A fused prologue comes before all: its left operand is never in
    memory, where the others would read it."""
    if request.prologue is not None:
        request.prologue.choice = _said("gemm with a fused prologue", [], request.thresholds.choice)
        return request.prologue
    applied = [way for way in WAYS.get(request.op, WAYS["matmul"]) if way.applies(request)]
    choice = request.thresholds.choice
    taken = next((way for way in applied if way.name == choice.way), applied[0])
    request.lowering.offer(request.problem.key, [way.name for way in applied])
    found = taken.make(request)
    found.thresholds = request.thresholds
    found.choice = _said(taken.name, [way.name for way in applied if way is not taken], choice)
    return found


DIRECT, IMPLICIT, WEIGHTS = "direct convolution", "implicit gemm", "weight gradient"


def choose_conv(lowering: Lowering, node: Node, shape: Shape, how: Mapping[str, Any],
                last: bool = False) -> ImplicitGemmConv | WeightGradientConv:
    """The convolution of a node's first input by its second: on lines of the image where they lie, or as an implicit
    GEMM; by a window as large as an image, where nothing follows it, as the gradient of weights. What follows wants the
    channels `last`: it can have them so only where the convolution found says it."""
    x, weight = (lowering.view(child) for child in node.inputs[:2])
    windows = Windows(how["before"], how["steps"], how["dilations"], how["groups"])
    ways = [DIRECT, IMPLICIT] if is_direct(shape, x, weight, windows, lowering.target.isa) else [IMPLICIT]
    if node.op.name == "conv" and is_weight_gradient(shape, x, weight, windows, lowering.target.isa):
        ways = [WEIGHTS, *ways]
    sizes = (*shape, *weight.shape[1:])
    key = lowering.problem_key(node, "conv", x.dtype.name, sizes,
                               " ".join(str(number) for pair in (how["steps"], how["dilations"]) for number in pair))
    thresholds = lowering.tuned(node, Problem(key, "conv", node, tuple(upper(size) for size in sizes), tuple(ways),
                                              has_epilogue=node.op.name == "gemm", threads=lowering.target.threads))
    taken = thresholds.choice.way if thresholds.choice.way in ways else ways[0]
    found: ImplicitGemmConv | WeightGradientConv
    if taken == WEIGHTS:
        found = WeightGradientConv(shape, x, weight, windows, lowering.target)
    elif taken == DIRECT:
        found = DirectConv(shape, x, weight, windows, lowering.target, last)
    else:
        found = ImplicitGemmConv(shape, x, weight, windows, lowering.target, thresholds)
    found.thresholds = thresholds
    found.choice = _said(taken, [way for way in ways if way != taken], thresholds.choice)
    return found


def _said(chosen: str, others: list[str], choice: Choice = PLAIN) -> str:
    by_tuner = "" if choice.is_default else f"; from the tuner: {choice.said()}"
    return chosen + (f", not {' or '.join(others)}" if others else "") + by_tuner
