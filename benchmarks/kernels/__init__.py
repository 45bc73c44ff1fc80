"""Kernels that take the time of a model: products, fused layers, attention, GPT-2, against the peers in the same run.

    morpho bench kernels                          # everything
    morpho bench kernels --only 1,3 --quick       # products and fused layers, fewer sizes and rounds
    morpho bench kernels --only gpt2 --json out.json
    python -m benchmarks kernels --only mlp --peers numpy,torch

One file per theme, `cases.py` for the inputs and the answers in float64, `peers/` for the ways to compute them. What
this version of Morpho does not have yet is left out with a note.
"""
