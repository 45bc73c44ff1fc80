"""`mo.compile`: tracing, specialisation, the native entry and the slow path."""
