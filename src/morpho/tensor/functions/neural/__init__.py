"""Functions of neural networks: activations, losses, attention, convolutions, pooling."""
