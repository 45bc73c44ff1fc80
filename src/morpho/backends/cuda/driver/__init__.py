"""The CUDA driver through ctypes: devices, memory, streams, events, modules."""
