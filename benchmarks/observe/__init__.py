"""Measurements of what watches and tunes: caches, monitor."""
