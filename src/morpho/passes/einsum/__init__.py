"""The order in which an einsum contracts its operands."""
