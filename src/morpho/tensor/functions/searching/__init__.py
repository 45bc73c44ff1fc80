"""Searching and sorting: places of elements, sets, selections whose size is data."""
