"""The array language: creation, elementwise, reductions, moves, indexing, random numbers."""
