"""Op records of neural networks: attention, convolution, softmax and norms, losses, products with quantised weights."""
