"""Cutting and joining tensors, axes in another order, diagonals and borders: views and copies made from `move`."""
