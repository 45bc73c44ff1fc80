"""Operators of images, signals, texts and random numbers."""
