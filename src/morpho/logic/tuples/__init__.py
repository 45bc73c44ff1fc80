"""Sparse relations: sorted tuples of 64-bit codes, index joins, semi-naive fixpoints, incremental updates."""
