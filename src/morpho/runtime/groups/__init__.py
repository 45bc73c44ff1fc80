"""Ranks that work together: the `Group` protocol, and the group that collectives of a graph run on."""
