"""Strategies: heuristics, simulated annealing, and the exact search with its dual bounds (`exact/`)."""
