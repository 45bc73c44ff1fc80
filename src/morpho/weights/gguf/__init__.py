"""GGUF files: what their headers say, and what lies behind."""
