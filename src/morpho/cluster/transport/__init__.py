"""What goes over a link: framed messages, the types activations are sent in, channels, and a shim for tests."""
