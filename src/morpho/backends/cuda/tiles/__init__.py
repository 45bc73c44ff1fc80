"""Kernels over tiles on a grid of blocks."""
