"""morpho, a file per suite that it takes part in."""
