"""What a backend runs: steps over slots of memory, and the passes over such programs."""
