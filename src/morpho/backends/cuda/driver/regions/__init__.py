"""Launches of programs with dynamic sizes: regions of sizes for which the host's arithmetic takes the same way."""
