"""Gradients, and what they compute again."""
