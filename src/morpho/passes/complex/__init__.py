"""Complex numbers as two real ones: a graph without arithmetic on complex dtypes (roundings: docs/numerics.md)."""
