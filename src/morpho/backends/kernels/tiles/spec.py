"""A kernel over tiles as data: the program's text, and how its arrays lie."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.kernel_abi import Record
from morpho.ops.tiles.ir import TileProgram, decode
from morpho.program.kernel import Kernel


@dataclass(frozen=True)
class TileKernel(Kernel):
    """Rows are programs of the grid. `units`: arrays whose last axis lies side by side; `levels`: axes of `vmap`."""

    text: str
    units: tuple[bool, ...]
    levels: int

    role = "scan"

    @property
    def program(self) -> TileProgram:
        return decode(self.text)

    @property
    def flops(self) -> int:
        return max(1, sum(one.name == "map" for one in self.program.operations))

    @property
    def may_fault(self) -> bool:
        return any(one.name == "require" for one in self.program.operations)

    @property
    def record(self) -> Record:
        """The grid, sizes of the levels, and of each array its shape, strides and strides of the levels."""
        fields = ["grid[3]", f"levels[{self.levels}]"]
        for number, array in enumerate(self.program.arrays):
            fields += [f"shape{number}_[{array.rank}]", f"strides{number}_[{array.rank}]",
                       f"moves{number}_[{self.levels}]"]
        return Record(" ".join(fields))

    def __hash__(self) -> int:
        return hash((self.text, self.units, self.levels))
