"""Programs that nobody compiled, as people write them first."""
