"""The machines and the links between them, and the files that describe them."""
