"""Operators of neural networks: activations, convolution, norms, attention, recurrence, quantised arithmetic."""
