"""What watches and tunes, measured: the profiler and the analyser (overhead, right verdicts, what advice gains, leaks
over many steps), caches, the monitor."""
