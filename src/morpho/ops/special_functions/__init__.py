"""Special functions: formulas in float64 that are written once, for NumPy's arrays (the meaning) and for registers."""
