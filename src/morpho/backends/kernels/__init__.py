"""The kernels of a program by families: as data, and the code that writes them for the CPU."""
