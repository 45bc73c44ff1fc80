"""Semantics by name: semirings for derivations, connectives and quantifiers for formulas."""
