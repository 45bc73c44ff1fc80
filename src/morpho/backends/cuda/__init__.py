"""NVIDIA GPUs: LLVM's NVPTX target writes PTX, the driver (through ctypes) assembles, loads and launches it."""
