"""Computed objects kept in memory and on disk: keys by content, values in a documented form, two tiers, one flight."""
