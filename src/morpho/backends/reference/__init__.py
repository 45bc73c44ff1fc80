"""NumPy, one operation at a time: the living definition of every op."""
