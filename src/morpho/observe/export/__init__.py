"""A trace as people and tools read it: text, Perfetto, flame graph, HTML, symbols for perf and gdb."""
