"""The grid of attention's gradient: a block per tile of queries (dq) or keys (dk and dv) of a head."""

from __future__ import annotations

from dataclasses import dataclass, replace

from morpho.backends.cuda.attention.backward_code import WARPS
from morpho.backends.cuda.attention.backward_parts import KeysCode, QueriesCode
from morpho.backends.cuda.attention.backward_spec import BACKWARD, BLOCK, BackwardSpec
from morpho.backends.cuda.attention.spec import BATCH_AXES, powers_of_two
from morpho.backends.cuda.codegen.grid import WARP, Header
from morpho.backends.cuda.codegen.kernels import Launch, Sizes, WithoutMaps, known
from morpho.backends.cuda.driver.interface import Geometry
from morpho.program.kernel import Kernel


@dataclass(frozen=True)
class BackwardGrid(WithoutMaps):
    """A block per tile of queries or keys of a head."""

    spec: BackwardSpec
    aligned: bool = True

    def alignments(self) -> tuple[tuple[int, int], ...]:
        """Chunks of operands are read whole."""
        return tuple((number, 16) for number in range(4)) if self.aligned else ()

    def unaligned(self) -> BackwardGrid:
        """Element by element into shared memory."""
        return replace(self, aligned=False)

    def kernel(self) -> Kernel:
        return self.spec

    @property
    def padded(self) -> tuple[int, int]:
        """Depth and width as powers of two."""
        return powers_of_two(self.spec.depth, self.spec.width)

    @property
    def tiles(self) -> int:
        """Of 16 lines, of a warp: two where its results leave room for the registers."""
        return 2 if max(self.padded) <= 64 else 1

    @property
    def block(self) -> int:
        """Lines of the other operands that are read at a time."""
        return BLOCK

    @property
    def at_once(self) -> int:
        """Lines of a block whose scores a warp holds at a time."""
        return 32 if self.tiles == 2 and self.spec.part == "keys" else BLOCK

    @property
    def lines(self) -> int:
        """Of the block's own operand."""
        return 16 * self.tiles * WARPS

    @property
    def threads(self) -> int:
        return WARP * WARPS

    @property
    def words(self) -> int:
        """Of a launch."""
        return int(Header.SIZE) + len(self.spec.operands) + len(BACKWARD)

    @property
    def own_bytes(self) -> int:
        return 2 * self.lines * sum(self.padded)

    @property
    def stage_bytes(self) -> int:
        """A block of the other ones."""
        return 2 * self.block * sum(self.padded)

    def launch(self, sizes: Sizes) -> Launch:
        n = BACKWARD.by_name(sizes.values)
        long, heads = n["queries"], n["heads"]
        if self.spec.part == "keys":
            long, heads = n["keys"], heads // n["group"]
        count = -(-known(long) // self.lines) * known(heads)
        for axis in range(BATCH_AXES):
            count *= known(n[f"batches{axis}"])
        return Launch(Geometry(max(count, 1), self.threads, self.shared_bytes))

    @property
    def shared_bytes(self) -> int:
        """Shared memory of its own operands, and of two blocks of the other ones."""
        return self.own_bytes + 2 * self.stage_bytes

    def text(self) -> str:
        return (QueriesCode if self.spec.part == "queries" else KeysCode)(self).module()
