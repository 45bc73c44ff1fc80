"""Serving over a pipeline of workers: an engine whose stages are processes of this machine or of others."""
