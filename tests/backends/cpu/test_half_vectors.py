"""Maps that move more than they compute take vectors of half the width on AVX-512 without matrix units."""

from __future__ import annotations

import pytest

from morpho.backends.kernels.loops.generate import generate
from morpho.backends.kernels.loops.loop_spec import Access, Instruction, LoopKernel, Store
from morpho.base.dtypes import float32
from morpho.base.machine import ISAS


def kernel(*names: str, flops: int = 1) -> LoopKernel:
    """A map of two operands through these operations."""
    accesses = [Access("load", float32, "unit"), Access("load", float32, "unit"), Access("store", float32, "unit")]
    found = [Instruction("load", (), float32, True, 0, 0), Instruction("load", (), float32, True, 1, 0)]
    for name in names:
        found.append(Instruction(name, (len(found) - 1, 0), float32, True, None, flops))
    return LoopKernel(1, 1, tuple(accesses), tuple(found), (Store(2, len(found) - 1, True),))


@pytest.mark.parametrize(("names", "flops", "isa", "halved"), [
    (("add",), 1, "avx512", True), (("add", "multiply"), 1, "avx512", False), (("divide",), 4, "avx512", False),
    (("add",), 1, "avx2", False), (("add",), 1, "amx", False)])
def test_which_are_halved(names: tuple[str, ...], flops: int, isa: str, halved: bool) -> None:
    text = generate(kernel(*names, flops=flops), ISAS[isa], "one")
    assert ('"min-legal-vector-width"="0"' in text) == halved
    assert ('"prefer-vector-width"="512"' in text) == (isa != "avx2" and not halved)
