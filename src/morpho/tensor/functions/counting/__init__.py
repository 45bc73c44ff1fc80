"""Counting and gathering by bins, segments and indices."""
