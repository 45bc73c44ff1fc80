"""Complex numbers as two real ones: a graph without arithmetic on complex dtypes, in the roundings of docs/numerics.md."""
