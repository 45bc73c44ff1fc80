"""The writer of LLVM text, and one operation on registers."""
