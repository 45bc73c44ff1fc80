"""Indexing: keys of `x[...]`, gathers and scatters by them, `x.at`."""
