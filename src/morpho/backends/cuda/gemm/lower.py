"""From a product to its step: operands as matrices over batch axes, and the kernel whose tiles suit them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from morpho.backends.cuda.gemm.epilogue import Epilogue
from morpho.backends.cuda.gemm.half.few_rows import MANY_COLUMNS, MOST_ROWS, NARROW, WIDE
from morpho.backends.cuda.gemm.spec import BATCH_AXES, PRODUCT, ProductKernel
from morpho.backends.cuda.layout import CHUNK, odd_rows, product_place, stays_inside
from morpho.backends.kernels.loops.loop_spec import LoopCall
from morpho.backends.lowering.groups.lower_group import lower_body
from morpho.backends.lowering.lowering import Lowering, operations
from morpho.base.dims import Size, divide, product
from morpho.base.dtypes import DType, bfloat16, float16, float32
from morpho.cost.tuned_choices import Problem
from morpho.ir.node import Node
from morpho.ir.printing import joined
from morpho.program.program import Step
from morpho.program.view import View, whole

LARGE, MIDDLE, SMALL = (128, 128, 8, 8), (64, 64, 4, 4), (32, 32, 2, 2)
MANY_TILES = 132  # large tiles that fill a GPU
NOWHERE = -1  # the slot of a product that is never in memory
# Of one round over all multiprocessors, about, as measured on an H200: of a product alone, of one with what follows.
TILE_COSTS = {(128, 256): 1.0, (128, 192): 0.79, (128, 128): 0.56, (64, 128): 0.34, (64, 64): 0.22}
FOLLOWED_COSTS = TILE_COSTS | {(128, 192): 0.72, (128, 128): 0.5}
DEEP, DEEP_COSTS = 2048, TILE_COSTS | {(128, 192): 0.7}  # from so many values of k on


class Multiply(Protocol):
    """The step of a product of a node's first two inputs; with what follows it, or none at all where it cannot be one
    step."""

    def __call__(self, low: Lowering, node: Node, shape: tuple[Size, ...], target: View,
                 following: Following | None = None) -> bool: ...


def lower_matmul(low: Lowering, node: Node) -> None:
    """A product as the user wrote it."""
    lower_product(low, node, multiply_by)


def lower_gemm(low: Lowering, node: Node) -> None:
    """A product and the group that follows it."""
    lower_followed(low, node, multiply_by)


def follows(by: str) -> Callable[[Node], bool]:
    """Whether the product that a group follows is this one, and no convolution."""
    return lambda node: not node["windows"] and product_of(node) == by


def product_of(node: Node) -> str:
    """The op of a product: of a `gemm`, the one that its group follows."""
    name: str = node.attributes.get("by", node.op.name)
    return name


def lower_product(low: Lowering, node: Node, multiply: Multiply) -> None:
    low.views[node.serial] = [multiplied(low, node, node.shape, node.dtype, multiply)]


def multiplied(low: Lowering, node: Node, shape: tuple[Size, ...], dtype: DType, multiply: Multiply) -> View:
    """A product of a node's first two inputs, in memory of its own. Where its rows would begin anywhere and its
    columns would not, it is computed turned: b^T a^T has the same sums."""
    if product_of(node) == "matmul" and turns(shape, dtype) and stays_inside(low, node):
        turned = low.new_slot((*shape[:-2], shape[-1], shape[-2]), dtype)
        multiply_by(low, node, turned.shape, turned, turned=True)
        return View(turned.slot, 0, shape, (*turned.strides[:-2], turned.strides[-1], turned.strides[-2]), dtype)
    target = product_place(low, node, shape, dtype)
    multiply(low, node, shape, target)
    return target


def lower_followed(low: Lowering, node: Node, multiply: Multiply) -> None:
    inputs = [low.view(child) for child in node.inputs[2:]]
    targets = [low.new_slot(spec.shape, spec.dtype) for spec in node.outputs]
    if not multiply_and_follow(low, node, inputs, targets, multiply):
        if node["shape"] == node["space"]:
            seen = multiplied(low, node, node["shape"], node["dtype"], multiply)
        else:
            apart = low.new_slot(node["shape"], node["dtype"])
            multiply(low, node, node["shape"], apart)
            seen = whole(apart.slot, node["space"], apart.dtype)
        places = [*inputs[:node["product"]], seen, *inputs[node["product"]:]]
        low.step(lower_body(node, places, targets), node, joined(operations(node)))
    low.views[node.serial] = targets


def multiply_and_follow(low: Lowering, node: Node, inputs: list[View], targets: list[View],
                        multiply: Multiply) -> bool:
    """One step for the product and what follows it, where registers hold all that it needs."""
    shape, space = node["shape"], node["space"]
    if node["axes"] or space[-1] != shape[-1]:
        return False
    product_view = whole(NOWHERE, space, node["dtype"])
    call = lower_body(node, [*inputs[:node["product"]], product_view, *inputs[node["product"]:]], targets, 1)
    own = tuple(n for n, view in enumerate(call.views) if view is not None and view.slot == NOWHERE)
    if not may_follow(call, own, shape[-1]):
        return False
    places = tuple(None if n in own else view for n, view in enumerate(call.views))
    return multiply(low, node, shape, whole(NOWHERE, shape, node["dtype"]),
                    Following(Epilogue(call.kernel, own), places, call.values))


def multiply_by(low: Lowering, node: Node, shape: tuple[Size, ...], target: View,
                following: Following | None = None, turned: bool = False) -> bool:
    """The step of a product of a node's first two inputs; with what follows it, or none at all where it cannot be
    one step."""
    a, b = (low.view(child) for child in node.inputs[:2])
    if turned:
        a, b = _turned(b), _turned(a)
    batch = batch_axes(shape[:-2], a, b, target)
    if len(batch) > BATCH_AXES:
        a, b = low.copied(a, node), low.copied(b, node)
        batch = batch_axes(shape[:-2], a, b, target)
    assert len(batch) <= BATCH_AXES, "a product over more than four batch axes"
    m, n, k = shape[-2], shape[-1], a.shape[-1]
    if len(batch) == 1 and batch[0][2] == 0 and batch[0][1] == m * a.strides[-2]:  # one matrix for all rows
        m, batch = batch[0][0] * m, []
    sizes, a_batch, b_batch, c_batch = ([axis[i] for axis in batch] + [int(i == 0)] * (BATCH_AXES - len(batch))
                                        for i in range(4))
    values = PRODUCT.values(m=m, n=n, k=k, a_m=a.strides[-2], a_k=a.strides[-1], b_k=b.strides[-2],
                            b_n=b.strides[-1], c_m=target.strides[-2], c_n=target.strides[-1], batches=sizes,
                            a_batch=a_batch, b_batch=b_batch, c_batch=c_batch)
    left = "k" if a.strides[-1] == 1 else "m" if a.strides[-2] == 1 else ""
    right = "n" if b.strides[-1] == 1 else "k" if b.strides[-2] == 1 else ""
    count = product(tuple(sizes))
    kernel = ProductKernel(a.dtype, target.dtype, left, right, tile_of(count, m, n))
    if in_chunks(a, b, left, right, values):
        if "wgmma" in low.target.machine.features and by_copy_engine(left, right, values):
            costs = FOLLOWED_COSTS if following is not None else DEEP_COSTS if k >= DEEP else TILE_COSTS
            kernel = replace(kernel, tile=_group_tile(count, m, n, costs), way="wgmma")
        elif whole_chunks(left, right, values):
            kernel = replace(kernel, tile=warp_tile(count, m, n), way="mma")
        kernel = replace(kernel, wide=kernel.way != "simt" and is_wide(target, values))
        known = left == "k" and count == 1 and isinstance(m, int) and isinstance(k, int)
        known = known and whole_chunks(left, right, values)
        if known and 0 < m <= MOST_ROWS and k > 0:
            kernel = replace(kernel, tile=_few_rows_tile(int(m), n, int(k)), way="few",
                             still=low.program.slots[b.slot].kind == "input")
    if a.dtype is float32 and "tf32" in low.target.machine.features:  # whatever the number of rows
        kernel = replace(kernel, tile=tf32_tile(count, m, n), way="tf32")
    kernel = with_tuned_tile(low, node, kernel, (count, m, n, k))
    wins = following is not None or not kernel.wide or kernel.tile[1] == max(tile[1] for tile in TILE_COSTS)
    kernel = replace(kernel, handed=wins and kernel.way == "wgmma" and has_rounds(kernel, (count, m, n)))
    work = 2 * product(tuple(sizes)) * m * n * k
    if following is not None:
        if kernel.way in ("simt", "tf32") or not kernel.wide:
            return False
        kernel, loop = replace(kernel, epilogue=following.epilogue), following.epilogue.loop
        stores = tuple(2 + n for n, access in enumerate(loop.accesses) if access.kind == "store")
        low.add(FollowedStep(kernel, (a, b, *following.places), stores, (*values, *following.values), 1, m * n * k,
                             joined(["matmul", *operations(node)]), node.origin, in_place=kernel.way != "few",
                             operations=work, choice=f"tensor cores ({kernel.way}), with what follows"))
        return True
    low.add(Step(kernel, (a, b, target), (2,), values, 1, m * n * k, "matmul", node.origin, operations=work,
                 choice=f"tensor cores ({kernel.way})" if kernel.way != "simt" else "arithmetic units"))
    return True


def with_tuned_tile(low: Lowering, node: Node, kernel: ProductKernel, sizes: tuple[Size, ...]) -> ProductKernel:
    """The kernel with the tile that the tuner has found: every tile sums in the same order."""
    tiles = {"wgmma": [(*tile, 64, tile[1]) for tile in TILE_COSTS], "simt": [LARGE, MIDDLE, SMALL]}.get(kernel.way)
    if tiles is None or not all(isinstance(size, int) for size in sizes):
        return kernel
    ways = {"{}x{}".format(*tile): tile for tile in (kernel.tile, *tiles)}
    more = f"{kernel.way} {kernel.left or '-'}{kernel.right or '-'}"
    key = low.problem_key(node, "matmul", kernel.dtype.name, sizes, more)
    numbers = tuple(int(size) for size in sizes)
    chosen = low.tuned(node, Problem(key, "device", node, numbers, tuple(ways))).choice.way
    return replace(kernel, tile=ways.get(chosen, kernel.tile))


@dataclass(slots=True)
class FollowedStep(Step):
    """A product with what follows it. A thread reads what it needs of a chunk of results before it writes them, so
    these may lie over what is read there (an optimiser's states), but not over the two sides of the product."""

    @property
    def operands(self) -> set[int]:
        """Both sides: other blocks read them to the end."""
        return {place.slot for place in self.views[:2] if place is not None}


class Following(NamedTuple):
    """Epilogue of a product: its operands, None for the product itself, and its numbers."""

    epilogue: Epilogue
    places: tuple[View | None, ...]
    values: tuple[Size, ...]


def may_follow(call: LoopCall, own: tuple[int, ...], columns: Size) -> bool:
    """Whether a loop over the elements of a product can take them from registers, eight columns at a time: rows of both
    are counted alike, and everything else it reads or writes lies side by side or is one number of a row."""
    kernel = call.kernel
    if not own or not kernel.is_plain or kernel.inner_rank != 1 or kernel.gathers or kernel.may_fault:
        return False
    if len(kernel.passes) != 1 or not all(store.full for store in kernel.stores) or call.columns != columns:
        return False
    record, rank = kernel.record.by_name(call.values), kernel.outer_rank + 1
    step: Size = columns
    along: list[Size] = []
    for axis in reversed(range(kernel.outer_rank)):
        along.insert(0, step if record[f"outer{axis}"] != 1 else 0)  # an axis of one row has no step
        step = step * record[f"outer{axis}"]
    for number, access in enumerate(kernel.accesses):
        strides = [record[f"strides{number * rank + axis}"] for axis in range(kernel.outer_rank)]
        view = call.views[number]
        if access.kind not in ("load", "store") or access.guards or access.other >= 0 or view is None:
            return False
        if number in own:
            steps = [stride if after else 0 for stride, after in zip(strides, along, strict=True)]
            if access.kind != "load" or access.pattern != "unit" or steps != along or view.offset != 0:
                return False
        elif access.pattern == "unit":
            if not all(isinstance(n, int) and n % 8 == 0 for n in (*strides, view.offset)):
                return False
        elif access.pattern != "zero" or access.kind == "store":
            return False
    return True


def turns(shape: tuple[Size, ...], dtype: DType) -> bool:
    """Whether a product of half floats has long rows that are no whole chunks, and columns that are."""
    return dtype in (bfloat16, float16) and len(shape) == 2 and odd_rows(shape) and isinstance(shape[-2], int) \
        and shape[-2] % CHUNK == 0


def _turned(place: View) -> View:
    """A matrix with its last two axes exchanged."""
    shape, strides = ((*numbers[:-2], numbers[-1], numbers[-2]) for numbers in (place.shape, place.strides))
    return replace(place, shape=shape, strides=strides)


def whole_chunks(left: str, right: str, values: tuple[Size, ...]) -> bool:
    """Whether lines of both operands are whole chunks: `cp.async` reads no parts of one."""
    numbers = PRODUCT.by_name(values)
    ends = (numbers["k"] if left == "k" else numbers["m"], numbers["k"] if right == "k" else numbers["n"])
    return all(isinstance(n, int) and n % 8 == 0 for n in ends)


def in_chunks(a: View, b: View, left: str, right: str, values: tuple[Size, ...]) -> bool:
    """Whether lines of both operands are half floats that begin on 16 bytes; the copy engine puts zeros behind them."""
    if a.dtype not in (bfloat16, float16) or a.dtype is not b.dtype or not left or not right:
        return False
    numbers = PRODUCT.by_name(values)
    steps = [numbers["a_m"] if left == "k" else numbers["a_k"], numbers["b_n"] if right == "k" else numbers["b_k"],
             *(numbers[f"{side}_batch{axis}"] for side in "ab" for axis in range(BATCH_AXES)), a.offset, b.offset]
    return all(divide(n, CHUNK) is not None for n in steps)  # the last row of so many begins there too


def by_copy_engine(left: str, right: str, values: tuple[Size, ...]) -> bool:
    """Whether tensor maps describe the operands: one batch axis at most, and no line twice. It does not depend on the
    number of rows: those of one matrix have the same bits however many there are."""
    numbers = PRODUCT.by_name(values)
    lines = (numbers["a_m"] if left == "k" else numbers["a_k"], numbers["b_n"] if right == "k" else numbers["b_k"])
    batches = all(numbers[f"batches{axis}"] == 1 for axis in range(1, BATCH_AXES))
    apart = numbers["batches0"] == 1 or 0 not in (numbers["a_batch0"], numbers["b_batch0"])
    return isinstance(numbers["k"], int) and numbers["k"] > 0 and 0 not in lines and batches and apart


def is_wide(target: View, values: tuple[Size, ...]) -> bool:
    """Whether rows of the result are whole chunks of eight numbers side by side."""
    numbers = PRODUCT.by_name(values)
    steps = (numbers["n"], numbers["c_m"], numbers["c_batch0"], target.offset)
    return numbers["c_n"] == 1 and all(isinstance(step, int) and step % 8 == 0 for step in steps)


def _group_tile(batch: Size, m: Size, n: Size, costs: dict[tuple[int, int], float]) -> tuple[int, int, int, int]:
    """The tile whose rounds over all multiprocessors take least; every tile sums in the same order."""
    if not all(isinstance(size, int) for size in (batch, m, n)):
        return 64, 64, 64, 64

    def cost(tile: tuple[int, int]) -> float:
        tiles = int(batch) * -(-int(m) // tile[0]) * -(-int(n) // tile[1])
        return -(-tiles // MANY_TILES) * costs[tile]

    rows, columns = min(costs, key=cost)
    return rows, columns, 64, columns


def has_rounds(kernel: ProductKernel, sizes: tuple[Size, ...]) -> bool:
    """Whether blocks have several tiles of half floats each, so that the sums of one can be written during the next."""
    if kernel.result not in (bfloat16, float16) or not all(isinstance(size, int) for size in sizes):
        return False
    batch, m, n = (int(size) for size in sizes)
    return batch * -(-m // kernel.tile[0]) * -(-n // kernel.tile[1]) > MANY_TILES


def _few_rows_tile(m: int, n: Size, k: int) -> tuple[int, int, int, int]:
    """Rows that a block has room for, its columns, the values of k, and whether there is one row."""
    many = isinstance(n, int) and n >= MANY_COLUMNS
    return 8 if m <= 8 else MOST_ROWS, WIDE if many else NARROW, k, int(m == 1)


def warp_tile(batch: Size, m: Size, n: Size) -> tuple[int, int, int, int]:
    """Large tiles where there are enough of them."""
    if all(isinstance(size, int) for size in (batch, m, n)):
        for tile in ((128, 256, 64, 64), (128, 128, 64, 32)):
            if int(batch) * -(-int(m) // tile[0]) * -(-int(n) // tile[1]) >= MANY_TILES:
                return tile
    return 64, 64, 32, 32


def tf32_tile(batch: Size, m: Size, n: Size) -> tuple[int, int, int, int]:
    """Rows and columns of a block and of a warp: large tiles where there are enough of them."""
    large = warp_tile(batch, m, n) != (64, 64, 32, 32)
    return (128, 128, 64, 32) if large else (64, 64, 32, 32)


def tile_of(batch: Size, m: Size, n: Size) -> tuple[int, int, int, int]:
    """Large tiles where there are enough of them."""
    for tile in (LARGE, MIDDLE):
        if all(isinstance(size, int) for size in (batch, m, n)):
            if int(batch) * (int(m) // tile[0]) * (int(n) // tile[1]) >= MANY_TILES:
                return tile
    return SMALL


def batch_axes(shape: tuple[Size, ...], a: View, b: View, c: View) -> list[tuple[Size, Size, Size, Size]]:
    """Batch axes as (size, strides of A, B and C), outermost first; those that all walk as one are joined."""
    found: list[tuple[Size, Size, Size, Size]] = []
    rank = len(shape)
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        steps = []
        for place in (a, b, c):
            at = len(place.shape) - 2 - rank + axis
            steps.append(0 if at < 0 or place.shape[at] == 1 else place.strides[at])
        if found and all(before == step * size for before, step in zip(found[-1][1:], steps, strict=True)):
            found[-1] = (found[-1][0] * size, steps[0], steps[1], steps[2])
        else:
            found.append((size, steps[0], steps[1], steps[2]))
    return found
