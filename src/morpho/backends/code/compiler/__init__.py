"""LLVM text to object code to addresses, in this process and in others."""
