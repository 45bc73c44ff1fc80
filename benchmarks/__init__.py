"""Benchmarks of Morpho against its peers, in the same run, on the same data, with the same number of threads.

Commands to copy (from the root of a checkout, with ``pip install -e '.[bench]'``):

    morpho bench core                       # everything
    morpho bench core --only 2,3 --quick    # GELU and fusion, fewer rounds and sizes
    morpho bench core --json out.json       # all figures and the machine they were measured on
    morpho bench core --gate                # fail when a ratio is more than 20 % worse than baseline.json
    morpho bench kernels                    # products, fused layers, attention, GPT-2; the same options
    morpho bench train                      # training steps, memory, generation, SmolLM2; the same options
    morpho bench programs                   # array programs: stencils, loops, sparse, complex, an ocean's
    python -m benchmarks --help             # the same harness without the command line of Morpho

How it measures: one process per peer, blocked in a read while it waits; the parent asks each in turn for one round
(some milliseconds of calls), again and again in rotating order, and compares medians of the rounds.
"""
