"""From rules as they are written to rules as they run: core form, safety, types, strata, magic sets."""
