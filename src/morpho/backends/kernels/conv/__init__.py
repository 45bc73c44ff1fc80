"""Convolutions: implicit GEMM, and direct ones that read windows in place."""
