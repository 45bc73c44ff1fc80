"""Groups of elementwise operations, reductions and scatters as loops."""
