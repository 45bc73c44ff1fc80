"""Matrix products: which kernel, on which operands."""
