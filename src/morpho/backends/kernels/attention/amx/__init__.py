"""Attention of bfloat16 on matrix units."""
