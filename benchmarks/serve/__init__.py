"""The generation engine against the peers in the same run.

    morpho models pull smollm2
    morpho bench serve                           # everything
    morpho bench serve --only streams --quick    # tokens/s of 1, 4, 16, 64 texts at once, quickly

One file per theme; `cases.py` has the prompts, and what is right.
"""
