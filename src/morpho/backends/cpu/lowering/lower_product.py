"""From a product or a convolution to its steps: which kernel multiplies, what is packed before, what follows at once.

`Product` (`lower_gemm.py`) and its kin are the ways to multiply; here one of them is chosen for a node, by what is
known of its operands: sizes, how they lie, whether they are there before the first call, who else reads them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from morpho.backends.cpu.conv.direct_conv import DirectProduct, PointwiseProduct, is_direct, is_pointwise
from morpho.backends.cpu.conv.implicit_gemm import WindowProduct, Windows, kernel_strides
from morpho.backends.cpu.gemm.amx import BfloatTiles, ByteTiles
from morpho.backends.cpu.gemm.gemm import EPILOGUE, OUTER
from morpho.backends.cpu.gemm.gemv import FOLLOWED_GEMV, GEMV, RowProduct, way_of
from morpho.backends.cpu.gemm.matmul import (
    PRODUCT,
    Product,
    as_matrices,
    batch_axes,
    follows,
    layout,
    loop_scratch,
)
from morpho.backends.cpu.gemm.prologue import LEFT, PrologueProduct
from morpho.backends.cpu.gemm.unpacked_gemm import UnpackedProduct, vectors_of_tile
from morpho.backends.cpu.loops.loop_spec import LoopCall
from morpho.backends.cpu.lowering.builder import Builder, operations, reads_first
from morpho.backends.cpu.lowering.lower_group import lower_body, lower_copy
from morpho.backends.cpu.quantised.int8 import ByteProduct
from morpho.backends.cpu.quantised.quantised import QuantisedProduct
from morpho.base.dims import Shape
from morpho.base.dtypes import bfloat16
from morpho.base.target import Target
from morpho.cost.dispatch_thresholds import Crossovers
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.ir.printing import joined
from morpho.program.co_schedule import LEAST_OF
from morpho.program.program import HostStep, Step
from morpho.program.view import Place, whole

PRODUCTS = ("matmul", "gemm")  # nodes with a right operand that may be packed


class ProductLowering(Builder):
    """Products of one graph, and what was packed for them."""

    def __init__(self, graph: Graph, own_outputs: bool, inputs: int, target: Target, constants: Collection[int],
                 crossovers: Crossovers) -> None:
        super().__init__(inputs, own_outputs)
        self.graph, self.target, self.constants, self.crossovers = graph, target, constants, crossovers
        self.packs: dict[Any, Place] = {}  # packed right operands of products
        self.right_operands: Counter[int] | None = None  # how many products have a node, by serial, on their right
        self.fixed: set[int] = set()  # slots that only constants decide, as far as steps were looked at
        self.looked_at = 0

    # -- nodes ---------------------------------------------------------------------------------------------------------
    def lower_matmul(self, node: Node) -> None:
        shape = node.shape
        if node.op.name == "matmul_quantised" and shape[-1] == 1:  # a second column, of zeros: tiles are matrices
            shape = (*shape[:-1], 2)
        c = self.new_slot(shape, node.dtype)
        found = self.product(node, shape, False)
        if self.is_direct(node, found):
            self.multiply_directly(node, found, c)
            self.places[node.serial] = [c]
            return
        # Rows and columns of the copy are those of the tiles, also where an axis has one element.
        self.multiply_into(node, found, c, 2 if found.swapped else 1, "matmul")
        self.places[node.serial] = [c if shape == node.shape else replace(c, shape=node.shape)]

    def lower_conv(self, node: Node) -> None:
        target = self.new_slot(node.shape, node.dtype)
        found = self.windows(node, node.shape, node.attributes)
        self.multiply_into(node, found, target, 2, "conv")
        self.places[node.serial] = [target]

    def lower_gemm(self, node: Node) -> None:
        """A product or a convolution, and the group that follows it."""
        inputs = [self.place(child) for child in node.inputs[2:]]
        targets = [self.new_slot(spec.shape, spec.dtype) for spec in node.outputs]
        space, columns, windows = node["space"], node["columns"], node["windows"]

        def follow(seen: Place) -> LoopCall:
            places = [*inputs[:node["product"]], seen, *inputs[node["product"]:]]
            return lower_body(node, places, targets, columns)

        kind, shown = "conv" if windows else "matmul", joined(operations(node))
        if windows:
            found = self.windows(node, node["shape"], dict(windows))
        else:
            found = self.product(node, node["shape"], bool(node["axes"]))
        if not windows and self.is_direct(node, found):
            apart = self.new_slot(node["shape"], node["dtype"])
            after = follow(whole(apart.slot, space, apart.dtype))
            if not self.multiply_directly(node, found, apart, after, f"+{shown}"):
                self.step(after, node, shown)
        elif not self.multiply(node, found, follow(found.seen(space, columns)), f"{kind}+{shown}"):
            apart = self.new_slot(node["shape"], node["dtype"])
            self.multiply_into(node, found, apart, 2 if windows else 1, kind)
            self.step(follow(whole(apart.slot, space, apart.dtype)), node, shown)
        self.places[node.serial] = targets

    # -- which kernel --------------------------------------------------------------------------------------------------
    def product(self, node: Node, shape: Shape, whole_rows: bool) -> Product:
        found = self.with_prologue(node, shape, whole_rows)
        return self.alone(node, shape, whole_rows) if found is None else found

    def with_prologue(self, node: Node, shape: Shape, whole_rows: bool) -> PrologueProduct | None:
        """The product together with the group on its left, if that waits for it and if that pays."""
        left = group = node.inputs[0]
        while group.op.name == "reshape":
            group = group.inputs[0]
        k, tiles = left.shape[-1], left.dtype is bfloat16 and self.target.isa.matrix_units
        if group.serial not in self.waiting or tiles or shape[-1] == 1 or not isinstance(k, int) or k < 2:
            return None
        inputs, right = [self.place(child) for child in group.inputs], self.place(node.inputs[1])
        if all(self.is_fixed(place) for place in inputs):  # computed once, before the first call
            return None
        if len(batch_axes(right)) > 1 + OUTER:  # to be copied, by whichever product it is
            return None
        (b,) = as_matrices([right], [])
        found = PrologueProduct(left.dtype, shape, k, b, whole_rows, self.target, self.crossovers_of(node))
        found.before = lower_body(group, inputs, [found.rows_as(group.shape)], 1)
        if not found.pays or self.packs_itself(node, found, whole_rows):
            return None
        self.waiting.discard(group.serial)
        found.label = joined(operations(group)) + "+"
        return found

    def alone(self, node: Node, shape: Shape, whole_rows: bool) -> Product:
        children = node.inputs[:2]
        a, b = as_matrices([self.place(child) for child in children],
                           [lambda place, n=child: self.copied(place, n) for child in children])  # type: ignore[misc]
        left, by = node.inputs[0], node.attributes.get("by", node.op.name)
        crossovers = self.crossovers_of(node)
        given = (left.shape[-1], a, b, whole_rows, self.target, crossovers)
        if by == "matmul_int8":
            of_bytes = ByteTiles if self.target.isa.matrix_units else ByteProduct
            return of_bytes([child.dtype for child in node.inputs[:2]], shape, *given)
        if by == "matmul_quantised":
            if b.columns != 1:
                place = self.copied(b.place, node)
                b = replace(b, place=place, rows=place.strides[-2], columns=place.strides[-1])
            return QuantisedProduct(node["kind"], left.dtype, shape, left.shape[-1], a, b, whole_rows, self.target,
                                    crossovers)
        k, isa = left.shape[-1], self.target.isa
        if not whole_rows and self.is_fixed(a.place) and is_pointwise(left.dtype, shape, k, a, b, isa):
            return PointwiseProduct(shape, k, a, b, self.target)
        if left.dtype is bfloat16 and self.target.isa.matrix_units:
            return BfloatTiles(left.dtype, shape, *given)
        found = Product(left.dtype, shape, *given)
        return UnpackedProduct(left.dtype, shape, *given) if self.packs_itself(node, found, whole_rows) else found

    def crossovers_of(self, node: Node) -> Crossovers:
        """Those for a product of which its user may have said how many threads it shall have."""
        points = LEAST_OF.get(node.attributes.get("threads", "auto"))
        return self.crossovers if points is None else replace(self.crossovers, shared_points=points)

    def packs_itself(self, node: Node, found: Product, whole_rows: bool) -> bool:
        """Whether the kernel should pack the right operand: it changes from call to call, and rows are not many."""
        return not (whole_rows or vectors_of_tile(found, found.tiling) is None or self.is_fixed(found.b.place)
                    or self.is_shared(node))

    def windows(self, node: Node, shape: Shape, how: Mapping[str, Any]) -> Product:
        """The convolution of a node's first input by its second."""
        x, weight = (self.place(child) for child in node.inputs[:2])
        if kernel_strides(weight, how["groups"]) is None:
            weight = self.copied(weight, node)
        windows = Windows(how["before"], how["steps"], how["dilations"], how["groups"])
        if is_direct(shape, x, weight, windows, self.target.isa):
            return DirectProduct(shape, x, weight, windows, self.target)
        return WindowProduct(shape, x, weight, windows, self.target, self.crossovers)

    def is_direct(self, node: Node, found: Product) -> bool:
        """Whether it is a few rows times a matrix that changes from call to call: packing it would take longer than
        the product."""
        return found.has_few_rows and not self.is_fixed(found.b.place) and not self.is_shared(node)

    def is_shared(self, node: Node) -> bool:
        """Whether more than two products have this right operand: it is packed once for all of them."""
        if self.right_operands is None:
            self.right_operands = Counter(product.inputs[1].serial for product in self.graph.nodes
                                          if product.op.name in PRODUCTS and len(product.inputs) > 1)
        return self.right_operands[node.inputs[1].serial] > 2

    def is_fixed(self, place: Place) -> bool:
        """Whether a value is there before the first call: a constant, or made of constants alone (`hoist.py`)."""
        for step in self.program.steps[self.looked_at:]:
            if isinstance(step, HostStep):
                continue
            targets = {place.slot for place in step.written}
            if step.reads and all(self.is_constant(read.slot) for read in step.reads):
                self.fixed |= targets
            else:
                self.fixed -= targets
        self.looked_at = len(self.program.steps)
        return self.is_constant(place.slot)

    def is_constant(self, number: int) -> bool:
        slot = self.program.slots[number]
        return number in self.fixed or (slot.kind == "input" and slot.index in self.constants)

    # -- steps ---------------------------------------------------------------------------------------------------------
    def multiply(self, node: Node, found: Product, after: LoopCall, label: str) -> bool:
        """One step for a product whose tiles `after` writes where they belong; False when that kernel cannot run tile
        by tile."""
        if not follows(after):
            return False
        packed = found.b.place if found.packs_right else self.packed(found, node)
        before = found.before
        places = [None if p is not None and p.slot in (PRODUCT, LEFT) else p
                  for p in (found.a.place, packed, *after.places, *(before.places if before else ()))]
        writes = tuple(i + 2 for i, access in enumerate(after.kernel.accesses) if access.kind == "store")
        self.add(Step(
            found.kernel(), tuple(places), writes, found.values(after), found.items, found.work_per_item,
            found.label + label, node.origin, in_place=reads_first(after.kernel), epilogue=after.kernel,
            prologue=before.kernel if before else None, prologue_at=2 + len(after.places) if before else 0,
            scratch=found.scratch(after.kernel)[2], threads=node.attributes.get("threads", "auto"), sizes=found.sizes,
            operations=found.batch * found.m * (found.n * (2 * found.k + after.kernel.flops)
                                                + (found.k * before.kernel.flops if before else 0))))
        return True

    def multiply_into(self, node: Node, found: Product, target: Place, columns: int, label: str) -> None:
        """One step for a product that is written as it is; the last `columns` axes of the target are its columns."""
        found.straight = found.goes_straight(target)
        written = self.multiply(node, found, lower_copy(found.tile, target, columns), label)
        assert written, f"{label}: a copy reads every tile once, in its own order"

    def multiply_directly(self, node: Node, found: Product, target: Place, after: LoopCall | None = None,
                          label: str = "") -> bool:
        """One step that reads the right operand as it lies; whether it computes what comes `after` too."""
        a, b, nbytes = found.a, found.b, found.n * found.k * found.dtype.itemsize
        if after is not None and ((after.rows, after.columns) != (found.batch * found.m, found.n)
                                  or not after.kernel.is_plain):
            after = None  # it has rows and columns of its own, or needs whole rows
        kernel = RowProduct(found.dtype, way_of(layout(b.rows, b.columns, ("rows", "columns")), nbytes),
                            after is not None)
        tiles, tile = found.direct_tiles
        numbers: dict[str, Any] = {
            "m": found.m, "n": found.n, "k": found.k, "a_batch": a.batch, "a_m": a.rows, "a_k": a.columns,
            "b_batch": b.batch, "b_k": b.rows, "b_n": b.columns, "batches": found.batches, "a_outer": a.outer,
            "b_outer": b.outer, "tiles": tiles, "tile": tile}
        values = GEMV.values(**numbers)
        places, writes, flops = (a.place, b.place, target), (2,), 2 * found.k
        more: dict[str, Any] = {}
        if after is not None:
            stores = [i for i, access in enumerate(after.kernel.accesses) if access.kind == "store"]
            places, writes, flops = places + after.places, (2, *(3 + i for i in stores)), flops + after.kernel.flops
            values = (*FOLLOWED_GEMV.values(**numbers, unused=[0] * (EPILOGUE - len(GEMV)), epilogue=0), *after.values)
            more = {"epilogue": after.kernel, "in_place": reads_first(after.kernel),
                    "scratch": loop_scratch(after.kernel, found.n)}
        self.add(Step(kernel, places, writes, values, found.batch * tiles, found.m * tile * found.k,
                      "matmul (unpacked)" + (label if after is not None else ""), node.origin,
                      threads=node.attributes.get("threads", "auto"), sizes=found.sizes,
                      operations=found.batch * found.m * found.n * flops, **more))
        return after is not None

    def packed(self, found: Product, node: Node) -> Place:
        """The right operand in panels; one operand used by several products is packed once, and again where it is read
        again, so that nothing is kept in between."""
        source, values = found.b.place, found.pack_values()
        key = (source, found.pack_kernel(), values, () if self.is_fixed(source) else self.waits(node.inputs[1]))
        if key not in self.packs:
            target = self.new_slot(found.packed_shape, source.dtype)
            panels = found.packed_shape[0] * found.packed_shape[1]
            self.add(Step(found.pack_kernel(), (source, target), (1,), values, panels,
                          found.k * found.register.width, "pack", node.origin))
            self.packs[key] = target
        return self.packs[key]

    @staticmethod
    def waits(node: Node) -> tuple[int, ...]:
        """What must be there before a value is read, by serial."""
        found: list[int] = []
        while "view" in node.op.properties:
            found += [child.serial for child in node.inputs[1:]]
            node = node.inputs[0]
        return tuple(found)
