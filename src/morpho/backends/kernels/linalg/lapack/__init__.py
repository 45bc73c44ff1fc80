"""LAPACK, called by its address inside native programs: what the kernels of `linalg/` are not written for."""
