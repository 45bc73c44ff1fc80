"""Matrices: LAPACK's operations, triangular ones, and their gradients."""
