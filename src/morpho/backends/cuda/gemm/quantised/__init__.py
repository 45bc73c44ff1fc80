"""Products of quantised weights and of bytes: weights stay as they are in memory, and the product reads them."""
