"""Benchmarks of training and generation."""
