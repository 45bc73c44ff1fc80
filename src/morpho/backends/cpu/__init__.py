"""The CPU: from a graph to loops as data, LLVM text, machine code and the driver that runs it."""
