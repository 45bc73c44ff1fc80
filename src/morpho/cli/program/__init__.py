"""A program looked at: `morpho profile`, `tune`, `tour`, `explain`."""
