"""Morpho's functions beside their namesakes, on samples that nobody here wrote."""
