"""Fused loops: elementwise chains, reductions, scans, gathers and scatters."""
