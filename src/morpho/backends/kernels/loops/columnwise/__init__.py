"""Loop kernels whose lanes run along the rows: reductions over leading axes, and over small windows."""
