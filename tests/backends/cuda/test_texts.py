"""The LLVM text of kernels for GPUs is what it was, unless somebody meant to change it."""

from __future__ import annotations

import re

from benchmarks.gpu import texts
from morpho.backends.cuda.assembly.intrinsics import INTRINSICS, row_of
from morpho.backends.cuda.emulator import meanings, runtime

CALLED = ("barrier", "warp_barrier", "shuffle_xor", "cp_async", "ldmatrix", "ldmatrix_trans", "mma_bf16", "mma_f16",
          "mma_tf32", "to_tf32", "mma_s8_s8", "mma_u8_s8", "pack_bf16", "pack_f16", "add_bf16", "exp2", "log2",
          "reciprocal", "prefetch", "mbarrier_wait", "tma_load_3", "tma_load_5", "wgmma_bf16", "wgmma_rs_bf16",
          "wgmma_rs_two_bf16", "scores_bf16", "scores_two_bf16", "attend_bf16", "registers_up", "grid_wait")


def test_kernels_have_the_text_they_had() -> None:
    digests, expected = texts.digests(), texts.known()
    different = sorted(name for name in digests.keys() | expected.keys() if digests.get(name) != expected.get(name))
    assert not different, ("if this is meant, `python -m benchmarks.gpu.texts --save`; `--folder` writes the texts and "
                           f"their PTX for diff: {different}")


def test_the_corpus_calls_the_functions_of_a_grid() -> None:
    called = texts.functions()
    assert [name for name in CALLED if not any(each.startswith(name) for each in called)] == []


def test_every_intrinsic_has_a_meaning() -> None:
    """Of the emulator's, and no meaning is of something else. A row is found by the name that its parameters make."""
    native = {part.symbol.removeprefix("gpu.") for part in (*runtime.OF_KERNELS, *meanings.BARRIERS)}  # type: ignore[attr-defined]
    of_assembly = {"shared_at"}
    assert meanings.MEANINGS.keys() <= INTRINSICS.keys()
    assert INTRINSICS.keys() - meanings.MEANINGS.keys() - native == of_assembly
    for name, row in INTRINSICS.items():
        made = re.sub(r"\{(\w+)\}", lambda m: {"kind": "f16", "way": "up", "a": "s", "b": "u"}.get(m[1], "1"), name)
        assert row_of(made)[0] is row
