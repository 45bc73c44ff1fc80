"""The native entry of a compiled function: signature tables, argument extractors, new outputs."""
