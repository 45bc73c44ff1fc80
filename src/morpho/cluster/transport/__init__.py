"""Messages between workers: frames, the types activations are sent in, channels, and a shim for tests."""
