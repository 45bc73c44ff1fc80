"""`mo.compile`: tracing, specialisation, the native entry and the way through Python."""
