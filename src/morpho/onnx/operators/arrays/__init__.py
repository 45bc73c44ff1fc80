"""Operators on arrays: arithmetic, shapes, indices, reductions, texts, sequences."""
