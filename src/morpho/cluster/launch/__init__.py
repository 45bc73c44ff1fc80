"""Starting processes: the mpiexec command line, and programs that survive the death of a rank."""
