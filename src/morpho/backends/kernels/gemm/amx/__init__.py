"""GEMM on matrix units (AMX): the kernels as data, and their code."""
