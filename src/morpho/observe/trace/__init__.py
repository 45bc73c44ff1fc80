"""A profile as plain data: written by the recorder, read by analyser and exporters, kept as JSON."""
