"""The families: what their config.json says, and the `Shape` that follows from it."""
