"""Loops: found in what Python unrolled, distributed, and which of them are one kernel."""
