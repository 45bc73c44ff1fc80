"""DLPack, the buffer protocol and NumPy's array protocol."""
