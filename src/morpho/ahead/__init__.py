"""Ahead of time: compiled functions as libraries that need no Python (`mo.export`)."""
