"""The trace recorder: events of native code in rings, spans of Python around what is not native."""
