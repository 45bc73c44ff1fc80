"""Compiled code and computed objects, byte-bounded, on disk and in memory."""
