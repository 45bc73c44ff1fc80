"""Products of half floats on tensor cores: by warps, by warpgroups, and of few rows."""
