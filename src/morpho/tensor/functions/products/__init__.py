"""Matrix products, einsum and what they are made of."""
