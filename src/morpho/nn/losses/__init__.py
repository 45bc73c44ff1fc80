"""Losses: `functions.py` has them as functions, `modules.py` as modules with their settings kept."""
