"""Products of bytes and with weights in quantised blocks."""
