"""Attention of one query over a long cache, a head's work split among blocks, with the bits that one block has.

The scores of a span of keys are a block's each, and go to memory; behind them, 16 columns of the result are a block's
each: it takes powers of all scores again, which is little work, and its columns of the values in the order of the keys.
No sum is cut: how many blocks there are changes nothing, and a row has the bits it has in every other kernel.
"""

from __future__ import annotations

import math

from morpho.backends.code.emit import Value
from morpho.backends.cuda.attention.decode.code import PIECE, DecodeCode
from morpho.backends.cuda.codegen.grid import Header, entry

SPAN = 512  # keys of a block: whole rounds
COLUMNS = PIECE


class SplitCode(DecodeCode):
    """Base of both kernels."""

    def of_block(self) -> tuple[Value, Value]:
        """The head's number, and the span or the columns."""
        e = self.e
        block, parts = e.ask("block"), self.parts.number(self.grid.parts)
        linear = e.instruction("udiv", block, parts)
        return linear, block - linear * parts

    def find_tile(self) -> None:
        """The row of scores besides."""
        super().find_tile()
        e, spec = self.e, self.spec
        rows = e.address(int(Header.SIZE) + spec.names.index("s"))
        self.scores_at = e.offset(rows, "float", self.linear * self.n["keys"])

    def keys_of(self, key: Value, piece: Value) -> list[Value]:
        """The four keys that a lane of the first four has of a warp's."""
        return [key + piece * PIECE + (self.lane & 3) * 2 + (8 * (number // 2) + number % 2) for number in range(4)]

    def whole(self) -> str:
        """The module."""
        words = int(Header.SIZE) + self.spec.places + len(self.spec.record)
        attributes = f' nounwind "nvvm.maxntid"="{self.grid.threads}" "nvvm.minctasm"="1"'
        return entry("kernel_main", words, self.e.text(), attributes) + self.e.outside()


class ScoresCode(SplitCode):
    """Scores of a span; the new line is put in by the block whose span it is in."""

    holds_values = False

    def module(self) -> str:
        e, spec, grid = self.e, self.spec, self.grid
        e.line("call void @gpu.grid_early(ptr %ctx)")
        if not spec.still:
            e.wait_for_others()
        self.find_tile()
        begin, _, end = self.key_range()
        first = begin + self.part * SPAN
        last = e.intrinsic("smin", first + SPAN, end)
        self.fetch_round(first, self.parts.number(0))
        if spec.still:
            e.wait_for_others()
        self.find_query()
        with e.loop(first, last, grid.round_keys, carried=[self.parts.number(0)]) as loop:
            (here,) = loop.values
            lines = self.new_lines(loop.index) if spec.appends else []
            e.line("call void @gpu.cp_wait_0(ptr %ctx)")
            e.barrier()
            if spec.appends:
                self.append(lines, loop.index, here)
                e.barrier()
            other = grid.stage_bytes - here
            self.fetch_round(loop.index + grid.round_keys, other)
            self.store_scores(loop.index, here)
            loop.next(other)
        e.line("call void @gpu.cp_wait_0(ptr %ctx)")
        if spec.appends:
            turns = e.instruction("udiv", end - begin + (grid.round_keys - 1), self.parts.number(grid.round_keys))
            with e.when(e.icmp("eq", self.part, 0)):
                self.append_rest(begin, begin + turns * grid.round_keys)
        return self.whole()

    def fetch_round(self, key: Value, stage: Value) -> None:
        """Queue the keys of a round."""
        n = self.n
        self.fetch(self.k, key, n["keys"], n["k_row"], self.spec.depth, self.depth, self.grid.round_keys, stage)
        self.e.line("call void @gpu.cp_commit(ptr %ctx)")

    def store_scores(self, key: Value, stage: Value) -> None:
        """Store the scores of a round, -inf where the query does not see a key."""
        e, piece = self.e, self.piece()
        found = self.piece_scores(key, stage, piece)
        with e.when(self.query_lane):
            for at, score in zip(self.keys_of(key, piece), found, strict=True):
                with e.when(e.icmp("slt", at, self.n["keys"])):
                    e.store(score, e.offset(self.scores_at, "float", at), align=4)


class ValuesCode(SplitCode):
    """16 columns of the result."""

    def find_tile(self) -> None:
        """The columns besides."""
        super().find_tile()
        self.v, self.o = (self.e.offset(place, "i16", self.part * COLUMNS) for place in (self.v, self.o))

    def find_query(self) -> None:
        """Nobody asks for it: the scores are there."""

    def fetch_round(self, key: Value, stage: Value) -> None:
        """Queue these columns of the values of a round."""
        n = self.n
        self.fetch(self.v, key, n["keys"], n["v_row"], COLUMNS, COLUMNS, self.grid.round_keys, stage)
        self.e.line("call void @gpu.cp_commit(ptr %ctx)")

    def piece_scores(self, key: Value, stage: Value, piece: Value) -> list[Value]:
        """From memory."""
        e, found = self.e, []
        for at in self.keys_of(key, piece):
            inside = e.icmp("slt", at, self.n["keys"])
            score = e.load(e.offset(self.scores_at, "float", e.select(inside, at, 0)), "float", 1, align=4)
            found.append(e.select(inside, score, -math.inf))
        return found
