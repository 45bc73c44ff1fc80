"""Signals: windows, and Fourier transforms of short pieces."""
