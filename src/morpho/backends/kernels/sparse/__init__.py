"""Kernels over compressed sparse rows."""
