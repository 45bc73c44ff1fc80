"""Groups: one process, threads of one process, processes over MPI, hosts first."""
