"""Sums, running sums and products over axes."""
