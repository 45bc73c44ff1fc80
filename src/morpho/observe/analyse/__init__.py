"""The bottleneck analyser: from a trace to what binds the program, and what to change."""
