"""The LLVM text of kernels for GPUs is what it was, unless somebody meant to change it."""

from __future__ import annotations

from benchmarks.gpu import texts

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
