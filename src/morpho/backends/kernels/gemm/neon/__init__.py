"""Inner loops of products in AArch64 assembly, where LLVM's order leaves vector units idle."""
