"""Benchmarks of training."""
