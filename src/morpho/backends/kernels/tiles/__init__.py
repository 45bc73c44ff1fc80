"""Kernels over tiles as code: one generator for vectors of a CPU and threads of a GPU."""
