"""Programs written for NumPy and PyTorch: with the import as their only changed line they run on Morpho.

`tests/spelling/test_ports.py` runs each both ways and compares `result`. Data are formulas, because streams of random
numbers differ.
"""
