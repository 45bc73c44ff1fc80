"""From steps of a program to LLVM text for a grid of threads, and from that to PTX."""
