"""See it: where time and memory go, what binds a program, and what would help."""
