"""Liveness, the order of steps, and offsets in the arena."""
