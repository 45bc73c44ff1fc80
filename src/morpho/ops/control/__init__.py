"""Loops and branches: their records, and what transformations make of them."""
