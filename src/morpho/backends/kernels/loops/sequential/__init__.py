"""Loops whose elements depend on each other along one axis: running sums, scatters."""
