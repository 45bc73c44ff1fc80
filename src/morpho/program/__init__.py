"""Programs of a backend: steps over slots of memory, and the passes over such programs."""
