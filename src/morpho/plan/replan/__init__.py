"""Solving again: what-ifs, node failures, and repartitioning while the pipeline runs."""
