"""Parts of both kernels of the gradient, on `mma.sync` (FlashAttention-2's, without its atomic adds).

A warp has 16 or 32 lines of the block's own operand (queries for dq, keys for dk and dv) and walks over blocks of 64
lines of the other one, which two stages of shared memory hold. Its results stay in registers.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, Protocol

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.cuda.attention.backward_spec import BACKWARD, BackwardSpec
from morpho.backends.cuda.attention.spec import BATCH_AXES
from morpho.backends.cuda.codegen.grid import WARP, GridEmitter, Header, entry
from morpho.backends.cuda.codegen.warp_math import pack
from morpho.backends.cuda.gemm.half.fragments import Fragments
from morpho.base.dtypes import bool_

WARPS = 4


class Blocks(Protocol):
    """The shape of a block (`backward.BackwardGrid`)."""

    @property
    def spec(self) -> BackwardSpec: ...
    @property
    def aligned(self) -> bool: ...
    @property
    def padded(self) -> tuple[int, int]: ...
    @property
    def tiles(self) -> int: ...
    @property
    def at_once(self) -> int: ...
    @property
    def lines(self) -> int: ...
    @property
    def own_bytes(self) -> int: ...
    @property
    def stage_bytes(self) -> int: ...
    @property
    def block(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def words(self) -> int: ...


class BackwardCode:
    """Base of both kernels. Own lines are rows of the scores here, those of the other operand are columns."""

    def __init__(self, grid: Blocks) -> None:
        self.grid, self.spec, self.e = grid, grid.spec, GridEmitter()
        self.depth, self.width = grid.padded
        self.parts = Fragments(self.e, self.spec.dtype)
        self.number = self.parts.number

    @abstractmethod
    def place_tile(self, block: Value) -> tuple[Value, Value, Value]:
        """Find this block's lines; the first head that it reads, the head whose keys they are, and what is left of the
        number."""

    @abstractmethod
    def work(self) -> None:
        """All of it, when operands are known."""

    def module(self) -> str:
        e, spec, first = self.e, self.spec, int(Header.SIZE)
        operands = spec.operands
        self.n = {name: e.word(first + len(operands) + at) for at, name in enumerate(BACKWARD.names)}
        self.thread = e.ask("thread")
        self.lane, self.warp = self.thread & (WARP - 1), self.thread.shift_right(5)
        head, shared, outer = self.place_tile(e.ask("block"))
        self.head, self.shared_head, where = head, shared, {}
        at = {name: (shared if name in "kvbd" else head) * self.n[f"{name}_head"] for name in operands}
        for axis in reversed(range(BATCH_AXES)):
            upper = e.instruction("udiv", outer, self.n[f"batches{axis}"])
            where[axis] = index = outer - upper * self.n[f"batches{axis}"]
            at = {name: offset + index * self.n[f"{name}_batch{axis}"] for name, offset in at.items()}
            outer = upper
        self.batch = where[2], where[1]
        self.mask_element = "i8" if spec.mask is None or spec.mask is bool_ else scalars.memory_type(spec.mask)
        kinds = {"l": "float", "s": "float", "p": "i64", "x": self.mask_element}
        self.place = {name: e.offset(e.address(first + number), kinds.get(name, "i16"), at[name])
                      for number, name in enumerate(operands)}
        self.position = (e.load(self.place["p"], "i64", 1) if spec.moving else e.constant(spec.offset, "i64", 1))
        self.work()
        attributes = f' nounwind "nvvm.maxntid"="{self.grid.threads}" "nvvm.minctasm"="1"'
        return entry("kernel_main", self.grid.words, e.text(), attributes) + e.outside()

    # -- memory --------------------------------------------------------------------------------------------------------
    def fetch(self, name: str, first: Value, size: Value, count: int, stage: Value, head: Value | None = None) -> None:
        """Lines of an operand into shared memory; what is not there is zero."""
        deep = name in "qk"
        source = self.place[name]
        if head is not None:
            source = self.e.offset(source, "i16", head * self.n[f"{name}_head"])
        self.parts.fetch_lines(source, first, size, self.n[f"{name}_row"], self.spec.depth if deep else self.spec.width,
                               self.depth if deep else self.width, count, stage, self.thread, self.grid.threads,
                               self.grid.aligned)

    def commit(self) -> None:
        """Close the group of fetched copies."""
        self.e.line("call void @gpu.cp_commit(ptr %ctx)")

    def arrived(self) -> None:
        """All that was fetched is there, and nobody reads the stage that comes next."""
        self.e.line("call void @gpu.cp_wait_0(ptr %ctx)")
        self.e.barrier()

    def row(self, first: Value, tile: int, half: int) -> Value:
        """The line of a lane's results."""
        return first + self.warp * (16 * self.grid.tiles) + self.lane.shift_right(2) + (16 * tile + 8 * half)

    # -- products ------------------------------------------------------------------------------------------------------
    def products(self, own: Value, other: Value, length: int, start: int) -> list[list[Value]]:
        """Own lines times some of the other operand's, along both."""
        tiles, columns = self.grid.tiles, self.grid.at_once
        zero = self.e.constant(0.0, "float", 1)
        found = [[zero] * (columns // 2) for _ in range(tiles)]
        for step in range(length // 16):
            left = [self.parts.by_rows(own, self.warp * (16 * tiles) + 16 * tile, step, length, self.lane)
                    for tile in range(tiles)]
            for column in range(0, columns, 16):
                right = self.parts.of_lines(other, start + column, step, length, self.lane)
                for tile in range(tiles):
                    for half in range(2):
                        at = (column // 8 + half) * 4
                        found[tile][at:at + 4] = self.parts.multiply(left[tile], right[2 * half:2 * half + 2],
                                                                     found[tile][at:at + 4])
        return found

    def added(self, weights: list[list[Value]], other: Value, length: int, start: int,
              sums: list[Value]) -> list[Value]:
        """Sums with the other operand's lines, weighted; those of all tiles, one after another."""
        e, each = self.e, length // 2
        sums = list(sums)
        packed = [[pack(e, self.spec.dtype, tile[n], tile[n + 1]) for n in range(0, len(tile), 2)] for tile in weights]
        for step in range(self.grid.at_once // 16):
            for column in range(0, length, 16):
                right = self.parts.across_lines(other, column, start // 16 + step, length, self.lane)
                for tile, words in enumerate(packed):
                    for half in range(2):
                        at = tile * each + (column // 8 + half) * 4
                        sums[at:at + 4] = self.parts.multiply(words[4 * step:4 * step + 4],
                                                              right[2 * half:2 * half + 2], sums[at:at + 4])
        return sums

    def seen(self, score: Value, query: Value, key: Value, apart: Value, constant: int) -> Value:
        """A score, or -inf where a query does not see a key; `apart` + constant is how far the key lies behind it."""
        e, spec = self.e, self.spec
        low = e.constant(-math.inf, "float", 1)
        if spec.causal:
            holds = e.icmp("sge", apart, -constant)
            if spec.window:
                holds = holds & e.icmp("slt", apart, min(spec.window - constant, (1 << 31) - 1))
            score = e.select(holds, score, low)
        if spec.mask is not None:
            inside = e.icmp("slt", query, self.n["queries"]) & e.icmp("slt", key, self.n["keys"])
            offset = e.select(inside, query * self.n["x_row"] + key * self.n["x_column"], 0)
            loaded = e.load(e.offset(self.mask_place, self.mask_element, offset), self.mask_element, 1)
            if spec.mask is bool_:
                return e.select(e.icmp("ne", loaded, 0), score, low)
            value = scalars.from_memory(e, loaded, spec.mask)
            value = e.convert("fptrunc", value, "float") if value.element == "double" else value
            score = e.fma(value, e.constant(1 / spec.scale, "float", 1), score)
        return score

    @property
    def mask_place(self) -> str:
        """Where the mask of the head at work begins."""
        return self.place["x"]

    def number_of(self, name: str, query: Value, missing: float) -> Value:
        """A float of a query; another one where there is no such query."""
        e = self.e
        inside = e.icmp("slt", query, self.n["queries"])
        place = e.offset(self.place[name], "float", e.select(inside, query * self.n[f"{name}_row"], 0))
        return e.select(inside, e.load(place, "float", 1), missing)

    def narrow(self, value: Value) -> Value:
        """A difference of positions: 32 bits hold it."""
        return self.e.convert("trunc", value, "i32")

    def store(self, name: str, long: int, padded: int, first: Value, size: Value, sums: list[Value],
              factor: float) -> None:
        """Results of this warp's lines, pair by pair."""
        e = self.e
        scale = e.constant(factor, "float", 1)
        for tile in range(self.grid.tiles):
            mine = sums[tile * padded // 2:(tile + 1) * padded // 2]
            for half in range(2):
                row = self.row(first, tile, half)
                values = [value * scale if factor != 1 else value
                          for n, value in enumerate(mine) if (n % 4) // 2 == half]
                with e.when(e.icmp("slt", row, size)):
                    for pair in range(long // 8):
                        word = pack(e, self.spec.dtype, *values[2 * pair:2 * pair + 2])
                        place = e.offset(self.place[name], "i16", row * self.n[f"{name}_row"] + (self.lane & 3) * 2
                                         + 8 * pair)
                        e.store(e.argument(word, "i32", 1), place, align=4)

    def slopes(self, powers: Any, inner: Any, sums: Any) -> Any:
        """p (ct v^T - sum)."""
        return [[p * (w - s) for p, w, s in zip(*three, strict=True)]
                for three in zip(powers, inner, sums, strict=True)]
