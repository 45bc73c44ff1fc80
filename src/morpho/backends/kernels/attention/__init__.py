"""Blockwise exact attention, forward and backward."""
