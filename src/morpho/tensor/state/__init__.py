"""Tensors that a compiled function updates in place."""
