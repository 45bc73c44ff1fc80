"""Attention of one query of every head, over a cache that the new key and value are put into by the same kernel."""
