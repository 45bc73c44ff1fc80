"""Distributed arrays: blocks of one array on a grid of ranks, and linear algebra on them."""
