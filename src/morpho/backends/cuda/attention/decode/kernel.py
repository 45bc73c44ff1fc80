"""Attention of one query as data: its grid, and where the blocks of a round lie in shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.kernel_abi import Record
from morpho.backends.cuda.attention.decode.code import DecodeCode, Rooms
from morpho.backends.cuda.attention.decode.split import COLUMNS, SPAN, ScoresCode, ValuesCode
from morpho.backends.cuda.attention.spec import ATTENTION, BATCH_AXES, KEYS, AttentionSpec, powers_of_two
from morpho.backends.cuda.codegen.kernels import Launch, Sizes, WithoutMaps, known
from morpho.backends.cuda.driver.interface import Geometry
from morpho.program.kernel import Kernel
from morpho.program.program import Step

THREADS = 512
APPENDED = "nwhcd"  # new key, new value, which line they are put into, the caches with them
APPEND = ATTENTION.extended(" ".join(f"{name}_batch[{BATCH_AXES}] {name}_head {name}_row" for name in APPENDED))


@dataclass(frozen=True)
class DecodeSpec(AttentionSpec):
    """One query of every head. With `appends`, keys and values are `where(here, new, held)`, which it writes too: in
    place where held and target are the same memory, else the whole cache."""

    appends: bool = False
    still: bool = False  # whether nothing before it in its program writes what it reads but the query and the new line
    most_keys: int = 0  # 0: any number
    heads: int = 0  # where there is one batch: a block's number is its head
    shared: int = 1  # heads of a group
    part: str = ""  # of a long cache: "scores" of spans of keys, then "values", 16 columns of them at a time
    step_keys: int = KEYS  # between two looks at the largest score, as in the kernel for many queries of this chip

    @property
    def places(self) -> int:
        """Operands in memory."""
        return len(self.names)

    @property
    def names(self) -> str:
        """Operands in memory, by their letters; s: the scores of all keys."""
        first = {"": "qkvol", "scores": "qkvs", "values": "vols"}[self.part]
        return first + "p" * self.moving + APPENDED * self.appends

    @property
    def record(self) -> Record:
        return APPEND if self.appends else ATTENTION

    def device_kernel(self, step: Step) -> DecodeAttention:
        return DecodeAttention(self)


@dataclass(frozen=True)
class DecodeAttention(WithoutMaps):
    """A block per head, a warp per 16 keys of a round, then per 16 columns of the result."""

    spec: DecodeSpec
    aligned: bool = True
    tiles = 1
    threads = THREADS

    def alignments(self) -> tuple[tuple[int, int], ...]:
        """Chunks of keys and values are read and written whole, queries and results by pairs."""
        return tuple((number, 16) for number, name in enumerate(self.spec.names) if name in "qkvnwcd")

    def unaligned(self) -> DecodeAttention:
        return self

    def kernel(self) -> Kernel:
        return self.spec

    @property
    def padded(self) -> tuple[int, int]:
        """Depth and width as powers of two."""
        depth, width = powers_of_two(self.spec.depth, self.spec.width)
        return (0, COLUMNS) if self.spec.part == "values" else (depth, width)

    @property
    def round_keys(self) -> int:
        """Keys of a round."""
        return 256 if sum(self.padded) <= 128 else 128

    @property
    def stage_bytes(self) -> int:
        """Keys and values of a round."""
        return 2 * self.round_keys * (self.padded[0] if self.spec.part == "scores" else sum(self.padded))

    @property
    def stages(self) -> int:
        """Rounds in flight."""
        return 1 if 0 < self.spec.most_keys <= self.round_keys else 2

    def launch(self, sizes: Sizes) -> Launch:
        """All heads of all batches."""
        numbers = self.spec.record.by_name(sizes.values)
        count = known(numbers["heads"]) * self.parts
        for axis in range(BATCH_AXES):
            count *= known(numbers[f"batches{axis}"])
        return Launch(Geometry(max(count, 1), THREADS, Rooms(self).end))

    @property
    def parts(self) -> int:
        """Blocks of a head."""
        if self.spec.part == "scores":
            return -(-self.spec.most_keys // SPAN)
        return self.spec.width // COLUMNS if self.spec.part == "values" else 1

    def text(self) -> str:
        return {"": DecodeCode, "scores": ScoresCode, "values": ValuesCode}[self.spec.part](self).module()
