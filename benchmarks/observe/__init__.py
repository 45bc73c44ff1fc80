"""The profiler and the analyser measured: overhead, right verdicts, what advice gains, leaks over many steps."""
