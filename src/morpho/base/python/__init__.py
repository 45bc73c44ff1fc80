"""Python itself, and libraries in its process: lazy loading, locks over a fork, the threads of OpenBLAS."""
