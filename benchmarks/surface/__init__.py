"""Every public function and its gradient beside eager PyTorch, NumPy and SciPy: `morpho bench surface`."""
