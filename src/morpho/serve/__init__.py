"""Serving: the generation engine (`engine/`) and what is built on it."""
