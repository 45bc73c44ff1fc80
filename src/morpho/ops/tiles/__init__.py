"""Kernels over tiles: their IR, its meaning in NumPy, and the op that runs one."""
