"""Packing: operands copied into the panels that micro-kernels read."""
