"""Sorting lines: by radix, stable and with indices, and values alone by merging in vector registers."""
