"""Kernels written as native functions of one thread: blocks that wait for each other, sorts, segmented sums."""
