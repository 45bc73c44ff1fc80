"""Sorting one long line with the whole grid: a stable radix sort."""
