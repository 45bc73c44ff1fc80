"""Sparse matrices against SciPy and PyTorch in the same run: products with vectors, with matrices, with each other, a
network of sparse layers.

    morpho bench sparse                        # everything, two threads
    morpho bench sparse --threads 1            # the bars for one thread
    morpho bench sparse --only spmv --quick

One file per theme; `cases.py` makes the matrices and checks every answer with a random vector in float64.
"""
