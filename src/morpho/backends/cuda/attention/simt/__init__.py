"""Attention of float32 and float64 on the arithmetic units, block by block, with the CPU's bits."""
