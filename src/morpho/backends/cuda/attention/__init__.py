"""Attention on tensor cores, block by block of keys."""
