"""Small dense linear algebra: factorisations and solves of matrices of at most 32 rows and columns, batched."""
