"""Layers, a family to a file; `mo.nn` has all of them by name."""
