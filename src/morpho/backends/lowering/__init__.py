"""A graph as a program of kernels of this backend."""
