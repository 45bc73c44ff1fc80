"""PyTorch's programs through Morpho: its operation database, and whole models against eager and Inductor."""
