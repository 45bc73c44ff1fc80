"""Attention as data: which kernel computes it, its numbers by name, and its grid."""

from __future__ import annotations

from dataclasses import dataclass, replace

from morpho.backends.cpu.codegen.kernel_abi import Record
from morpho.backends.cuda.codegen.kernels import Launch, Sizes
from morpho.backends.cuda.driver.interface import Geometry
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel
from morpho.program.program import Step

BATCH_AXES = 3
KEYS = 64  # of a block: the order in which a row's sum is taken depends on nothing else
OPERANDS = "qkvolxp"  # q, k, v, result, logarithms, mask, positions
ATTENTION = Record(" ".join(["queries keys heads group", f"batches[{BATCH_AXES}]",
                             *(f"{name}_batch[{BATCH_AXES}] {name}_head {name}_row" for name in OPERANDS), "x_column"]))


@dataclass(frozen=True)
class AttentionKernel(Kernel):
    """Softmax(scale q k^T + mask) v. Called with q, k, v, the results, then the mask and the positions it has."""

    dtype: DType
    depth: int  # of q and k
    width: int  # of v
    scale: float
    offset: int
    causal: bool
    window: int
    mask: DType | None
    moving: bool
    rows: int  # queries of a block

    role = "attention"
    flops = 4

    @property
    def places(self) -> int:
        """Operands in memory."""
        return 5 + (self.mask is not None) + self.moving

    def device_kernel(self, step: Step) -> AttentionGrid:
        """The kernel of a step."""
        return AttentionGrid(self, True)


@dataclass(frozen=True)
class AttentionGrid:
    """A block per tile of queries of a head."""

    spec: AttentionKernel
    aligned: bool

    def alignments(self) -> tuple[tuple[int, int], ...]:
        """Chunks of operands are read whole, pairs of results written at once."""
        return ((0, 16), (1, 16), (2, 16)) if self.aligned else ()

    def unaligned(self) -> AttentionGrid:
        """Element by element into shared memory."""
        return replace(self, aligned=False)

    def kernel(self) -> Kernel:
        """The kernel of the program."""
        return self.spec

    @property
    def tiles(self) -> int:
        """Of 16 queries, of a warp: two where its results leave room for the registers."""
        return 2 if max(self.padded) <= 64 and self.spec.rows >= 32 else 1

    @property
    def threads(self) -> int:
        """Of a block."""
        return 2 * self.spec.rows // self.tiles

    @property
    def padded(self) -> tuple[int, int]:
        """Depth and width as powers of two."""
        return tuple(max(16, 1 << (n - 1).bit_length()) for n in (self.spec.depth, self.spec.width))  # type: ignore[return-value]

    @property
    def stage_bytes(self) -> int:
        """A block of keys and of values."""
        return 2 * KEYS * sum(self.padded)

    @property
    def shared_bytes(self) -> int:
        """Queries, and two stages."""
        return 2 * self.spec.rows * self.padded[0] + 2 * self.stage_bytes

    def launch(self, sizes: Sizes) -> Launch:
        """Tiles of all heads of all batches."""
        numbers = ATTENTION.by_name(sizes.values)
        count = -(-int(numbers["queries"]) // self.spec.rows) * int(numbers["heads"])
        for axis in range(BATCH_AXES):
            count *= int(numbers[f"batches{axis}"])
        return Launch(Geometry(max(count, 1), self.threads, self.shared_bytes))

    def text(self) -> str:
        """Its LLVM text."""
        from morpho.backends.cuda.attention.forward import ForwardCode

        return ForwardCode(self).module()
