"""Work on a GPU: the table of op cases, and times beside PyTorch's."""
