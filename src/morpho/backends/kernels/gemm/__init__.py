"""Matrix products: pack, macro-kernel, micro-kernels, epilogues; GEMV; AMX."""
