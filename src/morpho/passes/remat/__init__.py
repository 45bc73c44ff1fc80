"""Rematerialisation: values computed again to keep a memory budget."""
