"""Fourier transforms in generated code: plans, butterflies, tables of roots, kernels along rows and across columns."""
