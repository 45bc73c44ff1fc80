"""Dense linear algebra: Morpho's own blocked factorisations and LAPACK called by its address, against SciPy in the same
run; solves of mixed precision; backward errors on hard matrices.

    morpho bench linalg                        # everything, two threads
    morpho bench linalg --only solve --quick
    morpho bench linalg --only errors          # a table of backward errors, nothing timed
    morpho bench linalg --json out.json --within 200 --resume    # what fits into 200 s; again for the rest

One file per theme; `cases.py` makes the matrices and checks every answer by its residual.
"""
