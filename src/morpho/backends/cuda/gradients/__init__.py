"""Kernels that gradients need most: sums of columns, and rows added at indices."""
