"""A grid of threads on the CPU: the same kernel text, run block by block, for machines without a GPU."""
