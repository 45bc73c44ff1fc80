"""NVIDIA's libraries, where they are installed: choices, never requirements. Loaded by ctypes when first asked for."""
