"""Kernels over compressed sparse rows on a grid, with the CPU's four chains a row and so its bits."""
