"""Training that goes on: the same bits on any number of ranks, and no step lost when one dies."""
