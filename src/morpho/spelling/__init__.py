"""NumPy's, PyTorch's and SciPy's spelling of what Morpho has: names, argument orders, methods of tensors.

Everything here is loaded when a program first uses another library's spelling. `table.py` lists the names, `calls.py`
the words and orders of arguments; the other files hold functions that are more than another name.
"""
