"""The exact search: dynamic programs over multisets of nodes, pruned by the dual bounds of a Lagrangian relaxation."""
